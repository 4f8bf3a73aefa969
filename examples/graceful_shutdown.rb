# frozen_string_literal: true

# A server that is told to stop by TERM: it takes no more connections, lets those finish that are being served, cuts off what
# takes too long, saves what it has counted, and ends with status 0. Here it is a child, and gets its signal from its parent.
#   ruby -Ilib examples/graceful_shutdown.rb
require 'polyphony'
require 'socket'

# Serves lines until it is told to stop, then for +grace+ seconds more.
def serve(listener, grace:)
  stop = Polyphony::Event.new
  trap('TERM') { stop.signal }
  served = 0
  connections = spin(:connections) { suspend }
  acceptor = spin(:accept) do
    listener.accept_loop do |socket|
      connections.spin do
        answer(socket)
        served += 1
      end
    end
  end

  stop.await
  acceptor.stop
  listener.close
  puts "stopping: #{connections.children.size} connections"
  cut = move_on_after(grace) { connections.await_all_children && 0 } || connections.children.size
  connections.stop
  connections.await
  puts "served #{served}, cut off #{cut}"
end

def answer(socket)
  seconds = socket.gets
  socket.puts 'working'
  sleep seconds.to_f
  socket.puts 'done'
ensure
  socket.close
end

listener = TCPServer.new('127.0.0.1', 0)
$stdout.sync = true
child = Polyphony.fork { serve(listener, grace: 1) }
port = listener.local_address.ip_port
listener.close

clients = [0.2, 0.3, 3600].map do |seconds|
  TCPSocket.new('127.0.0.1', port).tap do |socket|
    socket.puts seconds
    socket.gets # it is being served
  end
end
Process.kill('TERM', child)
clients.each { |socket| puts "client: #{socket.gets&.chomp || 'connection closed'}" }
Process.wait(child)
puts "status #{$?.exitstatus}"
