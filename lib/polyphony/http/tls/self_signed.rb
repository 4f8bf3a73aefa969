# frozen_string_literal: true

require 'fileutils'
require 'socket'

module Polyphony
  module HTTP
    class TLS
      # A certificate for development, signed by itself. It is kept in the user's folder for such things, so that a
      # browser which was told to trust it need not be told again at every start.
      # @api private
      class SelfSigned
        # How long it is valid, and how long before its end it is made anew. Short: keys that lie around on
        # developers' machines should be worth little.
        DAYS = 30
        RENEW_DAYS = 7
        DAY = 86_400
        private_constant :DAYS, :RENEW_DAYS, :DAY

        # @return [Array<String>]
        attr_reader :notes

        # @param folder [String, nil] where it is kept; nil: nowhere
        def initialize(folder = self.class.folder)
          @path = folder && ::File.join(folder, 'self-signed.pem')
          @notes = []
        end

        # @return [String, nil] as the XDG says; nil for who has no home
        def self.folder
          state = ::ENV['XDG_STATE_HOME'].to_s
          state = ::File.join(::Dir.home, '.local/state') unless state.start_with?('/')
          ::File.join(state, 'polyphony')
        rescue ::ArgumentError # there is no HOME
          nil
        end

        # @return [Certificate]
        def load(**)
          certificate = kept || make
          @notes = ["self-signed certificate for #{certificate.names.join(', ')}, for development only: " \
                    "#{@path ? "#{@path}; " : ''}clients have to be told to trust it (curl: -k or --cacert FILE)"]
          certificate
        end

        # @return [Boolean] whether it is time for another
        def changed?
          kept.nil?
        end

        private

        # @return [Certificate, nil] the one that was made before, if it will do
        def kept
          return unless @path && ours?(@path)

          pem = ::File.binread(@path)
          found = Certificate.new(::OpenSSL::X509::Certificate.new(pem), ::OpenSSL::PKey.read(pem, ''), [])
          found if good?(found)
        rescue ::SystemCallError, ::OpenSSL::X509::CertificateError, ::OpenSSL::PKey::PKeyError
          nil
        end

        def ours?(path)
          stat = ::File.stat(path)
          stat.owned? && (stat.mode & 0o077).zero?
        end

        def good?(found)
          found.cert.check_private_key(found.key) && (names - found.names).empty? &&
            found.cert.not_before < ::Time.now && found.not_after > ::Time.now + (RENEW_DAYS * DAY)
        end

        def names
          @names ||= ['localhost', ::Socket.gethostname.downcase].grep(/\A[a-z0-9][a-z0-9.-]*\z/).uniq
        end

        def make
          key = ::OpenSSL::PKey::EC.generate('prime256v1')
          cert = certificate_for(key)
          keep(cert.to_pem + key.to_pem)
          Certificate.new(cert, key, [])
        end

        def certificate_for(key)
          cert = ::OpenSSL::X509::Certificate.new
          cert.version = 2
          cert.serial = ::OpenSSL::BN.rand(127)
          cert.subject = cert.issuer = ::OpenSSL::X509::Name.new([['CN', 'localhost'], ['O', 'Polyphony, for development']])
          cert.public_key = key
          cert.not_before = ::Time.now - 3600
          cert.not_after = ::Time.now + (DAYS * DAY)
          add_extensions(cert)
          cert.sign(key, 'SHA256')
        end

        # It signs itself and nothing else: who trusts it does not trust what its key may sign.
        def add_extensions(cert)
          factory = ::OpenSSL::X509::ExtensionFactory.new(cert, cert)
          alternatives = names.map { |name| "DNS:#{name}" } + ['DNS:*.localhost', 'IP:127.0.0.1', 'IP:::1']
          cert.add_extension(factory.create_extension('basicConstraints', 'CA:FALSE', true))
          cert.add_extension(factory.create_extension('keyUsage', 'digitalSignature', true))
          cert.add_extension(factory.create_extension('extendedKeyUsage', 'serverAuth'))
          cert.add_extension(factory.create_extension('subjectAltName', alternatives.join(',')))
        end

        # Under another name first: nobody sees half of it, and of two who do this at once the last wins. If the
        # folder cannot be written there is another certificate at each start.
        def keep(pem)
          return unless @path

          ::FileUtils.mkdir_p(::File.dirname(@path), mode: 0o700)
          scratch = "#{@path}.#{::Process.pid}"
          ::File.open(scratch, ::File::WRONLY | ::File::CREAT | ::File::TRUNC | ::File::NOFOLLOW, 0o600) { |file| file.write(pem) }
          ::File.rename(scratch, @path)
        rescue ::SystemCallError
          @path = nil
        end
      end
      private_constant :SelfSigned
    end
  end
end
