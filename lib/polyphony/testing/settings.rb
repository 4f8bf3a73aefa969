# frozen_string_literal: true

module Polyphony
  module Testing
    # What the helpers for minitest and RSpec do around a test.
    # @api private
    class Settings
      DEFAULTS = { leaks: true, virtual_clock: false, shuffle: false }.freeze

      attr_reader :seed

      def initialize(**settings)
        unknown = settings.keys - DEFAULTS.keys
        raise ArgumentError, "polyphony has the settings #{DEFAULTS.keys.join(', ')}, but no #{unknown.first}" if unknown.any?

        @settings = DEFAULTS.merge(settings)
      end

      def merge(**changes)
        Settings.new(**@settings, **changes)
      end

      def leaks?
        @settings[:leaks] && true
      end

      # Runs the block, which does not raise: test frameworks keep what is raised.
      def around(&block)
        block = in_virtual_time(block) if @settings[:virtual_clock]
        block = shuffled(block) if @settings[:shuffle]
        block.call
      end

      # Ends what the test has left running, so that the next one does not see it.
      def self.clean_up
        Fiber.current.shutdown_all_children
      rescue ::StandardError, Polyphony::BaseException => e
        warn "polyphony: while fibers were shut down: #{e.class}: #{e.message}"
      end

      private

      def in_virtual_time(block)
        options = @settings[:virtual_clock].is_a?(Hash) ? @settings[:virtual_clock] : {}
        -> { Testing.virtual_clock(**options) { block.call } }
      end

      def shuffled(block)
        seed = @settings[:shuffle].is_a?(Integer) ? @settings[:shuffle] : nil
        -> { Testing.shuffle(seed: seed) { |number| @seed = number; block.call } }
      end
    end

    private_constant :Settings

    # The words of the kit, for tests.
    module Helpers
      include CancelEverywhere

      # @see Testing.virtual_clock
      # @return [Object] what the block returns
      def virtual_clock(...) = Testing.virtual_clock(...)

      # @see Testing.shuffle
      # @return [Object] what the block returns
      def shuffle(...) = Testing.shuffle(...)

      # @see Testing.network
      # @return [Network]
      def network(...) = Testing.network(...)

      # @see Testing.faults
      # @return [Object] what the block returns
      def faults(...) = Testing.faults(...)

      # @see Testing.no_leaks
      # @return [Object] what the block returns
      def no_leaks(...) = Testing.no_leaks(...)
    end
  end
end
