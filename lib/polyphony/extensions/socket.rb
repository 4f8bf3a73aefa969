# frozen_string_literal: true

require 'socket'
require 'polyphony/extensions/tcp_socket'

module Polyphony
  # Which stock methods of sockets may wait, beside those in stand_ins.rb. accept has a way of its own.
  StandIn.for ::BasicSocket, :recv, :send, :__recvmsg, :__sendmsg, :close_read, :close_write
  StandIn.for ::IPSocket, :recvfrom
  StandIn.for ::TCPSocket, :initialize
  StandIn.for ::TCPServer, :initialize
  StandIn.for ::UDPSocket, :connect, :bind, :send
  StandIn.for ::UNIXSocket, :recvfrom, :send_io, :recv_io
  StandIn.for ::Socket, :connect, :recvfrom

  # Stock methods with a way of their own to the backend. In C.
  # @!visibility private
  module DirectSockets
    ::BasicSocket.prepend Basic
    [::IPSocket, ::UNIXSocket, ::Socket].each { |socket| socket.prepend From }
    [::UDPSocket, ::Socket].each { |socket| socket.prepend FromNonblock }
    %i[UDPSocket TCPServer UNIXSocket UNIXServer Socket].each do |name|
      ::Object.const_get(name).prepend const_get(name)
    end

    # Since Ruby 3.3 it is nil.
    ::UNIXSocket.pair do |left, right|
      left.close
      self.__end_of_stream = right.recv(1)
    end
  end
  private_constant :DirectSockets

  # What sockets have beside the stock methods, none of which it replaces.
  module SocketExtensions
    # For every socket, and for TLS sockets, which hand them on to theirs.
    module Options
      # Closing returns at once, and what is not sent yet is sent by the kernel: as it is without
      # SO_LINGER.
      # @return [self]
      def dont_linger
        setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_LINGER, ::Socket::ZERO_LINGER)
        self
      end

      # Small writes go out at once (TCP_NODELAY).
      # @return [self]
      # @raise [Errno::EOPNOTSUPP] if it is no TCP socket
      def no_delay
        setsockopt(::Socket::IPPROTO_TCP, ::Socket::TCP_NODELAY, 1)
        self
      end

      # An address can be bound again while old connections fade away (SO_REUSEADDR).
      # @return [self]
      def reuse_addr
        setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_REUSEADDR, 1)
        self
      end

      # Several sockets, of several processes for instance, can be bound to one address (SO_REUSEPORT).
      # @return [self]
      def reuse_port
        setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_REUSEPORT, 1)
        self
      end
    end

    # Which operations of the backend are theirs.
    # @!visibility private
    module Operations
      # @!visibility private
      def __read_method__
        :backend_recv
      end

      # @!visibility private
      def __write_method__
        :backend_send
      end
    end

    # For sockets whose bytes are a stream.
    module Stream
      # Receives until the other side closes.
      # @param maxlen [Integer] bytes at a time, at most
      # @yield [data] each chunk as it comes, a String of its own
      # @return [self]
      def recv_loop(maxlen = 8192, &block)
        Polyphony.backend_recv_loop(self, maxlen, &block)
      end
      alias read_loop recv_loop

      # Receives until the other side closes, and calls a method with each chunk.
      # @param receiver [Object] a parser, or anything that has the method
      # @param method [Symbol]
      # @yield handed on to the method
      # @return [self]
      def feed_loop(receiver, method = :call, &block)
        Polyphony.backend_recv_feed_loop(self, receiver, method, &block)
      end
    end

    # For sockets that listen.
    module Listener
      # Accepts for ever. The next connection is accepted when the block has returned, so the block usually
      # spins a fiber. Short of descriptors, it warns, pauses, and goes on when some are free.
      # @yield [socket] a TCPSocket, UNIXSocket or Socket
      # @raise [IOError] when the listener is closed
      def accept_loop(&block)
        klass = LISTENERS.find { |listener, _| is_a?(listener) }.last
        Polyphony.backend_accept_loop(self, klass, &block)
      end

      LISTENERS = { ::TCPServer => ::TCPSocket, ::UNIXServer => ::UNIXSocket, ::Socket => ::Socket }.freeze
      private_constant :LISTENERS
    end

    ::BasicSocket.include Options, Operations
    [::Socket, ::TCPSocket, ::UNIXSocket].each { |socket| socket.include Stream }
    [::Socket, ::TCPServer, ::UNIXServer].each { |socket| socket.include Listener }

    # For SO_LINGER: off.
    ::Socket.const_set(:ZERO_LINGER, [0, 0].pack('ii').freeze)
  end
end
