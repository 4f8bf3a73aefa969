# frozen_string_literal: true

require 'socket'

module Polyphony
  module SSLServerExtensions
    # The connections of an accept_loop on their way from the listener to the block. They are ours to close
    # until they are handed out.
    # @api private
    class Handshakes
      # What a client or the network can do to a handshake.
      ERRORS = [::OpenSSL::SSL::SSLError, ::SystemCallError, ::IOError].freeze
      # Which class stock accept makes connections of; servers of other classes are asked for each.
      SOCKETS = { ::TCPServer => ::TCPSocket, ::UNIXServer => ::UNIXSocket, ::Socket => ::Socket }.freeze

      def initialize(context, timeout:, most:, ignore_errors:)
        @context = context
        @timeout = timeout
        @ignore_errors = ignore_errors
        @places = Semaphore.new(most)
        @ready = Queue.new.__for_ourselves
        @sockets = {}.compare_by_identity # those that are ours => true
      end

      # Never returns.
      # @param at_once [Boolean] whether the handshake comes before the block
      def accept_from(server, at_once:)
        each_connection(server) do |socket|
          @sockets[socket] = true
          @places.acquire
          at_once ? spin(:handshake) { shake_hands(socket) } : @ready << wrap(socket)
        end
      end

      # Waits for a connection and hands it out.
      # @return [OpenSSL::SSL::SSLSocket]
      def shift
        tls = @ready.shift
        forget(tls.io)
        tls
      end

      # Closes what was not handed out.
      def close
        @sockets.each_key(&:close)
      end

      private

      # Short of descriptors, the first way waits until some are free; the second raises, as stock.
      def each_connection(server, &block)
        klass = SOCKETS[server.class]
        return Polyphony.backend_accept_loop(server, klass, &block) if klass

        loop do
          socket, = server.accept
          block.call(socket)
        end
      end

      def wrap(socket)
        ::OpenSSL::SSL::SSLSocket.new(socket, @context).tap { |tls| tls.sync_close = true }
      end

      def shake_hands(socket)
        tls = wrap(socket)
        error = [::OpenSSL::SSL::SSLError, "no TLS handshake within #{@timeout} s"]
        CancelScope.cancel_after(@timeout, error) { tls.accept }
        @ready << tls
      rescue *ERRORS
        raise unless @ignore_errors

        forget(socket)
        socket.close
      end

      def forget(socket)
        @sockets.delete(socket)
        @places.release
      end
    end
    private_constant :Handshakes
  end
end
