# frozen_string_literal: true

# A WebSocket server and its clients in one process: an echo, and a room whose members all hear what
# one of them says.
#   ruby -Ilib examples/websocket_echo.rb
require 'polyphony/http'

room = []
server = Polyphony::HTTP::Server.new('http://127.0.0.1:0') do |request|
  if request.path == '/echo'
    request.upgrade_to_websocket { |ws| ws.each { |message| ws << message } }
  else
    request.upgrade_to_websocket(protocols: %w[chat]) do |ws|
      room << ws
      ws.each { |message| Polyphony::HTTP::WebSocket.broadcast(room, message) }
    ensure
      room.delete(ws)
    end
  end
end
server.start
url = "ws://127.0.0.1:#{server.port}"

Polyphony::HTTP::WebSocket.connect("#{url}/echo") do |ws|
  ws << 'grüße' << "\x00\xff".b
  puts "text:   #{ws.receive}", "binary: #{ws.receive.inspect}"
  puts "compressed: #{ws.compressed?}"
end

members = %w[ann bob cid].map { |name| [name, Polyphony::HTTP::WebSocket.connect("#{url}/room", protocols: %w[chat])] }
snooze until room.size == 3
members.first.last << 'ann says hello'
members.each { |name, ws| puts "#{name} heard: #{ws.receive}" }

listeners = members.map { |name, ws| spin { ws.each { nil } && puts("#{name} left with #{ws.close_code}") } }
server.stop # says good-bye to all of them
Fiber.await(listeners)
puts "in the room: #{room.size}"
