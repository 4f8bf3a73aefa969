# frozen_string_literal: true

# A chat server: every line that somebody writes goes to everybody, and a clock ticks for all.
# ruby -Ilib examples/chat_server.rb [port], then, in other terminals: nc localhost 7000
require 'polyphony'
require 'socket'

class ChatServer
  GONE = [Errno::EPIPE, Errno::ECONNRESET, IOError].freeze
  attr_reader :port

  def initialize(port = 0, tick: 5)
    @server = TCPServer.new('127.0.0.1', port)
    @port = @server.local_address.ip_port
    @tick = tick
    @names = {}.compare_by_identity # socket => name
  end

  def run
    ticks = 0
    spin(:clock) { every(@tick) { say "* tick #{ticks += 1}, #{@names.size} here" } }
    Polyphony.backend_accept_loop(@server, TCPSocket) { |socket| spin(:client) { serve(socket) } }
  end

  private

  # One fiber per client. The code reads as if it had the machine to itself.
  def serve(socket)
    name = @names[socket] = "guest#{socket.remote_address.ip_port}"
    say "* #{name} is here"
    each_line(socket) { |line| say "#{name}: #{line}" }
  rescue *GONE # the clean-up says it
  ensure
    @names.delete(socket)
    socket.close
    say "* #{name} has left"
  end

  def each_line(socket, rest = +'')
    Polyphony.backend_read_loop(socket, 8192) do |data|
      *lines, rest = (rest << data).split("\n", -1)
      lines.each { |line| yield line.scrub }
    end
  end

  def say(text)
    @names.keys.each do |socket|
      Polyphony.backend_write(socket, "#{text}\n")
    rescue *GONE
      next # its own fiber sees it too
    end
  end
end

if $PROGRAM_NAME == __FILE__
  chat = ChatServer.new(Integer(ARGV.fetch(0, 7000)))
  puts "listening on 127.0.0.1:#{chat.port}, driver #{Thread.current.backend.kind}"
  chat.run
end
