# frozen_string_literal: true

require 'socket'

module Polyphony
  # Since Ruby 3.4, TCPSocket.new tries several addresses at once (Happy Eyeballs), and waits for them in a
  # way that stops the whole thread. Socket.tcp does the same in Ruby, with what the scheduler knows of.
  # @!visibility private
  module TCPSocketExtensions
    STOCK_IO = ::IO.instance_method(:initialize)

    private

    def initialize(host = nil, port = nil, *local, **options)
      fast = options.fetch(:fast_fallback) { ::Socket.tcp_fast_fallback }
      return super if !fast || !TCPSocketExtensions.waits? || TCPSocketExtensions.number?(host)

      __polyphony_adopt(TCPSocketExtensions.connect(host, port, local, options))
    end

    # Takes over its descriptor. Nothing here waits.
    def __polyphony_adopt(socket)
      socket.autoclose = false
      STOCK_IO.bind_call(self, socket.fileno, 'r+b')
      self.sync = true
      self.do_not_reverse_lookup = ::BasicSocket.do_not_reverse_lookup
    end

    class << self
      # Whether others could run meanwhile.
      def waits?
        Fiber.current_scheduler.is_a?(Scheduler) || StandIn.wanted?
      end

      # There is one address only.
      def number?(host)
        host.nil? || !::Addrinfo.getaddrinfo(host, nil, nil, :STREAM, nil, ::Socket::AI_NUMERICHOST).empty?
      rescue ::SocketError
        false
      end

      # With a local address Ruby 3.4 cannot try several at once: "unknown socket domain: ipv4".
      # @raise [SystemCallError] with the text of TCPSocket.new
      def connect(host, port, local, options)
        options = { **options, fast_fallback: false } if local.any?
        ::Socket.tcp(host, port, *local, **options)
      rescue SystemCallError => e
        raise e.class, "connect(2) for #{host.inspect} port #{port}", cause: nil
      end
    end
  end

  private_constant :TCPSocketExtensions
  ::TCPSocket.prepend TCPSocketExtensions if ::Socket.respond_to?(:tcp_fast_fallback)
end
