# frozen_string_literal: true

# What a process under test loads first: Polyphony, with a backend open and a fiber that beats, so that
# every wait of the root fiber has somebody to give way to. COMPAT_BEAT=no leaves the beat out.

module Polyphony
  # :nodoc:
  module Compat
    # As Ruby made it: the records of the tests are not written by what is being tested.
    STOCK_WRITE = IO.instance_method(:syswrite)

    # Counts how long the loop stood still. A test whose waits all give way has a gap of some
    # milliseconds; a wait that blocks the thread shows in full.
    module Beat
      PERIOD = 0.005

      class << self
        # @return [Float] seconds, of the longest time without a beat since the last start
        def stop
          beat
          @gap
        end

        def start
          @last = now
          @gap = 0.0
        end

        # @return [Boolean] whether there is a beat
        def on?
          !@last.nil?
        end

        def spin
          start
          Fiber.current.spin(:beat) do
            loop do
              Polyphony.backend_sleep(PERIOD)
              beat
            end
          end
        end

        private

        def beat
          time = now
          @gap = [@gap, time - @last].max
          @last = time
        end

        def now
          ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
        end
      end
    end
  end
end

require 'polyphony'
Polyphony::Compat::Beat.spin unless ENV['COMPAT_BEAT'] == 'no'
