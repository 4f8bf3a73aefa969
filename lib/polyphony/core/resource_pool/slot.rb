# frozen_string_literal: true

module Polyphony
  class ResourcePool
    # A place in a pool, with a resource or without. Whoever has taken it is alone with it.
    # @api private
    class Slot
      # @return [Object, nil] what is in it
      attr_reader :resource

      # @return [Float] when it was taken, on the monotonic clock
      attr_reader :since

      # @param free [Polyphony::Queue] where it goes when nobody has it
      def initialize(free)
        @free = free
        @filled = false
      end

      # @return [Boolean] whether there is a resource in it
      def filled?
        @filled
      end

      # Notes that somebody has it now.
      # @return [self]
      def hold
        @since = Clock.now
        self
      end

      # @yield makes a resource, if there is none
      # @return [Object] the resource
      def fill
        unless @filled
          @resource = yield
          @filled = true
        end
        @resource
      end

      # @return [Object] the resource, which is not in it any more
      def empty
        resource = @resource
        @resource = nil
        @filled = false
        resource
      end

      # Lets the next one have it: resources before empty places, and those last used first.
      def free
        @filled ? @free.unshift(self) : @free.push(self)
      end
    end
  end
end
