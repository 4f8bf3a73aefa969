# frozen_string_literal: true

require 'polyphony/testing/seed'

module Polyphony
  module Testing
    class << self
      # Runs the block while the order of runnable fibers is drawn by lot: of all that could run, any may be next. What works only
      # because fibers happen to run in order of arrival fails then. The same seed draws the same order, as long as nothing else is up to
      # chance: use the virtual clock, and sockets in memory, with it. If the block raises, the seed is written to standard error.
      #
      # It holds for all threads; between threads, Ruby's own order stays. Fibers that were scheduled with priority come first as ever.
      #
      # @param seed [Integer, nil] from 0 to 2**32 - 1; nil: that of the environment variable POLYPHONY_SEED, or a new one
      # @param runs [Integer] how often the block is called, each time with the next seed; once if POLYPHONY_SEED says which one
      # @yield [Integer] the seed
      # @return [Object] what the block returns, the last time
      # @example
      #   Polyphony::Testing.shuffle(runs: 100) { assert_equal 0, transfer_between_accounts }
      def shuffle(seed: nil, runs: 1)
        raise ArgumentError, 'shuffle needs a block to run' unless block_given?
        raise ArgumentError, "runs must be a positive Integer, got #{runs.inspect}" unless runs.is_a?(Integer) && runs.positive?

        runs = 1 if seed.nil? && Seed.given?
        first = Seed.from(seed)
        (first...first + runs).inject(nil) { |_, one| shuffle_once(one % Seed::LIMIT) { |number| yield number } }
      end

      private

      def shuffle_once(seed)
        outer = @order
        Polyphony.__lots = @order = seed
        __tell_on_failure(-> { Seed.words(seed, 'the order of fibers') }) { yield seed }
      ensure
        Polyphony.__lots = @order = outer
      end
    end
  end
end
