# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Lines 1 to 21 of the list, on a server with default limits.
class TestHostileHTTP1 < Polyphony::HostileTest
  on_every_driver
  server :default

  lines(*1..17, 20, 21, 23) { |one| !one.slow && one.needs != :tls }

  # A handler that answers without reading must not make a difference to where a request ends.
  def test_bad_bodies_that_nobody_reads_are_not_taken_for_requests
    check = check_with(sink: '/')
    cases = Polyphony::HTTP::Check::CASES.select { |one| [7, 8, 9, 10].include?(one.line) }
    answers = cases.to_h { |one| [one.id, check.attempt(one).got] }
    assert_empty(answers.select { |id, got| got.start_with?('200 2') && id != '8q' })
  end

  def test_a_million_chunks_take_less_than_a_second_of_cpu_time
    one = Polyphony::HTTP::Check::CASES.find { |this| this.id == '11a' }
    before = target.cpu
    check_with.attempt(one)
    volume = 50_000 / 1_000_000.0
    assert_operator target.cpu - before, :<, patient(0.15 + volume)
  end

  def test_the_dash_form_of_a_header_wins
    [%w[X-Forwarded-For X_Forwarded_For], %w[X_Forwarded_For X-Forwarded-For]].each do |names|
      lines = names.map { |name| "#{name}: #{name.include?('_') ? 'evil' : 'good'}\r\n" }.join
      assert_includes raw("GET / HTTP/1.1\r\nHost: x\r\n#{lines}Connection: close\r\n\r\n"), "ok good\n"
    end
  end

  def test_framing_and_credentials_in_trailers_are_not_shown_to_the_application
    trailers = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: x\r\nAuthorization: x\r\nCookie: x\r\nX-Sum: 1\r\n"
    answer = raw("POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n#{trailers}\r\n")
    assert_includes answer, "1 x-sum\n"
  end

  # 20: whatever the client does, the handler's ensure blocks run.
  def test_a_handler_comes_to_its_end_when_its_client_goes
    %i[close reset].each do |way|
      before = target.control
      wires = Array.new(10) { open_wire("GET /large HTTP/1.1\r\nHost: x\r\n\r\n") }
      wires.each { |wire| wire.read(patient(5)) { wire.received.bytesize > 1_000 } }
      wires.each(&way)
      eventually { target.control.values_at(:begun, :ended) == before.values_at(:begun, :ended).map { |n| n + 10 } }
      assert_equal before[:errors], target.control[:errors]
    end
  end

  def test_a_handler_that_reads_comes_to_its_end_when_its_client_goes
    before = target.control
    wires = Array.new(10) { open_wire("POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc") }
    eventually { target.control[:begun] == before[:begun] + 10 }
    wires.each_slice(2) { |one, two| [one.close, two.reset] }
    eventually { target.control[:ended] == before[:ended] + 10 }
    assert_equal before[:errors], target.control[:errors]
  end

  # 17: while nobody reads, nothing is run beyond what fits into the buffers.
  def test_a_pipeline_without_a_reader_is_not_worked_off
    before = target.control[:handlers]
    wire = open_wire('')
    wire.socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, 4_096)
    wire.send("GET / HTTP/1.1\r\nHost: x\r\nX: #{'a' * 900}\r\n\r\n" * 10_000, within: 1, mute: true)
    assert_operator target.control[:handlers] - before, :<=, 1_002
  end

  def test_a_connection_ends_after_its_requests
    wire = open_wire('')
    wire.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_100)
    wire.read(patient(10))
    answers = Polyphony::HTTP::Check::Answers.new(wire.received, ended: true)
    assert_equal [200] * 1_000, answers.statuses
    assert_equal 'close', answers.finals.last.headers['connection']
  end

  private

  def open_wire(bytes)
    wire = Polyphony::HTTP::Check::Target.new(target.url).connect
    track(wire.socket)
    wire.send(bytes)
    wire
  end

  def raw(bytes)
    wire = open_wire(bytes)
    wire.read(patient(5))
    wire.received
  end

  def eventually
    finish = clock + patient(3)
    until (done = yield)
      break if clock > finish

      sleep 0.02
    end
    assert done, 'it did not come to that'
  end
end
