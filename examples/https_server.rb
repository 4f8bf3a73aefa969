# frozen_string_literal: true

# A web server with TLS: two names, two certificates, and a new one in the middle of it all. The client that is
# connected does not notice.
#   ruby -Ilib examples/https_server.rb
require 'polyphony/http'
require 'net/http'
require 'openssl'
require 'tmpdir'

def make(folder, name, days)
  key = OpenSSL::PKey::EC.generate('prime256v1')
  cert = OpenSSL::X509::Certificate.new
  cert.serial = days
  cert.subject = cert.issuer = OpenSSL::X509::Name.parse("/CN=#{name}")
  cert.public_key = key
  cert.not_before = Time.now - 60
  cert.not_after = Time.now + (days * 86_400)
  cert.sign(key, 'SHA256')
  File.write("#{folder}/#{name}.pem", cert.to_pem + key.to_pem, perm: 0o600)
  { cert: "#{folder}/#{name}.pem" }
end

def connect(name, port)
  http = Net::HTTP.new(name, port)
  http.ipaddr = '127.0.0.1'
  http.use_ssl = true
  http.verify_mode = OpenSSL::SSL::VERIFY_NONE # they are signed by nobody
  http.start
end

Dir.mktmpdir do |folder|
  certificates = %w[one.test two.test].map { |name| make(folder, name, 10) }
  server = Polyphony::HTTP::Server.new('https://127.0.0.1:0', tls: { certificates: certificates }) do |request|
    request.respond("#{request.scheme}://#{request.host[/[^:]+/]}#{request.path}")
  end
  server.start

  clients = %w[one.test two.test].to_h { |name| [name, connect(name, server.port)] }
  clients.each { |name, http| puts "#{name}: #{http.peer_cert.subject} says #{http.get('/').body}" }

  make(folder, 'one.test', 90)
  server.listeners.first.tls.reload
  old = clients['one.test']
  new = connect('one.test', server.port)
  puts "still connected: #{old.get('/again').body}"
  puts "certificate #{old.peer_cert.serial}, for new connections #{new.peer_cert.serial}"
  [*clients.values, new].each(&:finish)
  server.stop
end
