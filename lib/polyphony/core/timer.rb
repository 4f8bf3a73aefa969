# frozen_string_literal: true

module Polyphony
  # Coarse sleeps and time limits: they end on a common grid, at most +resolution+ seconds late and
  # never early, so that thousands of them need few wake-ups. It can be used in all fibers and
  # threads at once, and has no fiber of its own: the backend's timers do the work.
  #
  # @example Ten thousand connections, each with a limit of a minute or so
  #   timer = Polyphony::Timer.new(resolution: 1)
  #   timer.cancel_after(60) do
  #     loop { handle(client.readpartial(8192)); timer.reset }
  #   end
  class Timer
    # @param tag [Object] a name for the fibers that #after spins
    # @param resolution [Numeric] seconds from one point of the grid to the next
    def initialize(tag = nil, resolution:)
      @tag = tag
      @resolution = positive(resolution).to_f
      @innermost = {}.compare_by_identity # fiber => the limit it is in
      @stopped = false
    end

    # Waits while other fibers run.
    # @param duration [Numeric] seconds
    # @return [Object] what the fiber was scheduled with meanwhile, normally nil
    def sleep(duration)
      Polyphony.backend_sleep(on_grid(duration))
    end

    # Runs the block in a fiber after a while.
    # @param interval [Numeric] seconds
    # @return [Fiber]
    def after(interval, &block)
      raise ArgumentError, 'after needs a block to run' unless block

      interval = on_grid(interval)
      spin(@tag) do
        Polyphony.backend_sleep(interval)
        block.call
      end
    end

    # Calls the block again and again, until it breaks or the timer is stopped. Ticks that were
    # missed are left out.
    # @param interval [Numeric] seconds
    def every(interval)
      raise ArgumentError, 'every needs a block to run' unless block_given?

      positive(interval)
      tick = now
      until @stopped
        tick += interval * (((now - tick) / interval).floor + 1)
        sleep([tick - now, 0].max)
        yield unless @stopped
      end
    end

    # Runs the block for at most that long; then an exception is raised in it.
    # @param interval [Numeric, nil] seconds; nil: no limit
    # @param with_exception [Class, Array, String, Exception] class, [class, message], message
    # @return [Object] what the block returns
    def cancel_after(interval, with_exception: Cancel, &block)
      raise ArgumentError, 'cancel_after needs a block to run' unless block

      period = interval && on_grid(interval)
      CancelScope.cancel_after(period, with_exception) { |limit| within(limit, &block) }
    end

    # Runs the block for at most that long; then it is interrupted and +with_value+ returned.
    # @param interval [Numeric, nil] seconds; nil: no limit
    # @return [Object] what the block returns, or +with_value+
    def move_on_after(interval, with_value: nil, &block)
      raise ArgumentError, 'move_on_after needs a block to run' unless block

      period = interval && on_grid(interval)
      CancelScope.move_on_after(period, with_value) { |limit| within(limit, &block) }
    end

    # Starts the period of a limit again: of the innermost one of this timer that the current fiber
    # is in.
    # @return [self, nil] nil if it is in none
    def reset
      @innermost[::Fiber.current]&.reset && self
    end

    # Nothing can be begun with it any more, and #every returns at its next tick. Sleeps and limits
    # that have begun keep their time.
    # @return [self]
    def stop
      @stopped = true
      self
    end

    private

    def positive(seconds)
      return seconds if seconds.is_a?(Numeric) && seconds.positive? && seconds.finite?

      raise ArgumentError, "a timer needs a positive number of seconds, got #{seconds.inspect}"
    end

    # @return [Numeric] so long, or until the point of the grid that follows
    def on_grid(seconds)
      raise 'this timer has been stopped' if @stopped
      unless seconds.is_a?(Numeric) && seconds >= 0
        raise ArgumentError, "a timer needs 0 seconds or more, got #{seconds.inspect}"
      end
      return seconds unless seconds.finite?

      start = now
      [((start + seconds) / @resolution).ceil * @resolution - start, seconds].max
    end

    def within(limit)
      fiber = ::Fiber.current
      outer = @innermost[fiber]
      @innermost[fiber] = limit
      yield
    ensure
      outer ? @innermost[fiber] = outer : @innermost.delete(fiber)
    end

    def now
      Clock.now
    end
  end
end
