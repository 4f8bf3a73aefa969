# frozen_string_literal: true

module Polyphony
  # The words. spin, snooze, suspend and receive are written in C.
  module GlobalAPI
    private

    # Runs the block in a fiber after a while.
    # @param interval [Numeric] seconds
    # @return [Fiber]
    def after(interval, &block)
      raise ArgumentError, 'after needs a block to run' unless block

      spin do
        Polyphony.backend_sleep(interval)
        block.call
      end
    end

    # Calls the block at a fixed rate, for ever; ticks that were missed are left out. +break+ ends
    # it. Runs in the current fiber: to go on meanwhile, spin it.
    # @param interval [Numeric] seconds
    # @return [Enumerator] without a block
    def every(interval, &block)
      Polyphony.backend_timer_loop(interval, &block)
    end

    # Calls the block in a fiber, for ever; +break+ or StopIteration end it.
    # @return [Fiber]
    def spin_loop(tag = nil, &block)
      raise ArgumentError, 'spin_loop needs a block to run' unless block

      spin(tag) { loop(&block) }
    end

    # Runs the block for at most that long; then it is interrupted and +with_value+ returned.
    # A block with a parameter gets the scope: its +reset+ starts the period again.
    # @param interval [Numeric, nil] seconds; nil: no limit
    def move_on_after(interval, with_value: nil, &block)
      CancelScope.move_on_after(interval, with_value, &block)
    end

    # Runs the block for at most that long; then an exception is raised in it.
    # @param interval [Numeric, nil] seconds; nil: no limit
    # @param with_exception [Class, Array, String, Exception] class, [class, message], message
    def cancel_after(interval, with_exception: Cancel, &block)
      CancelScope.cancel_after(interval, with_exception, &block)
    end

    # Calls the block with every message for the current fiber, for ever.
    def receive_loop(&block)
      Fiber.current.receive_loop(&block)
    end

    # @return [Array] all messages for the current fiber that are there, without waiting
    def receive_all_pending
      Fiber.current.receive_all_pending
    end
  end

  ::Object.include GlobalAPI
end
