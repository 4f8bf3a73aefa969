# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # A server in memory: looks like a TCPServer.
      class Listener
        # @!visibility private
        def initialize(network, host, port, backlog)
          @network = network
          @address = [host, port]
          @backlog = backlog
          @waiting = Queue.new.__serve(self, 'a connection in memory')
        end

        # @return [Stream]
        # @raise [IOError] if it is closed, or is being closed meanwhile
        def accept
          @waiting.shift || raise(IOError, 'closed stream')
        rescue ClosedQueueError
          raise IOError, 'closed stream'
        end

        # @return [Stream, Symbol] +:wait_readable+ with +exception: false+
        # @raise [IO::EAGAINWaitReadable]
        def accept_nonblock(exception: true)
          return accept unless @waiting.empty? && !@waiting.closed?

          exception ? raise(IO::EAGAINWaitReadable, 'accept would block') : :wait_readable
        end

        # Each connection, until it is closed.
        # @yield [Stream]
        # @return [nil]
        def accept_loop
          loop { yield accept }
        rescue IOError
          raise unless closed?
        end

        # Nobody can connect any more. Connections that nobody accepted are reset.
        # @return [nil]
        def close
          return if closed?

          @network.__forget(self)
          @waiting.shift.reset until @waiting.empty?
          @waiting.close
          nil
        end

        # @return [Boolean]
        def closed?
          @waiting.closed?
        end

        # @return [Array] as of IPSocket#addr
        def addr(*)
          ['AF_INET', @address.last, @address.first, @address.first]
        end

        # @return [String]
        def inspect
          "#<#{self.class} #{@address.join(':')}#{' (closed)' if closed?}>"
        end

        # @!visibility private
        def __room?
          @waiting.size < @backlog
        end

        # @!visibility private
        def __push(stream)
          @waiting << stream
        end
      end
    end
  end
end
