# frozen_string_literal: true

# The chat server and somebody to talk to it, in one process: the keyboard where there is one, else
# two clients who say a few lines. ruby -Ilib examples/chat_demo.rb; bin/demo has one for the browser.

require_relative 'chat_server'

# Shows what the server sends until it closes.
def listen(name, socket)
  Polyphony.backend_read_loop(socket, 8192) do |data|
    data.each_line { |line| puts "#{name}  #{line}" }
  end
end

def talk(name, port, lines, pause)
  socket = TCPSocket.new('127.0.0.1', port)
  listener = spin(:listener) { listen(name, socket) }
  lines.each do |line|
    sleep pause
    Polyphony.backend_write(socket, "#{line}\n")
  end
  sleep pause
  listener.stop
  listener.await
ensure
  socket&.close
end

def keyboard(port)
  puts 'type lines and press enter; Ctrl-D ends', "others may join: nc 127.0.0.1 #{port}"
  socket = TCPSocket.new('127.0.0.1', port)
  spin(:listener) { listen('', socket) }
  Polyphony.backend_read_loop($stdin, 8192) { |data| Polyphony.backend_write(socket, data) }
end

chat = ChatServer.new(0, tick: $stdin.tty? ? 5 : 0.5)
server = spin(:server) { chat.run }
puts "chat server on 127.0.0.1:#{chat.port}, driver #{Thread.current.backend.kind}"
if $stdin.tty?
  keyboard(chat.port)
else
  first = spin { talk('one', chat.port, ['hello', 'who is there?', 'bye'], 0.6) }
  second = spin { sleep 0.3; talk('two', chat.port, ['good morning', 'it is me'], 0.7) }
  Fiber.await(first, second)
end
server.stop
server.await
puts 'done'
