# frozen_string_literal: true

require 'openssl'
require 'tmpdir'

module Polyphony
  # Certificates for tests: signed by an authority of their own, or by themselves.
  module Certificates
    module_function

    # @param names [Array<String>] what it is for
    # @param from [Array(OpenSSL::X509::Certificate, OpenSSL::PKey::PKey), nil] who signs it
    # @return [Array(OpenSSL::X509::Certificate, OpenSSL::PKey::PKey)]
    def certificate(*names, from: nil, authority: false, key: new_key, from_time: Time.now - 60, till: Time.now + 3600)
      cert = OpenSSL::X509::Certificate.new
      cert.version = 2
      cert.serial = OpenSSL::BN.rand(64)
      cert.subject = OpenSSL::X509::Name.new([['CN', names.first]])
      cert.issuer = from ? from.first.subject : cert.subject
      cert.public_key = key
      cert.not_before = from_time
      cert.not_after = till
      extend_certificate(cert, names, from, authority)
      [cert.sign(from ? from.last : key, 'SHA256'), key]
    end

    def new_key(kind = :ec)
      kind == :rsa ? OpenSSL::PKey::RSA.new(2048) : OpenSSL::PKey::EC.generate('prime256v1')
    end

    def extend_certificate(cert, names, from, authority)
      factory = OpenSSL::X509::ExtensionFactory.new(from ? from.first : cert, cert)
      cert.add_extension(factory.create_extension('basicConstraints', authority ? 'CA:TRUE' : 'CA:FALSE', true))
      return if authority

      alternatives = names.map { |name| name.match?(/\A[\d.]+\z/) ? "IP:#{name}" : "DNS:#{name}" }
      cert.add_extension(factory.create_extension('subjectAltName', alternatives.join(',')))
    end

    # Writes them as files.
    # @return [Array(String, String)] the paths of certificate and key
    def write_pair(folder, name, pair, chain: [])
      paths = %w[crt key].map { |kind| File.join(folder, "#{name}.#{kind}") }
      File.write(paths.first, [pair.first, *chain].map(&:to_pem).join)
      File.write(paths.last, pair.last.to_pem, perm: 0o600)
      File.chmod(0o600, paths.last)
      paths
    end
  end
end
