# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # A socket for datagrams in memory: looks like a UDPSocket. Each arrives whole, by itself, or not at all.
      class Datagram
        # @!visibility private
        def initialize(network, host, port)
          @network = network
          @address = [host, port]
          @pieces = [] # [when it arrives, number, bytes, from]
          @count = 0
          @news = WaitList.new(self, 'a datagram in memory')
        end

        # @param message [String]
        # @param host [String]
        # @param port [Integer]
        # @return [Integer] bytes, also if it is lost
        def send(message, _flags, host, port)
          raise IOError, 'closed stream' if @closed

          @network.__count(:segments)
          if @network.conditions.__chance?(:loss)
            @network.__count(:lost)
          else
            @network.__datagram_at(host, port)&.__deliver(message.b, @address)
          end
          message.bytesize
        end

        # @param most [Integer] bytes; what is longer is cut off
        # @param timeout [Numeric, nil] seconds
        # @return [Array(String, Array), nil] message and address of the sender, as of IPSocket#addr; nil after the timeout
        def recvfrom(most, _flags = 0, timeout: nil)
          limit = timeout && Clock.nanoseconds + (timeout * 1_000_000_000).round
          until (piece = take)
            now = Clock.nanoseconds
            return nil if limit && now >= limit

            @news.park([limit, @pieces.first&.first].compact.map { |due| [due - now, 0].max / 1e9 }.min)
          end
          host, port = piece[3]
          [piece[2].byteslice(0, most), ['AF_INET', port, host, host]]
        end

        # @return [String]
        def recv(most, flags = 0)
          recvfrom(most, flags).first
        end

        # @return [nil]
        def close
          @network.__forget(self)
          @closed = true
          @news.wake_all
          nil
        end

        # @return [Boolean]
        def closed?
          @closed || false
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
        def __deliver(message, from)
          due = Clock.nanoseconds + (@network.conditions.__delay * 1_000_000_000).round
          @pieces << [due, @count += 1, message, from]
          @pieces.sort_by! { |time, number| [time, number] }
          @news.wake_all
        end

        private

        def take
          raise IOError, 'closed stream' if @closed

          @pieces.shift if @pieces.any? && @pieces.first.first <= Clock.nanoseconds
        end
      end
    end
  end
end
