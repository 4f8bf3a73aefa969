# frozen_string_literal: true

# An echo server and three clients, each a fiber, in one process, in plain Ruby. One sees each client's
# words come back, in the order in which the clients speak.
#   ruby -Ilib examples/echo_server.rb
require 'polyphony'

server = TCPServer.new('127.0.0.1', 0)

echo = spin(:server) do
  loop do
    socket = server.accept
    spin(:connection) do
      while (line = socket.gets)
        socket.puts line
      end
    ensure
      socket.close
    end
  end
end

clients = %w[one two three].each_with_index.map do |word, i|
  spin(:client) do
    socket = TCPSocket.new('127.0.0.1', server.addr[1])
    sleep i * 0.05
    socket.puts word
    puts "#{word} -> #{socket.gets}"
  ensure
    socket.close
  end
end

Fiber.await(clients)
echo.stop
echo.await
server.close
puts 'done'
