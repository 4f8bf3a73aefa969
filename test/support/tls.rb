# frozen_string_literal: true

require 'openssl'

module Polyphony
  # An authority, and certificates signed by it, made when first asked for. Nothing is read from files.
  module TLS
    HOUR = 3600
    @serial = 0

    Identity = Struct.new(:cert, :key)

    class << self
      def authority
        @authority ||= issue('test authority', ca: true)
      end

      # @return [Identity] for these host names, or addresses
      def identity(*names)
        (@identities ||= {})[names] ||= issue(names.first, names: names, issuer: authority)
      end

      # @return [OpenSSL::X509::Store] which trusts the authority
      def store
        OpenSSL::X509::Store.new.tap { |store| store.add_cert(authority.cert) }
      end

      # @return [OpenSSL::SSL::SSLContext] of a server; the block may change it
      def server(*names, version: nil)
        context = OpenSSL::SSL::SSLContext.new
        identity = identity(*(names.empty? ? %w[localhost 127.0.0.1] : names))
        context.cert = identity.cert
        context.key = identity.key
        limit(context, version)
        yield context if block_given?
        context
      end

      # @return [OpenSSL::SSL::SSLContext] of a client that verifies
      def client(version: nil)
        context = OpenSSL::SSL::SSLContext.new
        context.cert_store = store
        context.verify_mode = OpenSSL::SSL::VERIFY_PEER
        limit(context, version)
        yield context if block_given?
        context
      end

      # Two ends of a connection, over which nothing was said yet.
      # @return [Array(OpenSSL::SSL::SSLSocket, OpenSSL::SSL::SSLSocket)] client and server
      def wrap(client, server, client_context: self.client, server_context: self.server)
        [OpenSSL::SSL::SSLSocket.new(client, client_context),
         OpenSSL::SSL::SSLSocket.new(server, server_context)].each { |socket| socket.sync_close = true }
      end

      private

      def limit(context, version)
        context.min_version = context.max_version = version if version
      end

      def issue(name, names: [], issuer: nil, ca: false)
        key = OpenSSL::PKey::EC.generate('prime256v1')
        cert = OpenSSL::X509::Certificate.new
        cert.version = 2
        cert.serial = @serial += 1
        cert.subject = OpenSSL::X509::Name.new([['CN', name]])
        cert.issuer = issuer ? issuer.cert.subject : cert.subject
        cert.public_key = key
        cert.not_before = Time.now - HOUR
        cert.not_after = Time.now + HOUR
        extend_cert(cert, issuer, names, ca)
        cert.sign(issuer ? issuer.key : key, 'SHA256')
        Identity.new(cert, key)
      end

      def extend_cert(cert, issuer, names, ca)
        factory = OpenSSL::X509::ExtensionFactory.new(issuer ? issuer.cert : cert, cert)
        cert.add_extension(factory.create_extension('basicConstraints', "CA:#{ca.to_s.upcase}", true))
        cert.add_extension(factory.create_extension('subjectKeyIdentifier', 'hash'))
        return if names.empty?

        kinds = names.map { |one| one.match?(/\A[\d.]+\z/) ? "IP:#{one}" : "DNS:#{one}" }
        cert.add_extension(factory.create_extension('subjectAltName', kinds.join(',')))
      end
    end
  end
end
