# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # One direction of a connection: pieces on their way, in order, and those that have arrived. Used under the GVL between two
      # switchpoints, so threads may share one.
      # @api private
      class Wire
        # The other direction, which breaks together with this one.
        attr_writer :back

        def initialize(network)
          @network = network
          @pieces = [] # [when it arrives, bytes or :end or :reset]
          @arrived = String.new(encoding: Encoding::BINARY)
          @on_the_way = 0
          @last = 0
          @news = WaitList.new(self, 'bytes from a socket in memory')
          @room = WaitList.new(self, 'room in a socket in memory')
        end

        # --- the end that writes

        # @return [Integer] bytes that could be taken now
        def room
          [@network.conditions.capacity - @on_the_way - @arrived.bytesize, 0].max
        end

        # @return [Boolean] false after the timeout
        def wait_for_room(timeout)
          waits?(@room, timeout) { room.positive? || ended? || deaf? }
        end

        # Sends as much as there is room for.
        # @return [Integer] bytes
        def push(bytes)
          raise Errno::EPIPE if deaf? || (ended? && !broken?)
          raise Errno::ECONNRESET if broken?

          taken = bytes.byteslice(0, room)
          offset = 0
          while offset < taken.bytesize
            piece = taken.byteslice(offset, @network.conditions.__part(taken.bytesize - offset))
            return offset + piece.bytesize if send_piece(piece) == :reset

            offset += piece.bytesize
          end
          taken.bytesize
        end

        # No more comes.
        def finish
          append(:end) unless ended?
          @room.wake_all
        end

        # The other end learns of it when it reads, and who waits for room at once.
        def reset
          append(:reset) unless @broken
          @broken = true
          @room.wake_all
        end

        # Whether nothing more can be sent.
        def ended?
          @ended
        end

        def broken?
          @broken
        end

        # --- the end that reads

        # Waits for bytes, the end or a reset.
        # @return [Boolean] false after the timeout
        def wait_for_news(timeout)
          waits?(@news, timeout) { arrive }
        end

        # @return [String, nil, false] bytes; nil at the end; false if there are none yet
        # @raise [Errno::ECONNRESET]
        def take(most)
          arrive
          return false if @arrived.empty? && !@state
          return take_state if @arrived.empty?

          @arrived.slice!(0, most).tap { @room.wake_all }
        end

        # The one who reads has gone: the other end learns of it after the way back.
        def deafen
          @deaf_from = Clock.nanoseconds + nanoseconds(@network.conditions.__delay)
          @arrived.clear
          @room.wake_all
        end

        def inspect
          "#<#{self.class.name} #{@arrived.bytesize} bytes arrived, #{@on_the_way} on the way>"
        end

        private

        def deaf?
          @deaf_from && Clock.nanoseconds >= @deaf_from
        end

        def nanoseconds(seconds)
          (seconds * 1_000_000_000).round
        end

        def send_piece(piece)
          @network.__count(:segments)
          if @network.conditions.__chance?(:reset)
            @network.__count(:resets)
            [self, @back].each(&:reset)
            return :reset
          end
          append(piece)
        end

        # A stream keeps its order: what is late makes the rest late.
        def append(piece)
          delay = @network.conditions.__delay
          if piece.is_a?(String) && @network.conditions.__chance?(:loss)
            @network.__count(:lost)
            delay += @network.conditions.retransmit
          end
          @ended = true unless piece.is_a?(String)
          @on_the_way += piece.bytesize if piece.is_a?(String)
          @last = [@last, Clock.nanoseconds + nanoseconds(delay)].max
          @pieces << [@last, piece]
          @news.wake_all
        end

        # @return [Boolean] whether there is something to take
        def arrive
          now = Clock.nanoseconds
          receive(@pieces.shift.last) while @pieces.any? && @pieces.first.first <= now
          !@arrived.empty? || !@state.nil?
        end

        def receive(piece)
          return @state = piece unless piece.is_a?(String)

          @on_the_way -= piece.bytesize
          @arrived << piece unless @deaf_from
        end

        # A reset is told once; after it there is nothing, as with the kernel.
        def take_state
          return nil if @state == :end

          @state = :end
          raise Errno::ECONNRESET
        end

        # Until the block is true, or the time is over. What is on its way arrives in time, not by a wake.
        def waits?(list, timeout)
          limit = timeout && Clock.nanoseconds + nanoseconds(timeout)
          until yield
            now = Clock.nanoseconds
            return false if limit && now >= limit

            list.park([limit, list.equal?(@news) ? @pieces.first&.first : @deaf_from].compact.map { |due| [due - now, 0].max / 1e9 }.min)
          end
          true
        end
      end

      private_constant :Wire
    end
  end
end
