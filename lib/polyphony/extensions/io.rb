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

  # Stock methods with a shorter way to the backend. In C.
  # @!visibility private
  module DirectPaths
    ::IO.prepend self
  end
  private_constant :DirectPaths

  ::IO.prepend IOExtensions
end
