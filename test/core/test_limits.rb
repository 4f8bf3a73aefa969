# frozen_string_literal: true

require_relative '../test_helper'

# The limits that users meet: memory maps, open files. A readable error, and nothing hangs.
class TestLimits < Polyphony::TestCase
  on_every_driver
  time_limit 120

  # --- fibers ----------------------------------------------------------------------------------------------

  # More fibers than vm.max_map_count has room for: each has two mappings.
  TOO_MANY_FIBERS = <<~'RUBY'
    require 'polyphony'
    limit = File.read('/proc/sys/vm/max_map_count').to_i
    waiting = []
    errors = []
    # A hundred at a time, until some cannot be had.
    while errors.empty? && waiting.size < limit
      100.times { waiting << spin { Polyphony.backend_wait_event(true) } }
      begin
        snooze
      rescue FiberError, NoMemoryError => e # one at each switchpoint
        errors << e
        retry
      end
    end
    puts "message: #{errors.first&.message}"
    puts "all told: #{errors.size == waiting.count(&:dead?)}"
    alive = waiting.reject(&:dead?)
    puts "alive: #{alive.size > limit / 4}"
    Fiber.current.shutdown_all_children
    puts "left: #{Fiber.current.children.size}"
    waiting.clear
    alive.clear
    GC.start
    puts "again: #{spin { snooze; :works }.await}"
  RUBY

  def test_more_fibers_than_memory_maps_give_a_readable_error_and_nothing_hangs
    heavy
    skip 'no vm.max_map_count here' unless File.exist?('/proc/sys/vm/max_map_count')
    limit = File.read('/proc/sys/vm/max_map_count').to_i
    skip "vm.max_map_count is #{limit}, too many fibers for a test" if limit > 100_000
    out, err, status = run_ruby(TOO_MANY_FIBERS, timeout: 60)
    assert status.success?, "#{out}\n#{err}"
    assert_match(/^message: .*vm\.max_map_count/, out)
    assert_match(/^all told: true/, out)
    assert_match(/^alive: true/, out)
    assert_match(/^left: 0/, out)
    assert_match(/^again: works/, out)
  end

  # --- open files -----------------------------------------------------------------------------------------------

  # Takes all descriptors but +left+; the block gives them back.
  WITHOUT_FILES = <<~'RUBY'
    require 'polyphony'
    require 'socket'
    Process.setrlimit(:NOFILE, 64)
    $stdout.sync = true
    $taken = []
    def take_all_but(left)
      loop { $taken << File.open(File::NULL) }
    rescue Errno::EMFILE
      left.times { $taken.pop.close }
    end
  RUBY

  def test_accept_loop_pauses_without_descriptors_and_resumes_without_spinning
    out, err, status = run_ruby(<<~RUBY)
      #{WITHOUT_FILES}
      server = TCPServer.new('127.0.0.1', 0)
      port = server.local_address.ip_port
      accepted = []
      # The clients live in a process of their own: they need descriptors, too.
      ready, go = IO.pipe
      clients = fork do
        sockets = Array.new(3) { Socket.tcp('127.0.0.1', port) }
        go.write 'x'
        sleep
      end
      ready.read(1)
      sleep 0.001 # the backend has its own by now
      take_all_but(0)
      Thread.current.backend.stats
      cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      accepting = spin { Polyphony.backend_accept_loop(server, TCPSocket) { |socket| accepted << socket } }
      sleep 0.3
      puts "accepted: \#{accepted.size}"
      puts "alive: \#{!accepting.dead?}"
      stats = Thread.current.backend.stats
      used = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
      puts "quiet: \#{stats[:poll_count] < 100 && used < 0.1}" + (stats[:poll_count] < 100 && used < 0.1 ? '' : " \#{stats} \#{used}")
      $taken.pop(10).each(&:close)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
      sleep 0.005 until accepted.size == 3 || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      puts "then: \#{accepted.size}"
      Process.kill(:KILL, clients)
      Process.wait(clients)
      accepting.stop
      accepting.await
    RUBY
    assert status.success?, "#{out}#{err}"
    assert_equal ['accepted: 0', 'alive: true', 'quiet: true', 'then: 3'], out.lines(chomp: true), err
  end

  def test_accept_without_descriptors_raises_with_the_way_out
    out, err, = run_ruby(<<~RUBY)
      #{WITHOUT_FILES}
      server = TCPServer.new('127.0.0.1', 0)
      client = Socket.tcp('127.0.0.1', server.local_address.ip_port)
      sleep 0.001
      take_all_but(0)
      begin
        Polyphony.backend_accept(server, TCPSocket)
      rescue Errno::EMFILE => e
        puts e.message
      end
      $taken.pop.close
      p Polyphony.backend_accept(server, TCPSocket).class
    RUBY
    assert_match(/ulimit -n/, out, err)
    assert_match(/^TCPSocket$/, out, err)
  end

  def test_a_backend_that_cannot_be_opened_for_want_of_descriptors_raises_with_the_way_out
    out, err, status = run_ruby(<<~RUBY)
      #{WITHOUT_FILES}
      sleep 0.001
      take_all_but(0)
      thread = Thread.new do
        Thread.current.report_on_exception = false
        sleep 0.001 # stock will do
        spin { sleep 0.001 }.await
      end
      begin
        thread.join
      rescue SystemCallError, RuntimeError => e
        puts e.message
      end
      puts "main: \#{spin { sleep 0.001; :works }.await}"
      $taken.pop(10).each(&:close)
      puts "thread: \#{Thread.new { sleep 0.001; :works }.value}"
    RUBY
    assert status.success?, "#{out}#{err}"
    assert_match(/open files|descriptor/, out)
    assert_match(/ulimit -n/, out)
    assert_match(/^main: works$/, out)
    assert_match(/^thread: works$/, out)
  end

  def test_a_failed_backend_leaves_no_descriptor
    out, err, status = run_ruby(<<~RUBY)
      #{WITHOUT_FILES}
      sleep 0.001
      count = -> { Dir.children('/proc/self/fd').size }
      6.times do |left|
        take_all_but(left)
        taken = $taken.size
        Thread.new { Thread.current.report_on_exception = false; sleep 0.001 }.join rescue nil
        $taken.each(&:close)
        $taken.clear
        puts count.call
      end
    RUBY
    assert status.success?, "#{out}#{err}"
    assert_equal 1, out.lines.uniq.size, "descriptors after each attempt: #{out}"
  end

  def test_opening_files_and_pipes_without_descriptors_raises_with_the_way_out
    out, err, = run_ruby(<<~RUBY)
      #{WITHOUT_FILES}
      sleep 0.001
      take_all_but(0)
      [-> { Polyphony.pipe }, -> { Polyphony.backend_open('/dev/null') }].each do |open|
        open.call
      rescue Errno::EMFILE => e
        puts e.message
      end
    RUBY
    assert_equal 2, out.lines.grep(/Too many open files/).size, "#{out}#{err}"
  end

  def test_more_operations_at_once_than_a_ring_has_places
    heavy
    skip 'the limit on open files is too low' if Process.getrlimit(:NOFILE).first < 3000
    pairs = Array.new(1200) { pipe_pair }
    fibers = pairs.map { |reader, _| spin { Polyphony.backend_read(reader, +'', 1, false, 0) } }
    snooze
    assert_equal 1200, Thread.current.backend.stats[:pending_ops]
    pairs.each { |_, writer| writer.syswrite('x') }
    assert_equal 1200, Fiber.await(fibers).count('x')
    fibers = pairs.map { |reader, _| spin { Polyphony.backend_read(reader, +'', 1, false, 0) } }
    snooze
    fibers.each(&:stop)
    Fiber.await(fibers)
  end
end
