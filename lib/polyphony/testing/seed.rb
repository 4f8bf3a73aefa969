# frozen_string_literal: true

module Polyphony
  module Testing
    # Where chance begins: what was given, else POLYPHONY_SEED, else anything.
    # @api private
    module Seed
      LIMIT = 1 << 32
      VARIABLE = 'POLYPHONY_SEED'

      class << self
        # @return [Integer] below 2**32
        def from(seed)
          return check(seed, 'seed') unless seed.nil?

          given? ? check(ENV[VARIABLE], VARIABLE) : Random.rand(LIMIT)
        end

        # @return [Boolean] whether somebody wants a run to be repeated
        def given?
          !ENV[VARIABLE].to_s.empty?
        end

        # In words, for messages.
        def words(seed, what)
          "#{what} came from seed #{seed}; #{VARIABLE}=#{seed} repeats it"
        end

        private

        def check(seed, name)
          number = seed.is_a?(Integer) ? seed : Integer(seed.to_s, exception: false)
          return number if number&.between?(0, LIMIT - 1)

          raise ArgumentError, "#{name} must be an Integer from 0 to #{LIMIT - 1}, got #{seed.inspect}"
        end
      end
    end

    private_constant :Seed

    class << self
      # Runs the block, and writes something to standard error if it fails. A skipped test is no failure, nor is a stop.
      # @!visibility private
      def __tell_on_failure(text)
        yield
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- told, and raised again
        $stderr.puts "polyphony: #{text.call}" unless harmless?(e)
        raise
      end

      private

      def harmless?(error)
        error.is_a?(::SystemExit) || error.is_a?(Polyphony::BaseException) || error.class.name == 'Minitest::Skip'
      end
    end
  end
end
