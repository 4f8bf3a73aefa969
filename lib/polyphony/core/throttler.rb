# frozen_string_literal: true

module Polyphony
  # Lets callers through at a fixed rate at most, in order of arrival; they may be in many fibers
  # and threads. The slots are on a grid, so the rate does not drift. Slots that nobody used are
  # gone, except that after a pause the next caller need not wait.
  #
  # @example At most ten requests a second, from however many fibers
  #   throttler = Polyphony::Throttler.new(10)
  #   urls.each { |url| spin { throttler.call { fetch(url) } } }
  class Throttler
    # @param rate [Numeric, Hash] calls a second; or +rate: calls+, or +interval: seconds+
    # @raise [RuntimeError] for anything else, and for what is not positive
    def initialize(rate)
      @period = period(rate)
      # One item, the time of the next free slot: who has it waits for that slot, the others for
      # the item, in order of arrival. A queue, since that is safe between threads.
      @turns = PerProcess.new { Queue.new.__serve(self, 'its turn at a throttler') << 0 }
    end

    # Waits for a slot, then calls the block. A caller that is cancelled while it waits uses up no
    # slot. Calls may overlap when the block takes longer than the interval.
    # @yield [Throttler]
    # @return [Object] what the block returns
    def call
      raise ArgumentError, 'a throttler needs a block to call' unless block_given?

      wait_for_slot
      yield self
    end
    alias process call

    # @return [String]
    def inspect
      "#<#{self.class} every #{@period / 1e9} s>"
    end

    private

    # @return [Integer] nanoseconds from slot to slot
    def period(spec)
      seconds = case spec
                in Numeric => rate then 1.0 / rate
                in { rate: Numeric => rate, **nil } then 1.0 / rate
                in { interval: Numeric => interval, **nil } then interval
                else 0
                end
      return (seconds * 1_000_000_000).ceil if seconds.real? && seconds.positive? && seconds.finite?

      raise "a throttler needs a positive rate, or rate: or interval:, got #{spec.inspect}"
    end

    # The item goes back as it was when the wait is ended from outside.
    def wait_for_slot
      turns = @turns.value
      slot = turns.shift
      slot = slot.zero? ? now : reach(slot)
      slot += @period
    ensure
      turns << slot if slot
    end

    # @return [Integer] the slot that is used: a later one if this has been missed
    def reach(slot)
      while (late = now - slot).negative?
        Polyphony.backend_sleep(-late / 1e9) # anyone may wake the fiber before
      end
      slot + late / @period * @period
    end

    def now
      Clock.nanoseconds
    end
  end
end
