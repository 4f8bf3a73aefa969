# frozen_string_literal: true

module Polyphony
  module HTTP
    class TLS; end # before its parts open it, which would load this file once more
  end
end

require 'polyphony/http/tls/errors'
require 'polyphony/http/tls/certificate'
require 'polyphony/http/tls/self_signed'
require 'polyphony/http/tls/contexts'

module Polyphony
  module HTTP
    # What a listener needs for https: certificates with their keys, and how strict to be. Loads OpenSSL.
    #
    # Only TLS 1.2 and 1.3 are spoken, with forward secrecy and authenticated encryption. Clients say which name
    # they mean (SNI) and get the certificate that was made for it; who names none of ours gets the first.
    #
    # @example
    #   tls = Polyphony::HTTP::TLS.new(cert: 'fullchain.pem', key: 'privkey.pem')
    #   Polyphony::HTTP::Server.new('https://[::]:443', tls: tls) { |request| … }
    #   tls.reload # when the files have changed; connections go on
    class TLS
      # What +verify+ may be.
      VERIFY = [nil, false, :optional, :required, true].freeze
      # What +min_version+ may be.
      VERSIONS = { '1.2' => :TLS1_2, '1.3' => :TLS1_3 }.freeze
      private_constant :VERIFY, :VERSIONS

      class << self
        # @param value [TLS, Hash, Symbol, true] +:self_signed+ and true: see self_signed
        # @return [TLS]
        # @raise [ArgumentError] for anything else
        def for(value)
          case value
          when TLS then value
          when Hash then new(**value)
          when true, :self_signed then self_signed
          else
            raise ArgumentError, "tls must be a Polyphony::HTTP::TLS, a Hash as in { cert: 'cert.pem', key: 'key.pem' }, " \
                                 "or :self_signed, got #{kind_of(value)}"
          end
        end

        # For development: a certificate of our own for localhost and the name of this machine. It is made once, kept
        # for the user who runs this, and made anew before it expires. Browsers ask before they trust it.
        # @param options [Hash] see #initialize
        # @return [TLS]
        def self_signed(**options)
          new(certificates: [SelfSigned.new], **options)
        end

        # @return [String] what stands for it in a message: it may be a key
        # @!visibility private
        def kind_of(value)
          value.is_a?(Symbol) || value.is_a?(Numeric) ? value.inspect : value.class.to_s
        end
      end

      # @return [Boolean] whether clients that name a host we have no certificate for are turned away
      attr_reader :strict_names

      # A certificate and a key are PEM: the path of a file, or its content. The certificate file may have the chain
      # behind the certificate, as Let's Encrypt's +fullchain.pem+, and the key as well.
      # @param cert [String, OpenSSL::X509::Certificate, nil]
      # @param key [String, OpenSSL::PKey::PKey, nil] nil: it is in the file of the certificate
      # @param chain [String, Array<OpenSSL::X509::Certificate>, nil] what leads to an authority that clients know, if
      #   it is not in the file of the certificate
      # @param password [String, nil] of the key
      # @param certificates [Array<Hash>] more of them: each with cert, key, chain, password
      # @param strict_names [Boolean] whether to turn away clients that name a host none of the certificates is for
      # @param verify [Symbol, nil] +:optional+ or +:required+: clients are asked for certificates
      # @param ca [String, nil] file or folder with the authorities that client certificates may come from
      # @param min_version [String] +1.2+ or +1.3+
      # @param ciphers [String, nil] for TLS 1.2, as OpenSSL names them; nil: those with forward secrecy and AEAD
      # @param allow_expired [Boolean] whether a certificate may be used that is not valid now
      # @param http2 [Boolean] whether HTTP/2 is offered
      # @raise [TLS::Error] for files that cannot be used; it says which and why
      # @raise [ArgumentError]
      def initialize(cert: nil, key: nil, chain: nil, password: nil, certificates: [], strict_names: false,
                     verify: nil, ca: nil, min_version: '1.2', ciphers: nil, allow_expired: false, http2: HTTP.http2?)
        first = cert || key ? [{ cert: cert, key: key, chain: chain, password: password }] : []
        @sources = (first + Array(certificates)).map { |source| Source.for(source) }
        raise ArgumentError, "TLS needs a certificate: cert: 'cert.pem', key: 'key.pem'" if @sources.empty?

        @strict_names = strict_names
        @allow_expired = allow_expired
        check_settings(verify, ca, min_version)
        @settings = { verify: verify, ca: ca, min_version: VERSIONS.fetch(min_version.to_s), ciphers: ciphers,
                      http2: http2 && HTTP.http2? }
        reload
      end

      # Reads the files again. New connections get the new certificates; those that are open go on. If a file cannot be
      # used, everything stays as it was.
      # @return [self]
      # @raise [TLS::Error]
      def reload
        certificates = @sources.map { |source| source.load(allow_expired: @allow_expired) }
        @contexts = Contexts.new(certificates, @settings, strict: @strict_names)
        @certificates = certificates
        self
      end

      # @return [Boolean] whether a file has changed since it was read
      def changed?
        @sources.any?(&:changed?)
      end

      # @return [OpenSSL::SSL::SSLContext] for new connections
      # @!visibility private
      def context
        @contexts.front
      end

      # @return [Array<String>] what the certificates are for, the first certificate's names first
      def names
        @certificates.flat_map(&:names).uniq
      end

      # @return [Time] when the first of the certificates expires
      def expires_at
        @certificates.map(&:not_after).min
      end

      # @return [Array<String>] what whoever starts the server should know
      def notes
        @sources.flat_map(&:notes)
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{names.join(', ')}>"
      end

      private

      def check_settings(verify, ca, min_version)
        raise ArgumentError, "verify must be :optional or :required, got #{verify.inspect}" unless VERIFY.include?(verify)
        raise ArgumentError, 'verify needs ca: a file or folder with the authorities to trust' if verify && !ca
        raise ArgumentError, 'ca does nothing without verify: :optional or :required' if ca && !verify
        return if VERSIONS.key?(min_version.to_s)

        raise ArgumentError, "min_version must be '1.2' or '1.3', got #{min_version.inspect}; older ones are broken"
      end
    end
  end
end
