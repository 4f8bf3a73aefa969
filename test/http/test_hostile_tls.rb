# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'
require_relative '../support/tls'

# Lines 42 and 43 of the list, and some of the others over TLS.
class TestHostileTLS < Polyphony::HostileTest
  on_every_driver
  identity = Polyphony::TLS.identity('localhost', '127.0.0.1')
  server :tls, tls: { cert: identity.cert.to_pem, key: identity.key.to_pem },
               limits: { handshake_time: 0.5, header_time: 0.5, keep_alive: 0.5, write_stall: 0.5 }, crowd: 60

  def self.secure(*numbers, &choose)
    lines(*numbers, url: :tls, &choose)
  end

  secure(42, 43)
  secure(23) { |one| one.needs != :plain }
  secure(6, 19, 20, 25, 29) { |one| one.needs != :plain }

  # 43: a body that ends without a goodbye was cut off, perhaps by somebody in between.
  def test_a_body_that_ends_without_close_notify_is_not_taken_for_whole
    before = target.control
    wire = Polyphony::HTTP::Check::Target.new(target.urls.last, insecure: true).connect
    track(wire.socket)
    wire.send("POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    sleep 0.01 until target.control[:begun] > before[:begun]
    wire.socket.close_write
    wire.read(patient(5))
    refute_includes wire.received, '200 OK'
    assert_equal before[:errors], target.control[:errors]
  end

  # 42: whoever hesitates keeps nobody else waiting.
  def test_handshakes_that_are_never_finished_do_not_keep_others_waiting
    checked = Polyphony::HTTP::Check::Target.new(target.urls.last, insecure: true)
    wires = Array.new(50) { checked.connect_plain.tap { |wire| track(wire.socket) } }
    limit = patient(0.1)
    best = shortest(limit, tries: 5) do
      status, seconds = checked.probe
      assert_equal 200, status
      seconds
    end
    assert_operator best, :<, limit
    wires.each { |wire| wire.read(patient(5)) }
    assert(wires.all?(&:closed?))
  end
end
