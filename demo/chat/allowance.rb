# frozen_string_literal: true

module Demo
  module Chat
    # So many at once, then so many a second: a bucket that fills up again with time.
    class Allowance
      def initialize(burst, per_second)
        @burst = burst
        @per_second = per_second
        @left = Float(burst)
        @at = now
      end

      # @return [Boolean] whether one more is fine
      def take
        refill
        return false if @left < 1

        @left -= 1
        true
      end

      # @return [Float] seconds until one more will be
      def wait
        refill
        [(1 - @left) / @per_second, 0.0].max
      end

      private

      def refill
        time = now
        @left = [@left + ((time - @at) * @per_second), @burst].min
        @at = time
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
