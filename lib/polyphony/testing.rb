# frozen_string_literal: true

require 'polyphony'

module Polyphony
  # For tests of concurrent programs that fail every time or never: a clock that jumps, an order of fibers that can be
  # repeated, sockets in memory, checks for what is left behind, an end at every wait, faults. Nothing of it is loaded by
  # +require 'polyphony'+.
  #
  # @example
  #   require 'polyphony/testing'
  #   Polyphony::Testing.virtual_clock { sleep 3600 }       # at once
  module Testing
  end
end

require 'polyphony/testing/virtual_clock'
require 'polyphony/testing/shuffle'
require 'polyphony/testing/network'
require 'polyphony/testing/leaks'
require 'polyphony/testing/cancel_everywhere'
require 'polyphony/testing/faults'
require 'polyphony/testing/settings'
