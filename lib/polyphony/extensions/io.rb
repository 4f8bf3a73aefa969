# frozen_string_literal: true

require 'polyphony/extensions/fifo'

module Polyphony
  # Stock methods with a shorter way to the backend, or for which the scheduler's is wrong. In C.
  # @!visibility private
  module DirectPaths
    ::IO.prepend self
  end
  private_constant :DirectPaths

  # Closing an IO wakes the fibers that wait on it with IOError. In C.
  module IOEnd
    # @!method flush
    #   @return [IO]
    # @!method fsync
    #   @return [Integer] 0
    # @!method fdatasync
    #   @return [Integer] 0
    # @!method close
    #   @return [nil]
    # @!method close_read
    #   @return [nil]
    # @!method close_write
    #   @return [nil]
    # @!method reopen(other_or_path, mode = nil, **options)
    #   @return [self]
    ::IO.prepend self
  end
end
