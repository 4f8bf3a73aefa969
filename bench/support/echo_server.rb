# frozen_string_literal: true

# The echo server of the echo rows: one fiber a connection. Prints its port. It sends as servers do, which wait for the next question next.

require 'polyphony'
require 'socket'

server = TCPServer.new('127.0.0.1', 0)
server.listen(1024)
$stdout.puts server.addr[1]
$stdout.flush

Polyphony.backend_accept_loop(server, TCPSocket) do |client|
  spin do
    Polyphony.backend_recv_loop(client, 8192) { |data| Polyphony.backend_send_within(client, data, 0, nil) }
  rescue SystemCallError
    nil # the load generator does not say good-bye
  ensure
    client.close
  end
end
