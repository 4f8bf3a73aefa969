# frozen_string_literal: true

require 'socket'

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
    [:UDPSocket, :TCPServer, :UNIXSocket, :UNIXServer, :Socket].each do |name|
      ::Object.const_get(name).prepend const_get(name)
    end

    # Since Ruby 3.3 it is nil.
    ::UNIXSocket.pair do |left, right|
      left.close
      self.__end_of_stream = right.recv(1)
    end
  end
  private_constant :DirectSockets
end
