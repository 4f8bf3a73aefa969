# frozen_string_literal: true

module Polyphony
  # The clock of all timers, in one place. It is the monotonic one, unless a test has stopped it: see Polyphony::Testing.
  # @!visibility private
  module Clock
    # @!method self.now
    #   @return [Float] seconds
    # @!method self.nanoseconds
    #   @return [Integer]
    # @!method self.real
    #   @return [Float] seconds on the monotonic clock, whatever a test does
    # @!method self.stopped?
    #   @return [Boolean] whether a test has stopped it
    # @!method self.stopped_here?
    #   @return [Boolean] whether that is for the running thread, too
  end

  private_constant :Clock
end
