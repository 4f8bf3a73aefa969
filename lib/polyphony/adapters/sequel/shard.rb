# frozen_string_literal: true

module Polyphony
  class FiberConnectionPool
    # The places for connections to one server, in one process. Those that nobody has are in a queue: there, in C, looking for one,
    # beginning to wait and being woken cannot be torn apart by another thread; waiters are served in order of arrival, and what a
    # cancelled one was woken for goes to the next.
    # @api private
    class Shard
      # A place. Whoever has taken it is alone with it.
      # connection: or nil; since: when it was taken, on the monotonic clock; doomed: it is not to be used again; disturbed: its holder left
      # by something else than the end of the block.
      Place = Struct.new(:connection, :since, :doomed, :disturbed)

      # @return [Hash{Fiber => Place}] who has which
      attr_reader :held

      # @return [Hash{Fiber => Object}] who has which connection; extensions of Sequel's take theirs out
      attr_reader :allocated

      # @param pool [FiberConnectionPool] named in reports of who waits for what
      # @param inherited [Shard, nil] the parent process's, only kept: what is in it is not closed here
      def initialize(pool, inherited)
        @inherited = inherited
        @free = Queue.new.__serve(pool, 'a connection of a pool')
        @places = Array.new(pool.max_size) { Place.new }
        @places.each { |place| @free.push(place) }
        @held = {}.compare_by_identity
        @allocated = {}.compare_by_identity
      end

      # @return [Place, nil] now the fiber's; nil after that many seconds
      # @raise [ClosedQueueError] if the server has been removed
      def take(fiber, seconds)
        place = @free.shift(timeout: seconds)
        raise ClosedQueueError, 'removed' if place.nil? && @free.closed?
        return unless place

        place.since = Clock.now
        place.doomed = place.disturbed = false
        @held[fiber] = place
      end

      # @return [Place, nil] one that nobody has
      def try_take
        @free.shift(true)
      rescue ThreadError, ClosedQueueError
        nil
      end

      # Lets the next one have it: connections before empty places, and those last used first.
      # @return [Boolean] false if the server has been removed
      def free(place)
        place.connection ? @free.unshift(place) : @free.push(place)
        true
      rescue ClosedQueueError
        false
      end

      # @return [Place, nil] the one that the fiber had
      def leave(fiber)
        @allocated.delete(fiber)
        @held.delete(fiber)
      end

      # Nobody gets a place any more.
      def close
        @free.close
      end

      # @return [Boolean] whether somebody who comes now has to wait
      def full?
        @free.empty?
      end

      def size
        @places.count(&:connection)
      end

      def waiting
        @free.num_waiting
      end

      # @return [Array<Object>] connections that nobody has
      def idle
        (@places - @held.values).filter_map(&:connection)
      end

      # @return [Array<Object>] all connections
      def connections
        @places.filter_map(&:connection)
      end

      # @return [Array<Fiber>] those that have ended and were not unwound, as the fibers of a thread that is gone
      def dead_holders
        @held.keys.reject(&:alive?)
      end
    end
  end
end
