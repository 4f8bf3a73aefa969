# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# What waits for a time limit, on a server with short ones.
class TestHostileSlow < Polyphony::HostileTest
  on_every_driver
  server :short, limits: { header_time: 0.4, body_grace: 0.4, write_stall: 0.4, keep_alive: 0.4, handshake_time: 0.4,
                           h2_settings_time: 0.4, h2_stall: 0.4, ws_ping: 0.3, ws_pong: 0.3, ws_close: 0.3 }

  lines(16, 18, 19, 23, 27, 30, 33, 41, &:slow)
end
