# frozen_string_literal: true

# A time service over UDP, asked by ten clients at once. Every other question is lost on its way, so each
# client gives up after a while and asks again.
#   ruby -Ilib examples/datagrams.rb
require 'polyphony'

service = UDPSocket.new
service.bind('127.0.0.1', 0)

asked = 0
spin(:service) do
  loop do
    question, from = service.recvfrom(100)
    service.send("#{question}: it is late", 0, from[3], from[1]) if (asked += 1).even?
  end
end

clients = Array.new(10) do |i|
  spin do
    socket = UDPSocket.new
    socket.connect('127.0.0.1', service.addr[1])
    begin
      socket.send("client #{i}", 0)
      answer = move_on_after(0.02) { socket.recv(100) }
    end until answer
    answer
  ensure
    socket.close
  end
end

puts Fiber.await(clients)
puts "asked at least twice on average: #{asked >= 2 * clients.size - 1}"
