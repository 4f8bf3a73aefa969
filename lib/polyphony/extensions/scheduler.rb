# frozen_string_literal: true

require 'polyphony/extensions/shared_scheduler'

module Polyphony
  # Every thread has a scheduler, which Ruby asks in the fibers that are spun.
  Scheduler.__install
end
