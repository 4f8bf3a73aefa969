# frozen_string_literal: true

module Polyphony
  module HTTP
    class TLS
      # A certificate with its key and its chain, and which names it is for.
      # @api private
      class Certificate
        # @return [OpenSSL::X509::Certificate]
        attr_reader :cert
        # @return [OpenSSL::PKey::PKey]
        attr_reader :key
        # @return [Array<OpenSSL::X509::Certificate>]
        attr_reader :chain
        # @return [Array<String>] lower case, without a dot at the end
        attr_reader :names

        # @param cert [OpenSSL::X509::Certificate]
        def initialize(cert, key, chain)
          @cert = cert
          @key = key
          @chain = chain
          @names = names_of(cert).map { |name| name.downcase.chomp('.') }.uniq
        end

        # @return [Time]
        def not_after
          @cert.not_after
        end

        # @return [Symbol, String] certificates of several kinds may be for the same name
        def kind
          @key.oid
        end

        private

        # The common name counts only if there are no others (RFC 6125).
        def names_of(cert)
          extension = cert.extensions.find { |candidate| candidate.oid == 'subjectAltName' }
          names = extension ? extension.value.scan(/DNS:([^,\s]+)/).flatten : []
          return names unless names.empty?

          cert.subject.to_a.select { |name, _| name == 'CN' }.map { |_, value| value }
        end
      end

      # Where a certificate comes from: files, mostly. Knows when they were read.
      # @api private
      class Source
        PEM = /-----BEGIN [A-Z0-9 ]+-----/.freeze
        OPTIONS = %i[cert key chain password].freeze
        private_constant :PEM, :OPTIONS

        # @param value [Hash, SelfSigned]
        def self.for(value)
          return value if value.is_a?(SelfSigned)
          raise ArgumentError, "a certificate must be a Hash with cert: and key:, got #{TLS.kind_of(value)}" unless value.is_a?(Hash)

          unknown = value.keys - OPTIONS
          raise ArgumentError, "no such option of a certificate: #{unknown.first.inspect}" unless unknown.empty?

          new(**value)
        end

        # @return [Array<String>]
        attr_reader :notes

        def initialize(cert: nil, key: nil, chain: nil, password: nil)
          raise ArgumentError, "a key without its certificate: say cert: 'cert.pem', too" unless cert

          @cert = cert
          @key = key
          @chain = chain
          @password = password
          @notes = []
          @seen = {}
        end

        # @return [Certificate]
        # @raise [TLS::Error]
        def load(allow_expired:)
          @notes = []
          @seen = {}
          cert, *chain = certificates(@cert, 'certificate')
          chain += certificates(@chain, 'chain') if @chain
          key = private_key
          check_key(cert, key)
          check_validity(cert) unless allow_expired
          Certificate.new(cert, key, chain)
        end

        # Without what is secret.
        # @return [String]
        def inspect
          "#<#{self.class} #{name_of(@cert)}>"
        end

        # @return [Boolean]
        def changed?
          @seen.any? { |path, stamp| stamp_of(path) != stamp }
        end

        private

        def path?(value)
          (value.is_a?(String) && !value.match?(PEM)) || value.respond_to?(:to_path)
        end

        def name_of(value)
          path?(value) ? value.to_s : '(given as text)'
        end

        def certificates(value, what)
          return [value] if value.is_a?(::OpenSSL::X509::Certificate)
          return value if value.is_a?(Array)

          found = blocks(content(value, what), /CERTIFICATE/).map { |pem| ::OpenSSL::X509::Certificate.new(pem) }
          return found unless found.empty?

          fail_with "no certificate in #{name_of(value)}: a PEM file with -----BEGIN CERTIFICATE----- is wanted " \
                    '(openssl x509 -inform der makes one of a DER file)'
        rescue ::OpenSSL::X509::CertificateError => e
          fail_with "#{name_of(value)} has a certificate that cannot be read: #{e.message}"
        end

        def private_key
          return @key if @key.is_a?(::OpenSSL::PKey::PKey)

          source = @key || @cert
          text = content(source, 'private key')
          look_at_permissions(source) if path?(source)
          key = ::OpenSSL::PKey.read(text, @password || '')
          key.private? ? key : no_private_key(source, text)
        rescue ::OpenSSL::PKey::PKeyError
          no_private_key(source, text)
        end

        def no_private_key(source, text)
          fail_with "no private key to be read in #{name_of(source)}: a PEM file with -----BEGIN PRIVATE KEY----- is " \
                    "wanted#{', and password: if it is encrypted' if text&.include?('ENCRYPTED')}" \
                    "#{"; key: names it, if it is not in the certificate's file" unless @key}"
        end

        def blocks(text, kind)
          text.scan(/-----BEGIN [A-Z0-9 ]*?#{kind}-----.*?-----END [A-Z0-9 ]*?#{kind}-----/m)
        end

        def content(value, what)
          return value unless path?(value)

          path = ::File.expand_path(value)
          @seen[path] = stamp_of(path)
          ::File.binread(path)
        rescue ::Errno::ENOENT
          fail_with "there is no #{what} at #{path}: the path is relative to #{::Dir.pwd}, unless it begins with /"
        rescue ::Errno::EACCES
          fail_with "the #{what} #{path} may not be read by #{user}: chown or chmod it, or start the server as a user who may"
        rescue ::SystemCallError => e
          fail_with "the #{what} #{path} cannot be read: #{e.class.new.message}"
        end

        def user
          "user #{::Process.euid}"
        end

        def stamp_of(path)
          stat = ::File.stat(path)
          [stat.mtime, stat.size, stat.ino]
        rescue ::SystemCallError
          nil
        end

        def check_key(cert, key)
          return if cert.check_private_key(key)

          fail_with "the key #{name_of(@key || @cert)} does not belong to the first certificate of #{name_of(@cert)} " \
                    "(#{cert.subject}): the server's own certificate comes first, the chain behind it"
        rescue ::OpenSSL::PKey::PKeyError => e
          fail_with "the key #{name_of(@key || @cert)} is of no use for #{name_of(@cert)}: #{e.message}"
        end

        def check_validity(cert)
          now = ::Time.now
          if cert.not_after < now
            fail_with "the certificate #{name_of(@cert)} (#{cert.subject}) expired at #{cert.not_after}: renew it, or say " \
                      'allow_expired: true'
          elsif cert.not_before > now
            fail_with "the certificate #{name_of(@cert)} (#{cert.subject}) is valid from #{cert.not_before} on, which is to " \
                      'come: look at the clock of this machine, or say allow_expired: true'
          end
        end

        # A group that reads keys is usual (ssl-cert); others that do are a mistake.
        def look_at_permissions(path)
          mode = ::File.stat(path).mode & 0o777
          return if (mode & 0o027).zero?

          @notes << format('the private key %<path>s can be read or changed by others (mode %<mode>04o): chmod 600 %<path>s',
                           path: path, mode: mode)
        end

        def fail_with(message)
          raise Error, message
        end
      end
      private_constant :Certificate, :Source
    end
  end
end
