# frozen_string_literal: true

module Polyphony
  module HTTP
    class TLS
      # The contexts that OpenSSL wants: one that all connections begin with, and one for each certificate, which
      # take over when the client has said which name it means.
      #
      # The first one has the keys that session tickets are encrypted with. They are made with the context, so
      # workers that were forked afterwards can open each other's tickets. After a reload clients shake hands anew.
      # @api private
      class Contexts
        # TLS 1.2: forward secrecy and AEAD. None of them is weak, so the client's order counts, which knows whether
        # it has AES in hardware. TLS 1.3 has only such.
        CIPHERS = %w[ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-GCM-SHA256
                     ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-RSA-AES256-GCM-SHA384
                     ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305].join(':').freeze
        # Sessions are not resumed in other applications that have the same ticket keys.
        SESSION_CONTEXT = 'polyphony'
        # h2c is not for TLS, but who says so speaks HTTP.
        HTTP1 = %w[http/1.1 http/1.0 h2c].freeze
        private_constant :CIPHERS, :SESSION_CONTEXT, :HTTP1
        $LOADED_FEATURES.grep(%r{/openssl\.(?:so|bundle)\z}).first.then { |path| HTTP.__openssl(path) if path }

        # @return [OpenSSL::SSL::SSLContext] what a connection begins with
        attr_reader :front
        # @return [Hash{String => OpenSSL::SSL::SSLContext}] exact names, and such as +*.example.com+
        attr_reader :by_name

        # @param certificates [Array<Certificate>]
        # @param settings [Hash] see TLS#initialize
        # @param strict [Boolean] whether unknown names are turned away
        def initialize(certificates, settings, strict:)
          @settings = settings
          @strict = strict
          groups = group(certificates)
          contexts = groups.map { |group| context_for(group) }
          @front = contexts.first
          @by_name = names_of(groups, contexts)
        end

        # @param name [String] what a client wants
        # @return [OpenSSL::SSL::SSLContext, nil] nil: the one it has already
        # @raise [BadRequest] for a name we do not have, if we are strict
        def choose(name)
          name = name.downcase.chomp('.')
          @by_name[name] || @by_name[name.sub(/\A[^.]+/, '*')] || unknown
        end

        private

        # OpenSSL tells the client: unrecognized_name.
        def unknown
          raise BadRequest, 'TLS: there is no certificate for the name it asked for' if @strict
        end

        # Certificates for the same names with keys of different kinds go together: OpenSSL takes the one that the
        # client understands.
        def group(certificates)
          certificates.group_by { |certificate| certificate.names.sort }.values.map { |same| same.uniq(&:kind) }
        end

        # The first that has a name is the one for it.
        def names_of(groups, contexts)
          groups.zip(contexts).each_with_object({}) do |(group, context), names|
            group.first.names.each { |name| names[name] ||= context }
          end
        end

        def context_for(group)
          context = ::OpenSSL::SSL::SSLContext.new
          context.min_version = ::OpenSSL::SSL.const_get(:"#{@settings[:min_version]}_VERSION")
          context.options |= options
          context.ciphers = @settings[:ciphers] || CIPHERS
          set_sessions(context)
          set_callbacks(context)
          set_client_certificates(context) if @settings[:verify]
          add(context, group)
          context.setup
          HTTP.__fair_reads(context)
          context
        rescue ::OpenSSL::SSL::SSLError => e
          raise Error, "TLS cannot be set up: #{e.message}"
        end

        def add(context, group)
          group.each { |one| context.add_certificate(one.cert, one.key, one.chain) }
        rescue ::OpenSSL::SSL::SSLError, ::ArgumentError => e
          raise Error, "the certificate for #{group.first.names.join(', ')} cannot be used: #{e.message}"
        end

        def options
          ::OpenSSL::SSL::OP_NO_COMPRESSION | ::OpenSSL::SSL::OP_NO_RENEGOTIATION
        end

        # Tickets carry the session, so nothing is kept here: a cache would be one for each worker, and memory
        # for clients to fill.
        def set_sessions(context)
          context.session_cache_mode = ::OpenSSL::SSL::SSLContext::SESSION_CACHE_OFF
          context.session_id_context = SESSION_CONTEXT
        end

        # Who does not ask gets HTTP/1.1. Who offers nothing of ours is told so: it takes us for another server (RFC
        # 7301; Ruby cannot leave the question unanswered).
        def set_callbacks(context)
          ours = @settings[:http2] ? ['h2', *HTTP1] : HTTP1
          context.alpn_select_cb = lambda do |theirs|
            (ours & theirs).first or raise BadRequest, 'TLS: offers no protocol that is spoken here (ALPN)'
          end
          context.servername_cb = ->((_socket, name)) { choose(name) }
        end

        def set_client_certificates(context)
          ssl = ::OpenSSL::SSL
          context.verify_mode = ssl::VERIFY_PEER
          context.verify_mode |= ssl::VERIFY_FAIL_IF_NO_PEER_CERT unless @settings[:verify] == :optional
          context.cert_store = ::OpenSSL::X509::Store.new
          authorities = @settings[:ca].to_s
          ::File.directory?(authorities) ? context.cert_store.add_path(authorities) : trust(context, authorities)
        rescue ::OpenSSL::X509::StoreError, ::OpenSSL::X509::CertificateError => e
          raise Error, "the authorities in #{authorities} cannot be used: #{e.message}"
        end

        # Clients are told whom we trust, and choose their certificate by it.
        def trust(context, path)
          pems = ::File.binread(path).scan(/-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/m)
          raise Error, "no certificate in #{path}: ca: wants a PEM file or a folder" if pems.empty?

          authorities = pems.map { |pem| ::OpenSSL::X509::Certificate.new(pem) }
          authorities.each { |authority| context.cert_store.add_cert(authority) }
          context.client_ca = authorities
        rescue ::SystemCallError => e
          raise Error, "the authorities in #{path} cannot be read: #{e.class.new.message}"
        end
      end
      private_constant :Contexts
    end
  end
end
