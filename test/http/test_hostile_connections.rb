# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Line 44: many connections, and too few descriptors for them.
class TestHostileConnections < Polyphony::HostileTest
  on_every_driver
  server :crowded, crowd: 600

  lines 44

  # Slowloris, as far as one gets in a test; the real size is in bench/net/slowloris.rb.
  def test_many_clients_that_never_finish_keep_nobody_waiting
    target.fresh
    before = target.control
    slow = Array.new(500) { wire_with("GET / HTTP/1.1\r\nHost: x\r\n") }
    probes = Array.new(20) do |i|
      slow.each_slice(20) { |some| some.first.send("X-#{i}: y\r\n") }
      Polyphony::HTTP::Check::Target.new(target.url).probe
    end
    assert_equal [200], probes.map(&:first).uniq
    assert_operator probes.map(&:last).sort[10], :<, patient(0.1)
    slow.each(&:close)
    assert_nil left_behind(before)
  end
end

# Ten thousand of them are held by bench/net/holds.rb.
class TestHostileHolding < Polyphony::HostileTest
  on_every_driver
  server :holding

  def test_an_idle_connection_costs_little
    before = target.memory
    held = Array.new(500) { wire_with("GET / HTTP/1.1\r\nHost: x\r\n\r\n") }
    held.each { |wire| wire.read(patient(5)) { wire.received.end_with?("ok \n") } }
    assert_operator (target.memory - before) / held.size, :<, 40 << 10 if size_tells?
    assert(held.none? { |wire| wire.take.closed? })
  end
end

# As many connections as may be.
class TestHostileFull < Polyphony::HostileTest
  on_every_driver
  server :few, limits: { connections: 20 }
  GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
  CLOSE = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

  # Slowloris, and what is said to nobody at all.
  def test_clients_that_ask_for_nothing_make_room
    ['', "GET / HTTP/1.1\r\nHost: x\r\n", GET].each do |bytes|
      target.fresh
      before = target.control
      wires = Array.new(30) { wire_with(bytes) }
      late = wire_with(CLOSE)
      late.read(patient(10))
      assert_includes late.received, '200 OK'
      lines = target.log.grep(/refused 127\.0\.0\.1:\d+: had to make room/).size
      assert_includes 1..5, lines
      wires.each(&:close)
      assert_nil left_behind(before)
    end
  end

  def test_clients_that_ask_for_something_do_not
    busy = Array.new(20) { wire_with(GET) }
    waiting = Array.new(3) { wire_with }
    8.times do
      busy.each { |wire| wire.read(patient(5)) { wire.received.end_with?("ok \n") } }
      sleep 0.2
      busy.each { |wire| wire.received.clear && wire.send(GET) }
    end
    assert(busy.none?(&:closed?))
    waiting.each(&:close)
  end

  def test_it_does_not_spin_while_it_waits
    Array.new(20) { wire_with("POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n") }
    late = wire_with(CLOSE)
    before = target.cpu
    late.read(1) { false }
    assert_empty late.received
    assert_operator target.cpu - before, :<=, 0.1
  end
end

# The same when the kernel sets the limit.
class TestHostileDescriptors < Polyphony::HostileTest
  on_every_driver
  server :poor, descriptors: 48

  def test_without_descriptors_accepting_pauses_and_goes_on
    before = target.control
    wires = Array.new(80) { wire_with }
    late = wire_with("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    cpu = target.cpu
    late.read(1) { false }
    assert_empty late.received
    assert_operator target.cpu - cpu, :<=, 0.1
    wires.each(&:close)
    late.read(patient(5))
    assert_includes late.received, '200 OK'
    assert_equal 1, target.complaints.scan('waiting for descriptors').size, target.complaints
    assert_nil left_behind(before)
  end
end

# A connection that was reset while it waited to be accepted.
class TestHostileAccept < Polyphony::TestCase
  on_every_driver

  # What it has sent can still be read, but not who it was: as on a unix socket.
  def test_nobody_is_not_taken_for_a_local_client
    peers = []
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) { |request| peers << request.peer and request.respond('') }
    gone = TCPSocket.new('127.0.0.1', server.port)
    gone << "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    gone.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    gone.close
    server.start
    assert_equal 200, Polyphony::HTTP::Check::Target.new(server.url).probe.first
    assert_equal ['127.0.0.1'], peers
    server.stop(within: 0)
  end
end
