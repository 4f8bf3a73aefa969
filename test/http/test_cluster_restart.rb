# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/served'
require 'polyphony/http'
require 'shellwords'

# Restarts and accidents while clients are being served, with real load.
class TestHTTPClusterRestart < Polyphony::TestCase
  on_every_driver
  time_limit 120

  include Polyphony::TwoWorkers

  # wrk tells what it has seen when it is interrupted.
  def report_of(load)
    ::Process.kill(:INT, @client)
    load.await
  end

  # As much load as there is room for, but those who start come first.
  # @return [Fiber] whose value is its report
  def load_on(command)
    path = command.split.first
    skip "#{path} is not installed" unless ENV['PATH'].split(':').any? { |folder| File.executable?("#{folder}/#{path}") }
    reader, writer = IO.pipe
    @client = pid = ::Process.spawn('nice', '-n', '10', *Shellwords.split(command), out: writer, err: writer)
    writer.close
    spin do
      reader.read.tap { ::Process.wait(pid) }
    ensure
      reader.close
    end
  end

  def restart(times, from: 1)
    times.times do |i|
      @served.signal(:USR2)
      @served.await(/generation #{from + i + 1} serves/)
    end
  end

  def assert_none_failed(report, served_by)
    refute_match(/Socket errors/, report, served_by)
    refute_match(/Non-2xx/, report)
    assert_operator Integer(report[/(\d+) requests in/, 1]), :>, 500
  end

  def test_ten_restarts_cost_not_one_request
    heavy
    serve
    before = @served.workers.keys
    open = descriptors
    http2 = load_on("h2load -c4 -m4 -D8 http://127.0.0.1:#{@served.port}/") if Polyphony::HTTP.http2?
    http1 = load_on("wrk -t1 -c16 -d60 --timeout 10 http://127.0.0.1:#{@served.port}/")
    restart(10)
    assert_none_failed(report_of(http1), @served.lines.join)
    assert_match(/ 0 failed, 0 errored, 0 timeout/, http2.await, @served.lines.join) if http2
    assert_empty before & @served.workers.keys
    @served.eventually('two workers') { @served.workers.size == 2 }
    @served.eventually("#{open} descriptors") { descriptors == open }
    assert_equal 0, @served.stop
  end

  def test_restarts_cost_no_request_on_a_connection_of_its_own
    heavy
    serve('--no-preload')
    load = load_on("wrk -t1 -c16 -d60 --timeout 10 -H 'Connection: close' http://127.0.0.1:#{@served.port}/")
    restart(5)
    assert_none_failed(report_of(load), @served.lines.join)
    assert_equal 0, @served.stop
  end

  def test_new_code_and_new_settings_are_loaded
    folder = Dir.mktmpdir
    FileUtils.mkdir_p("#{folder}/config")
    File.write("#{folder}/config/polyphony.rb", "workers 1\n")
    @served = Polyphony::Served.new(folder: folder, app: "RELEASE = 1\n#{Polyphony::Served::APP}")
    assert_match(/\A1 /, @served.get.last)
    pid = @served.pid
    File.write("#{folder}/app.rb", "RELEASE = 2\n#{Polyphony::Served::APP}")
    File.write("#{folder}/config/polyphony.rb", "workers 2\nlimits requests: 7\n")
    restart(1)
    assert_match(/\A2 /, @served.get.last)
    @served.eventually('two workers') { @served.workers.size == 2 }
    assert_match(/master/, @served.title(pid))
    assert_equal 0, @served.stop
  end

  def test_code_that_does_not_load_is_refused_and_the_old_goes_on
    serve
    pids = @served.workers.keys
    File.write("#{@served.folder}/app.rb", "raise 'half an update'")
    @served.signal(:USR2)
    @served.await(/USR2: not restarted/)
    @served.await(/half an update/)
    assert_equal pids, @served.workers.keys
    assert_equal 200, @served.get.first
    @served.signal(:KILL, pids.first)
    @served.await(/worker \d is ready/)
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  def test_one_process_restarts_too
    heavy
    @served = Polyphony::Served.new(app: "RELEASE = 1\n#{Polyphony::Served::APP}")
    File.write("#{@served.folder}/app.rb", "RELEASE = 2\n#{Polyphony::Served::APP}")
    load = load_on("wrk -t1 -c8 -d60 --timeout 10 -H 'Connection: close' http://127.0.0.1:#{@served.port}/")
    3.times do
      @served.signal(:USR2)
      @served.await(/restarted, http/)
      @served.eventually('the new release') { @served.get.last.start_with?("2 #{@served.pid}") }
    end
    refute_match(/Socket errors/, report_of(load), @served.lines.join)
    assert_equal 0, @served.stop
  end

  def test_a_restart_may_change_from_workers_to_one_process_and_back
    folder = Dir.mktmpdir
    FileUtils.mkdir_p("#{folder}/config")
    File.write("#{folder}/config/polyphony.rb", "workers 2\n")
    @served = Polyphony::Served.new(folder: folder)
    @served.eventually('two workers') { @served.workers.size == 2 }
    File.write("#{folder}/config/polyphony.rb", "workers 0\n")
    @served.signal(:USR2)
    @served.await(/restarted, http/)
    @served.eventually('no workers') { @served.children.empty? }
    assert_equal @served.pid, @served.who
    File.write("#{folder}/config/polyphony.rb", "workers 1\n")
    @served.signal(:USR2)
    @served.await(/restarted, http/)
    @served.eventually('a worker') { @served.workers.size == 1 }
    assert_equal @served.workers.keys.first, @served.who
    assert_equal 0, @served.stop
  end

  # Each of its connections is lost, and what was under way on it; nothing else.
  def test_a_worker_that_is_killed_costs_its_requests_only
    heavy
    serve
    load = load_on("wrk -t1 -c16 -d60 http://127.0.0.1:#{@served.port}/")
    victim = @served.eventually('a busy worker') { @served.workers.find { |_, title| title.match?(/\[[1-9]\d* conn.* \d{3,} requests/) }&.first }
    connections = connections_of(victim)
    @served.signal(:KILL, victim)
    @served.await(/was killed by SIGKILL/)
    @served.await(/worker \d is ready/)
    report = report_of(load)
    lost = report[/Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/] ? $~.captures.sum(&:to_i) : 0
    assert_operator lost, :<=, connections
    refute_match(/Non-2xx/, report)
    assert_equal 0, @served.stop
  end

  def test_a_socket_file_survives_restarts_and_goes_at_the_end
    path = "#{Dir.mktmpdir}/app.sock"
    @served = Polyphony::Served.new('--workers', '1', '--bind', "unix:#{path}")
    restart(2)
    UNIXSocket.open(path) { |socket| assert_equal 200, @served.ask(socket).first }
    assert_equal 0, @served.stop
    refute File.exist?(path)
  ensure
    FileUtils.rm_rf(File.dirname(path))
  end

  private

  # Of the master and of each worker; a backend opens some of its own.
  def descriptors
    [@served.pid, *@served.workers.keys].map { |pid| Dir["/proc/#{pid}/fd/*"].map { |fd| kind_of(fd) }.compact.sort }.uniq
  end

  def kind_of(descriptor)
    File.readlink(descriptor)[/\A(socket|pipe|\/dev\/shm|\/)/]
  rescue SystemCallError
    nil
  end

  def connections_of(pid)
    Dir["/proc/#{pid}/fd/*"].count { |fd| File.readlink(fd).start_with?('socket:') }
  rescue SystemCallError
    16
  end
end
