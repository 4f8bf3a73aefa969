# frozen_string_literal: true

module Polyphony
  module Testing
    class << self
      # Runs the block while operations go wrong by chance, in all threads and on both drivers in the same way. Chances are numbers from 0
      # to 1.
      #
      # Nothing is lost by +short_read+, +short_write+, +eintr+, +eagain+ and +ecanceled+: what a program reads and writes stays the same. +enomem+, +emfile+,
      # +econnreset+, +eio+ and +enospc+ are raised, as Errno::ENOMEM and so on, by operations that have not begun then.
      #
      # If the block raises, the seed is written to standard error.
      # @param seed [Integer, nil] nil: that of the environment variable POLYPHONY_SEED, or a new one
      # @param chances [Hash{Symbol => Numeric}] see Faults.names
      # @yield [Faults] whose +counts+ tell what has happened
      # @return [Object] what the block returns
      # @example
      #   Polyphony::Testing.faults(short_write: 0.5, econnreset: 0.01) { client.upload(file) }
      def faults(seed: nil, **chances)
        raise ArgumentError, 'faults needs a block to run' unless block_given?

        seed = Seed.from(seed)
        before = Faults.__use(chances.merge(seed: seed))
        __tell_on_failure(-> { Seed.words(seed, 'faults') }) { yield Faults }
      ensure
        Faults.__use(before) if before
      end
    end
  end
end
