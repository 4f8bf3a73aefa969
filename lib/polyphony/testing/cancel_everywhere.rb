# frozen_string_literal: true

module Polyphony
  module Testing
    # Runs a scenario again and again, ending it at its 1st, 2nd, 3rd ... wait point, until it comes to its end by itself, and checks
    # what must hold each time. At every wait point it is ended twice: as soon as it waits, and when it has been woken but does not
    # run yet. And each time in two ways, by a stop and by an exception.
    #
    # The scenario runs in a fiber of its own. The controller, which is the fiber of the test, goes turn by turn: a fiber that is
    # runnable when the controller snoozes runs once in that turn. So it cannot be used inside Testing.shuffle. On the virtual
    # clock, sleeps of the scenario take no time.
    #
    # @example
    #   cancel_everywhere do |run|
    #     queue, taken = Polyphony::Queue.new, []
    #     run.scenario { taken << queue.shift }
    #     run.beside { queue << 1 }           # fibers that are not ended
    #     run.check { |finished| assert_equal 1, taken.size + queue.size }
    #   end
    module CancelEverywhere
      # More wait points than any scenario has; more turns than any wait takes, and more seconds where another process has to answer on a
      # busy machine.
      MOST_POINTS = 300
      MOST_TURNS = 50_000
      MOST_SECONDS = 10

      # What ends the scenario, when it is not a stop.
      class Ended < StandardError; end

      # The scenario does something that cannot be tested this way.
      class Endless < StandardError; end

      WAYS = { stop: ->(fiber) { fiber.stop }, exception: ->(fiber) { fiber.raise(Ended) } }.freeze

      # A block without arguments is the scenario, and it may leave nothing behind (see Leaks). One with an argument says what the
      # scenario is, anew for every run.
      # @param turns [Integer, nil] how many a wait may take; 50,000 if not said, and ten seconds at least
      # @yield [run]
      # @yieldparam run [Run]
      # @return [Integer] at how many wait points it was ended
      # @raise [Leaks::Left] if a block without arguments leaves something behind
      def cancel_everywhere(turns: nil, &describe)
        raise ArgumentError, 'cancel_everywhere needs a block to run' unless describe

        describe = CancelEverywhere.__plain(describe) if describe.arity.zero?
        WAYS.sum do |name, way|
          [false, true].sum { |woken| CancelEverywhere.__cancel_at_each_point(Way.new(name, way, woken), turns, describe) }
        end
      end

      # How it is ended.
      # @api private
      Way = Struct.new(:name, :call, :woken) do
        def inspect
          "by #{name == :stop ? 'a stop' : 'an exception'} when it #{woken ? 'is about to go on' : 'waits'}"
        end
      end
      private_constant :Way

      class << self
        # @!visibility private
        def __cancel_at_each_point(way, turns, describe)
          MOST_POINTS.times do |point|
            run = Run.new(point, way, turns)
            describe.call(run)
            return point if run.call
          end
          raise Endless, "the scenario has more than #{MOST_POINTS} wait points"
        end

        # @!visibility private
        def __plain(scenario)
          lambda do |run|
            leaks = Leaks.new
            run.scenario(&scenario)
            run.check { leaks.check }
          end
        end
      end

      # One run of the scenario.
      class Run
        # @return [Integer] at which wait point it is ended, from 0
        attr_reader :point

        # @!visibility private
        def initialize(point, way, turns)
          @point = point
          @way = way
          @turns = turns || MOST_TURNS
          @seconds = turns ? 0 : MOST_SECONDS
          @beside = []
          @check = ->(_finished) {}
        end

        # What is ended.
        # @return [Proc]
        def scenario(&block)
          @scenario = block
        end

        # What runs along and is waited for.
        # @return [Array<Proc>]
        def beside(&block)
          @beside << block
        end

        # @yield [finished] what must hold when all have ended; whether the scenario was left alone
        # @return [Proc]
        def check(&block)
          @check = block
        end

        # @return [Boolean] whether it came to its end by itself
        def call
          Testing.__tell_on_failure(-> { "the scenario was ended at wait point #{@point + 1}, #{@way.inspect}" }) { perform }
        end

        private

        def perform
          fiber = Fiber.current.spin(:scenario, &@scenario)
          others = @beside.map { |block| Fiber.current.spin(:beside, &block) }
          finished = !reach_point(fiber)
          @way.call.call(fiber) unless finished
          await(fiber)
          others.each(&:await)
          @check.call(finished)
          finished
        end

        # False if the fiber ended before.
        def reach_point(fiber)
          @point.times { return false unless run_once(fiber) }
          return false if fiber.dead?

          # For ever, if only the end wakes it: then it is ended while it waits, as in the other case.
          wait_until_runnable(fiber, @turns / 50) if @way.woken
          !fiber.dead?
        end

        def run_once(fiber)
          return false if fiber.dead?

          wait_for_long(fiber)
          return false if fiber.dead? # another thread woke it, and it ran on unseen
          raise Endless, "wait point #{@point} is not left within #{@turns} turns" unless fiber.state == :runnable

          snooze
          true
        end

        def wait_for_long(fiber)
          over = real_time + @seconds
          loop do
            wait_until_runnable(fiber, @turns)
            return if %i[runnable dead].include?(fiber.state) || real_time >= over
          end
        end

        def real_time
          FakeTime::STOCK_CLOCK.call(::Process::CLOCK_MONOTONIC)
        end

        # Now and then the whole thread rests, fibers and all: the kernel may be at work elsewhere, or another thread, which may
        # wake the fiber then. Where time is virtual it would stand still, for the controller never waits.
        def wait_until_runnable(fiber, turns)
          turns.times do |turn|
            return if %i[runnable dead].include?(fiber.state)
            next snooze unless turn % 100 == 99

            Clock.__jump if Clock.stopped?
            KernelExtensions::STOCK_SLEEP.bind_call(self, 0.0002) unless fiber.state == :runnable
          end
        end

        def await(fiber)
          fiber.await
        rescue Ended
          nil
        end
      end
    end

    extend CancelEverywhere
  end
end
