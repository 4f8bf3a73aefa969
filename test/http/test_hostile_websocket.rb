# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Lines 37 to 41 of the list.
class TestHostileWebSocket < Polyphony::HostileTest
  on_every_driver
  server :default

  lines(*37..41) { |one| !one.slow }
end
