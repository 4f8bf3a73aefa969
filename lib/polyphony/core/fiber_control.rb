# frozen_string_literal: true

module Polyphony
  # Stopping, raising, restarting: each schedules an exception on the fiber, which gets it at the
  # point where it waits.
  module FiberControl
    # Ends the fiber; +value+ becomes its result. A fiber that has not begun never runs its block.
    # @param value [Object]
    # @return [self, nil] nil if it had ended already
    def interrupt(value = nil)
      return if dead?

      schedule(MoveOn.new(value))
    end
    alias stop interrupt
    alias move_on interrupt

    # Raises Cancel, or the given exception, in the fiber; uncaught it goes to the parent.
    # @param exception [Exception, Class]
    # @return [self, nil] nil if it had ended already
    def cancel(exception = Cancel)
      return if dead?

      schedule(exception.is_a?(Class) ? exception.new : exception)
    end

    # Asks the fiber to end. Its result is nil.
    # @param graceful [Boolean] sets graceful_shutdown?, which ensure blocks may ask for
    # @return [self, nil] nil if it had ended already
    def terminate(graceful: false)
      return if dead?

      self.graceful_shutdown = graceful
      schedule(Terminate.new)
    end

    # Raises in the fiber, at the point where it waits. Arguments as for Kernel#raise.
    # @return [self]
    def raise(*args)
      return super unless __spun? || main?

      args = [RuntimeError, args.first] if args.first.is_a?(String)
      schedule((args.shift || RuntimeError).exception(*args.first(1)))
    end

    # Runs the block on this fiber at the point where it waits.
    # @return [self]
    def interject(&block)
      Kernel.raise ArgumentError, 'interject needs a block to run' unless block

      schedule(Interjection.new(block))
    end

    # @return [Boolean] whether the fiber has ended
    def dead?
      state == :dead
    end

    # @return [Boolean, nil] whether it runs now; nil when it has ended
    def running?
      current = state
      current == :dead ? nil : current == :running
    end

    # @return [String] where its block is written, (root) for a main fiber
    def location
      block = __block
      block ? block.source_location.join(':') : '(root)'
    end

    def inspect
      name = tag ? " #{tag}:#{object_id}" : ":#{object_id}"
      "#<Fiber#{name} #{location} (#{state})>"
    end
    alias to_s inspect
  end

  ::Fiber.prepend FiberControl
end
