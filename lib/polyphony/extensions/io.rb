# frozen_string_literal: true

module Polyphony
  # Closing an IO wakes the fibers that wait on it with IOError.
  module IOExtensions
    # @return [nil]
    def close
      Polyphony.__release_waiters__(self) unless closed?
      super
    end
  end

  ::IO.prepend IOExtensions
end
