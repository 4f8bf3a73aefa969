# frozen_string_literal: true

require 'socket'

# Stock methods of sockets in fibers: the way they take, and the longer one through the hooks of Ruby's
# scheduler, for which the methods are taken before Polyphony puts its own in front of them.
module Bench
  module Sockets
    HOOKED = {
      recv: BasicSocket.instance_method(:recv), send: BasicSocket.instance_method(:send),
      accept: TCPServer.instance_method(:accept)
    }.freeze

    OURS = { recv: ->(s) { s.recv(64) }, send: ->(s, text) { s.send(text, 0) }, accept: ->(s) { s.accept } }.freeze
    LONG = { recv: ->(s) { HOOKED[:recv].bind_call(s, 64) }, accept: ->(s) { HOOKED[:accept].bind_call(s) },
             send: ->(s, text) { HOOKED[:send].bind_call(s, text, 0) } }.freeze

    module_function

    # Two fibers that answer each other; each has to wait each time.
    def ping_pong(worker, rounds, way)
      left, right = UNIXSocket.pair
      worker.measure(rounds) do
        echo = spin { rounds.times { way[:send].call(right, way[:recv].call(right)) } }
        spin { rounds.times { way[:send].call(left, 'hello'); way[:recv].call(left) } }.await
        echo.await
      end
    end

    # The other end is a fiber, too, and is closed at once.
    def accept(worker, count, way)
      server = TCPServer.new('127.0.0.1', 0)
      address = server.local_address
      worker.measure(count) do
        clients = spin { count.times { connect(address).close; snooze } }
        spin { count.times { way[:accept].call(server).close } }.await
        clients.await
      end
    end

    def connect(address)
      Socket.new(:INET, :STREAM).tap { |socket| socket.connect_nonblock(address, exception: false) }
    end
  end

  { '' => Sockets::OURS, '_hooks' => Sockets::LONG }.each do |suffix, way|
    note = suffix.empty? ? '' : ', through hooks'

    row "socket_ping_pong#{suffix}" do
      title "send and recv, there and back#{note}"
      metric :ns, 'ns'

      limit('stock, without waiting', 50_000) do |n|
        left, right = UNIXSocket.pair
        measure(n) { n.times { left.send('hello', 0); right.send(right.recv(64), 0); left.recv(64) } }
      end

      polyphony(30_000) { |n| Sockets.ping_pong(self, n, way) }
    end

    row "socket_accept#{suffix}" do
      title "accept, with connect and close#{note}"
      metric :ns, 'ns'

      limit('stock, without waiting', 5_000) do |n|
        server = TCPServer.new('127.0.0.1', 0)
        address = server.local_address
        measure(n) { n.times { Sockets.connect(address).close; server.accept.close } }
      end

      polyphony(5_000) { |n| Sockets.accept(self, n, way) }
    end
  end
end
