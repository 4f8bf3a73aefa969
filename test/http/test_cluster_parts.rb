# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'polyphony/http/launcher'

# What master and workers share, and what systemd says and hears.
class TestHTTPClusterParts < Polyphony::TestCase
  on_every_driver

  Scoreboard = Polyphony::HTTP::Scoreboard
  Stats = Polyphony::HTTP::Stats
  Systemd = Polyphony::HTTP::Systemd
  ANSWERED = Struct.new(:status, :sent).new(200, 10)

  def stats(requests, open = 0)
    Stats.new(durations: true).tap do |one|
      one.open = open
      requests.times do
        one.__counts.began
        one.__counts.over(ANSWERED)
        one.took(0.002)
      end
    end
  end

  # --- the scoreboard ----------------------------------------------------------------------------

  def test_what_a_process_wrote_others_read
    board = Scoreboard.new
    place = board.take(number: 3, generation: 2)
    pid = Polyphony.fork { board.write(place, number: 3, generation: 2, stats: stats(5, 2), lag: 0.25, memory: 4096) }
    ::Process.wait(pid)
    entry = board.entries.find { |one| one.place == place }
    assert_equal [pid, 3, 2, :serving, 0.25, 4096], [entry.pid, entry.number, entry.generation, entry.state, entry.lag, entry.memory]
    assert_equal '2 connections, 0 running, 5 requests', entry.to_s
    assert_equal [5, 5, { 2 => 5 }], [entry.stats.requests, entry.stats.durations.sum, entry.stats.by_class.reject { |_, n| n.zero? }]
    assert_in_delta 0.01, entry.stats.seconds, 0.0001
  ensure
    board&.close
  end

  def test_what_was_counted_stays_when_its_process_is_gone
    board = Scoreboard.new
    places = Array.new(2) { |i| board.take(number: i + 1, generation: 1) }
    places.each { |place| board.write(place, stats: stats(10, 4)) }
    assert_equal [20, 8], [board.total.requests, board.total.open]
    board.leave(places.first)
    assert_equal [20, 4], [board.total.requests, board.total.open]
    assert_equal places.first, board.take(number: 3, generation: 1)
    assert_equal 20, board.total.requests
    assert_nil board.leave(77)
  ensure
    board&.close
  end

  def test_who_has_more_connections_than_others_is_crowded
    board = Scoreboard.new
    counts = [0, 0]
    shares = [1, 2].map { |place| board.share(place, 8) { counts[place - 1] } }
    crowded = lambda do |*now|
      counts.replace(now)
      shares.each(&:crowded?)
      shares.map(&:crowded?)
    end
    assert_equal [false, false], crowded.call(0, 0)
    assert_equal [false, false], crowded.call(2, 0)
    assert_equal [true, false], crowded.call(3, 0)
    assert_equal [false, false], crowded.call(110, 100)
    assert_equal [false, true], crowded.call(100, 115)
    shares.first.leave
    refute shares.last.crowded?
  ensure
    board&.close
  end

  # --- systemd -----------------------------------------------------------------------------------

  def test_only_the_process_that_is_meant_gets_sockets
    env = { 'LISTEN_PID' => ::Process.pid.to_s, 'LISTEN_FDS' => '2', 'LISTEN_FDNAMES' => 'web' }
    assert_equal({ 3 => 'web', 4 => 'unknown' }, Systemd.new(env).sockets)
    assert_empty env
    assert_empty Systemd.new({ 'LISTEN_PID' => '1', 'LISTEN_FDS' => '2' }).sockets
    assert_empty Systemd.new({ 'LISTEN_PID' => ::Process.pid.to_s, 'LISTEN_FDS' => 'x' }).sockets
    assert_empty Systemd.new({}).sockets
  end

  def test_it_is_told_over_a_socket_without_a_file
    name = "polyphony-test-#{::Process.pid}"
    socket = track(Socket.new(:UNIX, :DGRAM))
    socket.bind(Socket.pack_sockaddr_un("\0#{name}"))
    systemd = Systemd.new({ 'NOTIFY_SOCKET' => "@#{name}", 'WATCHDOG_USEC' => '500000', 'WATCHDOG_PID' => ::Process.pid.to_s })
    assert systemd.notify(ready: 1, status: "two\nlines")
    assert_equal "READY=1\nSTATUS=two lines", socket.recv(100)
    assert_equal 0.5, systemd.interval
  end

  def test_nobody_to_tell_is_no_error
    refute Systemd.new({}).notify(ready: 1)
    refute Systemd.new({ 'NOTIFY_SOCKET' => '/nonexistent/socket' }).notify(ready: 1)
    refute Systemd.new({ 'NOTIFY_SOCKET' => "/#{'x' * 300}" }).notify?
    assert_nil Systemd.new({ 'WATCHDOG_USEC' => '500000', 'WATCHDOG_PID' => '1' }).interval
  end

  # --- numbers -----------------------------------------------------------------------------------

  def test_durations_are_counted_in_classes
    one = Stats.new(durations: true)
    [0.0005, 0.001, 0.0011, 0.3, 11].each { |seconds| one.took(seconds) }
    assert_equal [2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], one.durations
    assert_nil Stats.new.durations
  end

  # --- files -------------------------------------------------------------------------------------

  def test_a_handler_is_a_file_s_last_value_or_what_it_runs
    Dir.mktmpdir do |folder|
      load = lambda do |code|
        File.write("#{folder}/app.rb", code)
        Polyphony::HTTP::HandlerFile.load("#{folder}/app.rb")
      end
      assert_equal 2, load.call('->(request) { request * 2 }').call(1)
      assert_equal 3, load.call("run { |request| request * 3 }\nnil.to_a").call(1)
      assert_equal 4, load.call("class TestHandlerFileApp; def self.call(n) = n * 4; end\nrun TestHandlerFileApp").call(1)
      assert_equal 'TestHandlerFileApp', TestHandlerFileApp.name
      error = assert_raises(Polyphony::HTTP::ConfigError) { load.call(':nothing.itself') }
      assert_match(/app\.rb has no handler.*it was :nothing/, error.message)
      refute TOPLEVEL_BINDING.receiver.singleton_methods.include?(:run)
    end
  end
end
