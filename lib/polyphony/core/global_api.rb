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
    # What is no number but divides like one may be a duration, too: the backend finds out.
    def self.duration?(interval)
      interval.is_a?(Numeric) ? interval >= 0 : !interval.nil?
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
    # @raise [ArgumentError] for nil and for what is negative
    def after(interval, &block)
      raise ArgumentError, 'after needs a block to run' unless block
      unless GlobalAPI.duration?(interval)
        raise ArgumentError, "after needs 0 seconds or more, got #{interval.inspect}"
      end

      spin do
        Polyphony.backend_sleep(interval)
        block.call
      end
    end

    # Calls the block at a fixed rate, for ever; ticks that were missed are left out. +break+ ends
    # it. Runs in the current fiber: to go on meanwhile, spin it. See Backend#timer_loop.
    # @param interval [Numeric] seconds
    # @return [Enumerator] without a block
    # @raise [ArgumentError] for nil and for what is not positive
    def every(interval, &block)
      unless GlobalAPI.duration?(interval) && interval != 0
        raise ArgumentError, "every needs a positive interval, got #{interval.inspect}"
      end

      Polyphony.backend_timer_loop(interval, &block)
    end

    # Calls the block at most at a given rate, for ever; +break+ or StopIteration end it. Runs in
    # the current fiber. A slow block is not made up for. The rate is given as to Throttler.new.
    # @param frequency [Numeric, nil] calls a second
    # @param rate [Numeric, nil] the same
    # @param interval [Numeric, nil] seconds from call to call
    # @param count [Integer, nil] how many calls; nil: for ever
    # @return [Object] nil after +count+ calls; else what +break+ or StopIteration brought
    # @raise [RuntimeError] unless one of the first three is given, and positive
    def throttled_loop(frequency = nil, rate: nil, interval: nil, count: nil)
      raise ArgumentError, 'throttled_loop needs a block to run' unless block_given?
      unless count.nil? || (count.is_a?(Integer) && count >= 0)
        raise ArgumentError, "count must be 0 or more, got #{count.inspect}"
      end

      given = { frequency: frequency, rate: rate, interval: interval }.compact
      throttler = Throttler.new(given.keys == [:frequency] ? frequency : given)
      (1..count).each { throttler.call { yield } }
      nil
    rescue StopIteration => e
      e.result
    end

    # Calls the block in a fiber, for ever; +break+ or StopIteration end it.
    # @param tag [Object] see spin
    # @param rate [Numeric, nil] how often in a second, at most
    # @param interval [Numeric, nil] the same as seconds from call to call
    # @return [Fiber]
    # @raise [RuntimeError] if both are given, or one that is not positive
    def spin_loop(tag = nil, rate: nil, interval: nil, &block)
      raise ArgumentError, 'spin_loop needs a block to run' unless block

      throttler = Throttler.new({ rate: rate, interval: interval }.compact) if rate || interval
      body = throttler ? proc { throttler.call { block.call } } : block
      spin(tag) { GlobalAPI.loop_until_break(body) }
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

    # Runs the block; a stop, a cancel, a time limit that comes meanwhile takes effect at its end.
    # Limits set within it work, exit and signals go through.
    # @return [Object] what the block returns
    # @example
    #   ensure
    #     shield { connection.say_goodbye }
    def shield(&block)
      CancelScope.shield(&block)
    end

    # Runs the block, which has to be done by then, with all the fibers it spins: each of them gets
    # a DeadlineExceeded. Of several, nested, the soonest holds. See Polyphony.deadline.
    # @param limit [Numeric, Time, nil] seconds from now, or a time; nil: none of its own
    # @return [Object] what the block returns
    def deadline(limit, &block)
      raise ArgumentError, 'deadline needs a block to run' unless block

      limit.nil? ? yield : Deadline.new(limit).__run(&block)
    end

    # Calls the block with every message for the current fiber. See FiberMessaging#receive_loop.
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
