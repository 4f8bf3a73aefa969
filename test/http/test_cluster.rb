# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/served'
require 'polyphony/http'

# Master and workers, as processes.
class TestHTTPCluster < Polyphony::TestCase
  on_every_driver

  include Polyphony::TwoWorkers

  def test_workers_serve_and_the_master_stops_them
    serve
    pids = @served.workers.keys
    assert_includes pids, @served.who
    @served.eventually('a title') { @served.title.match?(/polyphony: master http.*\[2 workers, /) }
    assert_equal 0, @served.stop
    assert_empty(pids.select { |pid| File.exist?("/proc/#{pid}") })
    assert_match(/TERM: stopping 2 workers, 0 requests in progress/, @served.log)
  end

  def test_a_request_in_progress_is_finished
    serve
    slow = spin { @served.get('/slow') }
    @served.eventually('a slow request') { !Dir["#{@served.folder}/slow.*"].empty? }
    @served.signal(:TERM)
    assert_equal 200, slow.await.first
    assert_equal 0, @served.wait.exitstatus
  end

  def test_who_comes_while_it_stops_is_refused_and_not_left_waiting
    serve
    hanging = spin { outcome { @served.get('/hang') } }
    @served.eventually('a request that hangs') { !Dir["#{@served.folder}/hang.*"].empty? }
    @served.signal(:TERM)
    @served.eventually('a refusal') { outcome { TCPSocket.new('127.0.0.1', @served.port).close }.is_a?(Errno::ECONNREFUSED) }
    @served.signal(:TERM)
    assert_kind_of IOError, hanging.await
  end

  def test_who_waits_to_be_accepted_when_it_stops_is_answered
    serve
    workers = @served.workers.keys
    workers.each { |pid| @served.signal(:STOP, pid) }
    clients = Array.new(60) { track(TCPSocket.new('127.0.0.1', @served.port)) }
    clients.each { |client| client.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n") }
    @served.signal(:TERM)
    @served.await(/TERM: stopping/)
    workers.each { |pid| @served.signal(:CONT, pid) }
    assert_equal [200] * 60, clients.map { |client| @served.answer(client).first }
    assert_equal 0, @served.wait.exitstatus
  end

  def test_the_second_signal_cuts_it_short
    serve
    hanging = spin { outcome { @served.get('/hang') } }
    @served.eventually('a request that hangs') { !Dir["#{@served.folder}/hang.*"].empty? }
    @served.signal(:TERM)
    @served.await(/TERM: stopping/)
    @served.signal(:INT)
    assert_kind_of IOError, hanging.await
    assert_equal 0, @served.wait.exitstatus
  end

  def test_a_signal_to_the_whole_group_is_one_signal
    serve
    slow = spin { @served.get('/slow') }
    @served.eventually('a slow request') { !Dir["#{@served.folder}/slow.*"].empty? }
    ::Process.kill(:INT, -@served.pid)
    assert_equal 200, slow.await.first
    assert_equal 0, @served.wait.exitstatus
  end

  def test_a_worker_that_is_killed_is_replaced
    serve
    victim = @served.who
    @served.signal(:KILL, victim)
    @served.await(/worker \d \(process #{victim}\) was killed by SIGKILL.*its last word was: \d+ connections/)
    @served.await(/worker \d is ready/)
    assert_equal 2, @served.workers.size
    refute_includes @served.workers.keys, victim
    assert_equal 0, @served.stop
  end

  def test_a_worker_that_does_not_tick_is_killed_and_says_where_it_was
    serve('--worker-timeout', '0.6')
    stuck = spin { outcome { @served.get('/compute') } }
    @served.await(/worker \d \(process \d+\) has not ticked for .* s: TERM; its last word was: \d+ connections/)
    @served.await(/TERM: worker \d has not ticked .* and is here:/)
    @served.await(/app\.rb:\d+/)
    @served.await(/has not ended in time: KILL/)
    @served.await(/was killed by SIGKILL/)
    assert_kind_of IOError, stuck.await
    @served.eventually('two workers') { @served.workers.values.grep(/worker \d \[\d+ conn/).size == 2 }
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  # One after the other: a burst is over before a worker that has to wait for a processor sees it.
  def test_connections_are_shared_evenly
    serve
    sockets = Array.new(40) do
      track(TCPSocket.new('127.0.0.1', @served.port)).tap { |socket| @served.ask(socket, '/', 'connection' => 'keep-alive') }
    end
    counts = @served.eventually('forty connections') do
      found = @served.workers.values.map { |title| title[/\[(\d+) conn/, 1].to_i }
      found if found.sum == 40
    end
    assert_operator counts.min, :>=, 8, counts.inspect
    sockets.each(&:close)
    assert_equal 0, @served.stop
  end

  def test_a_worker_without_descriptors_waits_without_spinning
    @served = Polyphony::Served.new('--workers', '1', rlimit_nofile: 48)
    @served.eventually('a worker') { @served.workers.values.grep(/conn/).size == 1 }
    pid = @served.workers.keys.first
    sockets = Array.new(60) { track(TCPSocket.new('127.0.0.1', @served.port)) }
    @served.eventually('all descriptors in use') { Dir["/proc/#{pid}/fd/*"].size >= 47 }
    @served.await(/accepting at http.* pauses: Too many open files/)
    before = ticks_of(pid)
    sleep 0.5
    assert_operator ticks_of(pid) - before, :<, 20 # of 50
    sockets.each(&:close)
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  def test_workers_can_be_added_and_taken_away
    serve
    @served.signal(:TTIN)
    @served.await(/TTIN: 3 workers/)
    @served.eventually('three workers') { @served.workers.values.grep(/worker 3 \[\d+ conn/).size == 1 }
    2.times { |i| @served.signal(:TTOU) && @served.await(/TTOU: #{2 - i} worker/) }
    @served.eventually('one worker') { @served.workers.size == 1 }
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  def test_when_no_worker_can_start_it_gives_up
    @served = Polyphony::Served.new('--workers', '2', '--no-preload', app: "raise 'cannot be'")
    assert_equal 1, @served.wait.exitstatus
    assert_match(/error in worker 1: cannot be \(RuntimeError\)/, @served.log)
  end

  def test_workers_end_when_their_master_is_killed
    serve
    pids = @served.workers.keys
    @served.signal(:KILL)
    @served.eventually('an end of all') { pids.none? { |pid| running?(pid) } }
    @served.wait
  end

  def test_a_worker_that_dies_young_again_and_again_is_given_pauses
    serve('--no-preload')
    File.write("#{@served.folder}/app.rb", "raise 'broken by an update'")
    @served.signal(:KILL, @served.who)
    3.times { @served.await(/error in worker \d: broken by an update/) }
    @served.await(/died young: the next one is started in/)
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  def test_hooks_run_in_each_worker
    folder = Dir.mktmpdir
    FileUtils.mkdir_p("#{folder}/config")
    File.write("#{folder}/config/polyphony.rb", <<~RUBY)
      workers 2
      on_worker_start { |number| File.write("started.\#{number}", Process.pid.to_s) }
      on_worker_stop { |number| File.write("stopped.\#{number}", Process.pid.to_s) }
    RUBY
    @served = Polyphony::Served.new(folder: folder)
    @served.eventually('two workers') { @served.workers.values.grep(/worker \d \[\d+ conn/).size == 2 }
    pids = @served.workers.keys.map(&:to_s).sort
    assert_equal 0, @served.stop
    assert_equal(pids, [1, 2].map { |number| File.read("#{folder}/started.#{number}") }.sort)
    assert_equal(pids, [1, 2].map { |number| File.read("#{folder}/stopped.#{number}") }.sort)
  end

  private

  # @return [Integer] hundredths of a second of processor time
  def ticks_of(pid)
    File.read("/proc/#{pid}/stat").split(') ').last.split.values_at(11, 12).sum(&:to_i)
  end

  def running?(pid)
    File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] != 'Z'
  rescue SystemCallError
    false
  end
end
