# frozen_string_literal: true

module Polyphony
  class ResourcePool
    # The places of a pool in one process. Those that are free are in a queue: there, in C, looking
    # for one, beginning to wait and being woken cannot be torn apart by another thread, waiters are
    # served in order of arrival, and what a cancelled one was woken for goes to the next.
    # @api private
    class Stock
      # @param pool [ResourcePool]
      # @param inherited [Stock, nil] the parent process's. It is only kept: finalizers of what is
      #   in it must not run here, they might log out of a connection that is in use there.
      def initialize(pool, inherited)
        @inherited = inherited
        @free = Queue.new.__serve(pool, 'a resource of a pool')
        @slots = Array.new(pool.limit) { Slot.new(@free) }
        @slots.each(&:free)
      end

      # @return [Slot, nil] nil when the time is over, or when it is closed
      def take(timeout)
        @free.shift(timeout: timeout)
      rescue ClosedQueueError
        nil
      end

      # @return [Slot, nil] nil when there is none
      def try_take
        @free.shift(true)
      rescue ThreadError
        nil
      end

      # Nobody gets a slot by take any more.
      # @yield [Slot] each that is free
      def close
        @free.close
        while (slot = try_take) do yield slot end
      end

      # @return [Boolean]
      def closed?
        @free.closed?
      end

      # @return [Integer] how many resources there are
      def size
        @slots.count(&:filled?)
      end

      # @return [Integer] how many slots are free
      def available
        @free.size
      end

      # @return [Integer] how many fibers wait for one
      def waiting
        @free.num_waiting
      end
    end
  end
end
