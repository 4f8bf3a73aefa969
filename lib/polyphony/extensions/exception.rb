# frozen_string_literal: true

module Polyphony
  # A backtrace tells the whole story: after the frames of the fiber that raised come those of the place
  # where it was spun, then its parent's, without the library's own. In C.
  module ExceptionBacktrace
    # @!method backtrace
    #   Where it was raised, and where the fibers came from.
    #   @return [Array<String>, nil] nil before it was raised; lines set by hand are left alone

    ::Exception.prepend self
  end
end
