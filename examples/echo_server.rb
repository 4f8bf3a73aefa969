# frozen_string_literal: true

# An echo server and three clients, each a fiber, in one process. One sees each client's words come
# back, in the order in which the clients speak.
#   ruby -Ilib examples/echo_server.rb
require 'polyphony'
require 'socket'

server = TCPServer.new('127.0.0.1', 0)
port = server.local_address.ip_port

echo = spin(:server) do
  Polyphony.backend_accept_loop(server, TCPSocket) do |socket|
    spin(:connection) do
      Polyphony.backend_read_loop(socket, 8192) { |data| Polyphony.backend_write(socket, data) }
    ensure
      socket.close
    end
  end
end

clients = %w[one two three].each_with_index.map do |word, i|
  spin(:client) do
    socket = Socket.new(:INET, :STREAM)
    Polyphony.backend_connect(socket, '127.0.0.1', port)
    sleep i * 0.05
    Polyphony.backend_write(socket, word)
    puts "#{word} -> #{Polyphony.backend_read(socket, nil, 100, false, 0)}"
  ensure
    socket.close
  end
end

Fiber.await(clients)
echo.stop
echo.await
server.close
puts 'done'
