# frozen_string_literal: true

# Twelve pages, fetched at once with Net::HTTP from a server with TLS whose answers take 50 ms. One page takes too
# long and is given up. A client that connects and says nothing holds up nobody.
#   ruby -Ilib examples/https_pages.rb
require 'polyphony'
require 'net/http'
require 'openssl'

KEY = OpenSSL::PKey::EC.generate('prime256v1')
CERT = OpenSSL::X509::Certificate.new.tap do |cert|
  cert.serial = 1
  cert.subject = cert.issuer = OpenSSL::X509::Name.parse('/CN=localhost')
  cert.public_key = KEY
  cert.not_before, cert.not_after = Time.now - 60, Time.now + 3600
  cert.sign(KEY, 'SHA256')
end

$waiting = $most = 0

def serve(socket)
  while (line = socket.gets)
    nil until socket.gets == "\r\n"
    path = line.split[1]
    $most = [$most, $waiting += 1].max
    sleep(path == '/7' ? 60 : 0.05)
    $waiting -= 1
    body = "this is #{path}"
    socket << "HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\n\r\n#{body}"
  end
ensure
  socket.close
end

listener = TCPServer.new('127.0.0.1', 0)
port = listener.local_address.ip_port
context = OpenSSL::SSL::SSLContext.new
context.cert = CERT
context.key = KEY
spin { OpenSSL::SSL::SSLServer.new(listener, context).accept_loop { |socket| spin { serve(socket) } } }

silent = TCPSocket.new('127.0.0.1', port)
store = OpenSSL::X509::Store.new
store.add_cert(CERT)
pages = Array.new(12) do |number|
  spin do
    move_on_after(1) do
      Net::HTTP.start('localhost', port, ipaddr: '127.0.0.1', use_ssl: true, cert_store: store) do |http|
        http.get("/#{number}").body
      end
    end
  end
end
pages = Fiber.await(*pages)

puts pages.compact
puts "given up: #{pages.count(nil)}"
puts "most at a time: #{$most}"
silent.close
