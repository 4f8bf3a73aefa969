# frozen_string_literal: true

module Polyphony
  # A supervised fiber ended once more when all restarts that supervise allows had been used. The
  # cause is what it ended with, if that was an error.
  class TooManyRestarts < StandardError
    # @return [Fiber] the one that was not restarted again
    attr_reader :fiber

    # @param fiber [Fiber]
    # @param restarts [Integer] how many were allowed
    # @param within [Numeric, nil] in how many seconds; nil: in all
    def initialize(fiber, restarts, within)
      @fiber = fiber
      period = within ? "within #{within} seconds" : 'in all'
      super("#{fiber.inspect} was not restarted again after #{restarts} restarts #{period}")
    end
  end
end
