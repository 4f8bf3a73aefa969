# frozen_string_literal: true

module Polyphony
  # The words. spin, snooze, suspend and receive are written in C.
  module GlobalAPI
    # @!visibility private
    # The method that the block was given to has returned, so Ruby finds nothing to break out of.
    def self.loop_until_break(block)
      loop(&block)
      nil
    rescue LocalJumpError => e
      raise unless e.reason == :break
    end

    # @!visibility private
    def self.run_with_children(block)
      block.call.tap { Fiber.current.await_all_children }
    rescue LocalJumpError => e
      raise unless e.reason == :break

      e.exit_value
    end

    private

    # @!method spin(tag = nil)
    #   Starts a fiber, a child of the current one. It runs when its turn comes.
    #   @param tag [Object] a name, shown by Fiber#inspect
    #   @yield [Object] what it was scheduled with first, normally nil
    #   @return [Fiber]

    # @!method snooze
    #   Lets all others run that can, then goes on.
    #   @return [Object] what the fiber was scheduled with meanwhile, normally nil

    # @!method suspend
    #   Waits until somebody schedules the fiber. Returns at once when nothing else can happen.
    #   @return [Object] what it was scheduled with

    # @!method receive
    #   Takes the next message for the current fiber, waiting for one.
    #   @return [Object]

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

      spin(tag) { GlobalAPI.loop_until_break(block) }
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

    # Answers for the ends of children. See Fiber#supervise.
    def supervise(*fibers, **options, &block)
      Fiber.current.supervise(*fibers, **options, &block)
    end

    # Runs the block in a fiber, and waits for that one and for the fibers that the block has spun.
    # If one fails, the others are ended and the error is raised. +break+ ends them as well.
    # @return [Object] what the block returns
    # @raise [RuntimeError] without a block
    # @example
    #   spin_scope do
    #     spin { fetch(:a) }
    #     spin { fetch(:b) }
    #   end
    def spin_scope(&block)
      raise 'spin_scope needs a block to run' unless block

      Polyphony.scope { |scope| scope.spin { GlobalAPI.run_with_children(block) }.await }
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
