# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Lines 24 to 36 of the list.
class TestHostileHTTP2 < Polyphony::HostileTest
  on_every_driver
  server :default
  time_limit 120

  lines(*24..36) { |one| !one.slow }

  # 25: not every stream of a flood runs a handler.
  def test_a_rapid_reset_starts_no_more_handlers_than_the_limits_allow
    before = target.control[:handlers]
    check_with.attempt(Polyphony::HTTP::Check::CASES.find { |one| one.id == '25a' })
    probes = 100
    assert_operator target.control[:handlers] - before, :<, 100 + 200 + probes
  end

  # 31: nobody reads it, so the window stays as it is.
  def test_data_beyond_the_window_is_an_error
    client = connect
    client.send(request(client, 1, '/deaf'), *Array.new(20) { client.frame(:data, 0, 1, 'x' * 16_000) })
    client.pump(patient(5)) { client.goaway || client.resets.any? }
    assert_includes [client.goaway, *client.resets.values], 'FLOW_CONTROL_ERROR'
  end

  # 30: a stream without a window costs no more than what is waiting for it.
  def test_answers_that_nobody_takes_are_not_made
    before = target.memory
    client = connect({ 4 => 0 })
    client.send(*Array.new(60) { |i| request(client, 2 * i + 1, '/large', flags: 5) })
    client.pump(0.5) { false }
    assert_operator target.memory - before, :<, 8 << 20 if size_tells?
  end

  private

  def connect(settings = {})
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    wire = Polyphony::HTTP::Check::Target.new(target.url).connect
    track(wire.socket)
    client = Polyphony::HTTP::Check::H2Client.new(wire)
    client.start(settings)
    client.pump(patient(5)) { client.settled? }
    client
  end

  def request(client, id, path, flags: 4)
    fields = [[':method', flags == 5 ? 'GET' : 'POST'], [':scheme', 'http'], [':path', path], [':authority', 'x']]
    client.headers(id, fields, flags: flags)
  end
end

# Each request has a fiber, and a process has some 30,000 of them at most.
class TestHostileStreams < Polyphony::HostileTest
  on_every_driver
  server :streams, limits: { h2_running: 50 }

  def setup
    skip 'without libnghttp2' unless Polyphony::HTTP.http2?
  end

  def test_requests_of_all_connections_together_are_limited
    problems = conditions do
      clients = Array.new(5) { client_with(40) }
      clients.each { |client| client.pump(0.3) { false } }
      refused = clients.sum { |client| client.resets.values.count('REFUSED_STREAM') }
      assert_operator refused, :>, 0
      assert_operator target.control[:running], :<=, 50 + 40 + clients.size
      assert_served # one of each connection always is
      clients.each { |client| client.wire.close }
    end
    assert_empty problems
  end

  private

  # So many requests whose bodies never come.
  def client_with(count)
    client = Frames.new(Polyphony::HTTP::Check::Target.new(target.url).connect)
    track(client.wire.socket)
    client.start
    client.pump(patient(5)) { client.settled? }
    client.send(*Array.new(count) { |i| client.headers(2 * i + 1, FIELDS, flags: 4) })
    client
  end

  def assert_served
    client = client_with(0)
    client.send(client.headers(1, [[':method', 'GET'], *FIELDS[1, 1], [':path', '/'], FIELDS.last]))
    client.pump(patient(5)) { client.ended[1] || client.resets[1] }
    assert_equal 200, client.statuses[1]
    client.wire.close
  end

  Frames = Polyphony::HTTP::Check::H2Client
  FIELDS = [[':method', 'POST'], [':scheme', 'http'], [':path', '/sink'], [':authority', 'x']].freeze
end
