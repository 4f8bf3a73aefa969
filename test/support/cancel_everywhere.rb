# frozen_string_literal: true

module Polyphony
  # Runs a scenario again and again, ending it at its 1st, 2nd, 3rd ... wait point, until it comes
  # to its end by itself, and checks what must hold each time. At every wait point it is ended
  # twice: as soon as it waits, and when it has been woken but does not run yet. And each time in
  # two ways, by a stop and by an exception.
  #
  # The scenario runs in a fiber of its own. The controller, which is the fiber of the test, goes
  # turn by turn: a fiber that is runnable when the controller snoozes runs once in that turn.
  #
  # @example
  #   cancel_everywhere do |run|
  #     queue, taken = Polyphony::Queue.new, []
  #     run.scenario { taken << queue.shift }
  #     run.beside { queue << 1 }           # fibers that are not ended
  #     run.check { |finished| assert_equal 1, taken.size + queue.size }
  #   end
  module CancelEverywhere
    # More wait points than any scenario has; more turns than any wait takes.
    MOST_POINTS = 300
    MOST_TURNS = 50_000

    class Ended < StandardError; end

    WAYS = { stop: ->(fiber) { fiber.stop }, exception: ->(fiber) { fiber.raise(Ended) } }.freeze

    # @yield [run] says what the scenario is, anew for every run
    # @return [Integer] at how many wait points it was ended
    def cancel_everywhere(&describe)
      WAYS.sum do |_name, way|
        [false, true].sum { |woken| cancel_at_each_point(way, woken, describe) }
      end
    end

    private

    def cancel_at_each_point(way, woken, describe)
      MOST_POINTS.times do |point|
        run = Run.new(point, woken, way)
        describe.call(run)
        return point if run.call
      end
      flunk "the scenario has more than #{MOST_POINTS} wait points"
    end

    # One run of the scenario.
    class Run
      attr_reader :point

      def initialize(point, woken, way)
        @point = point
        @woken = woken
        @way = way
        @beside = []
        @check = ->(_finished) {}
      end

      # What is ended.
      def scenario(&block)
        @scenario = block
      end

      # What runs along and is waited for.
      def beside(&block)
        @beside << block
      end

      # @yield [finished] what must hold when all have ended; whether the scenario was left alone
      def check(&block)
        @check = block
      end

      # @return [Boolean] whether it came to its end by itself
      def call
        fiber = Fiber.current.spin(:scenario, &@scenario)
        others = @beside.map { |block| Fiber.current.spin(:beside, &block) }
        finished = !reach_point(fiber)
        @way.call(fiber) unless finished
        await(fiber)
        others.each(&:await)
        @check.call(finished)
        finished
      end

      private

      # False if the fiber ended before.
      def reach_point(fiber)
        @point.times { return false unless run_once(fiber) }
        return false if fiber.dead?

        # For ever, if only the end wakes it: then it is ended while it waits, as in the other case.
        wait_until_runnable(fiber, MOST_TURNS / 50) if @woken
        !fiber.dead?
      end

      def run_once(fiber)
        return false if fiber.dead?

        wait_until_runnable(fiber, MOST_TURNS)
        return false if fiber.dead? # another thread woke it, and it ran on unseen

        Kernel.raise "wait point #{@point} is not left within #{MOST_TURNS} turns" unless fiber.state == :runnable

        snooze
        true
      end

      # Now and then the whole thread rests, fibers and all: the kernel may be at work elsewhere, or
      # another thread, which may wake the fiber then.
      def wait_until_runnable(fiber, turns)
        turns.times do |turn|
          return if %i[runnable dead].include?(fiber.state)

          turn % 100 == 99 ? Watchdog::STOCK_SLEEP.bind_call(self, 0.0002) : snooze
        end
      end

      def await(fiber)
        fiber.await
      rescue Ended
        nil
      end
    end
  end
end
