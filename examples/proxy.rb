# frozen_string_literal: true

# A TCP proxy: what a client says goes to a server behind, the answer back, both by splicing, so the
# bytes never come into Ruby. Linux only.
#   ruby -Ilib examples/proxy.rb
require 'polyphony'
require 'socket'

def serve(server)
  spin do
    Polyphony.backend_accept_loop(server, TCPSocket) do |socket|
      spin do
        yield socket
      ensure
        socket.close
      end
    end
  end
end

def connect(server)
  socket = Socket.new(:INET, :STREAM)
  Polyphony.backend_connect(socket, '127.0.0.1', server.local_address.ip_port)
  socket
end

behind = TCPServer.new('127.0.0.1', 0)
serve(behind) do |socket|
  Polyphony.backend_read_loop(socket, 8192) { |data| Polyphony.backend_write(socket, data.upcase) }
end

front = TCPServer.new('127.0.0.1', 0)
serve(front) do |client|
  upstream = connect(behind)
  back = spin { Polyphony.backend_double_splice(upstream, client) }
  there = Polyphony.backend_double_splice(client, upstream)
  upstream.shutdown(:WR) # the client has said everything; the answer may still be on its way
  puts "proxy: #{there} bytes there, #{back.await} back"
ensure
  upstream&.close
end

client = connect(front)
Polyphony.backend_write(client, 'through the proxy')
client.shutdown(:WR)
puts "client: #{Polyphony.backend_read(client, nil, nil, true, 0)}"
client.close
