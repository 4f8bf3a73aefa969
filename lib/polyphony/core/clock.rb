# frozen_string_literal: true

module Polyphony
  # The clock of all timers, in one place.
  # @!visibility private
  module Clock
    # @return [Float] seconds
    def self.now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end

  private_constant :Clock
end
