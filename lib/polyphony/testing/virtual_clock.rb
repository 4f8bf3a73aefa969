# frozen_string_literal: true

require 'polyphony/testing/fake_time'

module Polyphony
  module Testing
    # Time that stands still while any fiber runs and jumps to the next deadline when all wait. See Testing.virtual_clock.
    class VirtualClock
      # Seconds of real time that operations in flight have to be quiet for before time jumps.
      SETTLE = 0.01

      class << self
        # @!visibility private
        def __run(settle, fake)
          clock, before = enter(settle, fake)
          yield clock
        ensure
          leave(before) if clock
        end

        private

        # A block within a block: the same clock, with the inner one's settings until its end.
        def enter(settle, fake)
          nanoseconds = check(settle)
          before = @settings
          apply([nanoseconds, fake ? true : false])
          [@clock ||= new, before]
        end

        def leave(before)
          return apply(before) if before

          @clock = @settings = nil
          FakeTime.off
          Clock.__go_on
        end

        def apply(settings)
          @settings = settings
          Clock.__stop(settings.first)
          settings.last ? FakeTime.on : FakeTime.off
        end

        def check(settle)
          return -1 if settle.nil? || settle == Float::INFINITY
          return (settle * 1_000_000_000).ceil if settle.is_a?(Numeric) && settle.real? && settle >= 0

          raise ArgumentError, 'settle is how many seconds operations in flight have to be quiet for, or nil for never while ' \
                               "there are any, got #{settle.inspect}"
        end
      end

      # @!visibility private
      def initialize
        @began = Clock.nanoseconds
      end

      # @return [Float] seconds since the block began, as fibers see it
      def elapsed
        (Clock.nanoseconds - @began) / 1e9
      end

      # Lets time pass: everything that is due until then happens, in order. The same as +sleep+ in a fiber that nobody wakes.
      # @param seconds [Numeric]
      # @return [Float] what is elapsed then
      def advance(seconds)
        raise ArgumentError, "time goes forward only, got #{seconds.inspect}" if seconds.negative?

        left = (seconds * 1_000_000_000).round
        due = Clock.nanoseconds + left
        begin
          Polyphony.backend_sleep(Rational(left, 1_000_000_000)) # at least once: others run
        end while (left = due - Clock.nanoseconds).positive?
        elapsed
      end

      # Runs other fibers until all of them wait, without letting time pass.
      # @return [Float] what is elapsed
      def settle
        advance(0)
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{elapsed.round(3)} s>"
      end
    end

    class << self
      # Runs the block in virtual time: it stands still while any fiber runs, and jumps to the next deadline when all fibers
      # wait. Sleeps, time limits, +after+, +every+, timers, throttlers, back-off, idle times and deadlines follow it and take no
      # time.
      #
      # There is one clock for all threads. It jumps when the main thread and all threads that were begun with Polyphony wait; a
      # thread that computes holds it, and so does work in +Polyphony.blocking+ and a lookup of a name. Threads that were there
      # before Polyphony do not count.
      #
      # Operations of the kernel go on in real time. While some are in flight, the clock jumps only when nothing happened for
      # +settle+ seconds. With sockets in memory (Testing.network) there are none, and nothing depends on luck.
      #
      # When the block is over, time goes on from where it is. A block within a block uses the same clock. A forked child has a
      # copy that goes on by itself.
      #
      # @param settle [Numeric, nil] seconds; 0: one look is enough; nil: never jumps while an operation is in flight
      # @param fake [Boolean] whether Time.now, Time.new and Process.clock_gettime follow, in the threads that count
      # @yield [VirtualClock]
      # @return [Object] what the block returns
      # @example
      #   Polyphony::Testing.virtual_clock do |clock|
      #     sleep 3600
      #     clock.elapsed                                     #=> 3600.0
      #   end
      def virtual_clock(settle: VirtualClock::SETTLE, fake: true, &block)
        raise ArgumentError, 'virtual_clock needs a block to run' unless block

        VirtualClock.__run(settle, fake, &block)
      end
    end
  end
end
