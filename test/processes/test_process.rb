# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require_relative '../support/child_helpers'

# Process.wait and its like, $?, Process.detach. On the main fiber and on spun ones.
class TestProcessWait < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  include Polyphony::ChildHelpers
  on_every_driver

  # --- other fibers run meanwhile -------------------------------------------------------------

  WAYS = {
    'wait' => ->(pid) { Process.wait(pid) == pid && $?.exitstatus },
    'wait_for_any' => ->(_) { Process.wait && $?.exitstatus },
    'wait_for_the_group' => ->(_) { Process.wait(0) && $?.exitstatus },
    'wait2' => ->(pid) { Process.wait2(pid).last.exitstatus },
    'waitpid' => ->(pid) { Process.waitpid(pid) == pid && $?.exitstatus },
    'waitpid2' => ->(pid) { Process.waitpid2(pid).last.exitstatus },
    'waitall' => ->(pid) { Process.waitall.to_h.fetch(pid).exitstatus },
    'status_wait' => ->(pid) { Process::Status.wait(pid).exitstatus },
    'untraced' => ->(pid) { Process.wait(pid, Process::WUNTRACED) && $?.exitstatus },
    'detach' => ->(pid) { Process.detach(pid).value.exitstatus },
    'detach_join' => ->(pid) { Process.detach(pid).join.value.exitstatus },
    'detach_await' => ->(pid) { Process.detach(pid).await.exitstatus }
  }.freeze

  WAYS.each do |name, way|
    define_method("test_#{name}_lets_others_run_from_the_main_fiber") do
      one = child(3)
      assert_equal 3, beside_a_heartbeat(one) { way.call(one.pid) }
    end

    define_method("test_#{name}_lets_others_run_from_a_spun_fiber") do
      one = child(3)
      assert_equal 3, beside_a_heartbeat(one) { spin { way.call(one.pid) }.await }
    end

    define_method("test_#{name}_lets_others_run_from_a_generator") do
      one = child(3)
      generator = Enumerator.new { |y| y << way.call(one.pid) }
      assert_equal(3, beside_a_heartbeat(one) { generator.next })
    end
  end

  def test_a_thread_with_fibers_of_its_own
    one = child(4)
    thread = Thread.new { beside_a_heartbeat(one) { Process.wait2(one.pid).last.exitstatus } }
    assert_equal 4, thread.value
  end

  # --- stock results --------------------------------------------------------------------------

  FORMS = <<~'RUBY'
    def show(name)
      result = begin
        yield
      rescue Exception => e
        "#{e.class}: #{e.message.lines.first.chomp}"
      end
      puts "#{name}: #{result.inspect} #{$?.inspect}".gsub(/pid \d+/, 'pid N')
    end

    show('none') { Process.wait }
    show('none waitall') { Process.waitall }
    show('none status') { [Process::Status.wait, Process::Status.wait(1)] }
    show('none nohang') { Process.wait(-1, Process::WNOHANG) }
    show('no child') { Process.wait(1) }
    show('no child 2') { Process.wait2(1) }
    show('no group') { Process.wait(-1_000_000) }
    show('exit') { pid = spawn('exit 3'); Process.wait(pid) == pid }
    show('signal') { pid = spawn('kill -9 $$'); Process.wait2(pid).last.equal?($?) }
    show('core') { Process.wait2(spawn('kill -15 $$')).last.frozen? }
    show('nohang') { [Process.wait2(spawn('sleep 0.05'), Process::WNOHANG), $?] }
    show('later') { Process.wait.class }
    show('status nohang') { Process::Status.wait(spawn('sleep 0.05'), Process::WNOHANG) }
    show('status') { Process::Status.wait }
    show('flags nil') { pid = spawn('exit 1'); Process.wait(pid, nil) == pid }
    show('three arguments') { Process.wait(1, 2, 3) }
    show('three arguments 2') { Process::Status.wait(1, 2, 3) }
    show('nil') { Process.wait(nil) }
    show('string') { Process.wait('x') }
    show('string flags') { Process.wait(1, 'x') }
    show('bad flags') { pid = spawn('true'); begin; Process.wait(pid, 0x1000); ensure; Process.wait(pid); end }
    show('waitall') { 3.times { spawn('exit 2') }; Process.waitall.map { |_, s| s.exitstatus } }
    show('waitall last') { spawn('exit 4'); Process.waitall.last.last.equal?($?) }
    show('stopped') do
      pid = spawn('kill -STOP $$; exit 5')
      Process.wait(pid, Process::WUNTRACED)
      stopped = [$?.stopped?, $?.stopsig]
      Process.kill(:CONT, pid)
      Process.wait(pid)
      [stopped, $?.exitstatus]
    end
    show('detach') do
      pid = spawn('exit 6')
      thread = Process.detach(pid)
      [thread.class, thread.is_a?(Thread), thread.pid == pid, thread[:pid] == pid, thread.value, thread.alive?, thread.join.equal?(thread)]
    end
    show('detach nobody') { [Process.detach(1).value, Process.detach(1).pid] }
    show('detach limit') { thread = Process.detach(spawn('sleep 0.05')); [thread.join(0), thread.join(0.001), thread.join(5).equal?(thread)] }
    show('last status') { Process.last_status.equal?($?) }
    show('read only') { eval('$? = 1') }
    show('in a thread') { Thread.new { [$?, Process.wait(spawn('exit 7')).class, $?.exitstatus] }.value }
    show('kept by the thread') { $?.class }
    show('ignored') { trap('CHLD', 'IGNORE'); Process.wait(spawn('exit 8')) }
    show('ignored any') { spawn('exit 8'); Process.wait }
    show('ignored all') { spawn('exit 8'); Process.waitall }
    trap('CHLD', 'DEFAULT')
    show('by hand') { trap('CHLD') { }; Process.wait2(spawn('exit 9')).last.exitstatus }
  RUBY

  def test_results_errors_and_statuses_are_stock_rubys
    expected = stock(FORMS)
    assert_operator expected.lines.size, :>, 30
    assert_equal expected, with_polyphony(FORMS), 'a program that spins nothing'
    assert_equal expected, with_polyphony("Thread.current.backend\n#{FORMS}"), 'on the main fiber'
    assert_equal expected, with_polyphony("spin { #{FORMS} }.await"), 'on a spun fiber'
    assert_equal expected, with_polyphony("Thread.new { #{FORMS} }.value"), 'in a thread'
  end

  # --- $? -------------------------------------------------------------------------------------

  def test_the_last_status_is_that_of_the_fiber
    fibers = Array.new(5) do |i|
      spin do
        Process.wait(spawn("exit #{i}"))
        before = $?.exitstatus
        6.times { snooze }
        sleep 0.001 * (5 - i)
        [before, $?.exitstatus, Process.last_status.exitstatus]
      end
    end
    assert_equal Array.new(5) { |i| [i, i, i] }, fibers.map(&:await)
  end

  def test_the_last_status_is_the_same_object_after_a_switch
    other = busy_fiber(0)
    Process.wait(spawn('exit 2'))
    before = $?
    5.times { sleep 0.001 }
    assert_same before, $?
    assert_same before, Process.last_status
    other.stop
  end

  def test_a_fiber_begins_with_the_last_status_of_the_one_that_spun_it
    Process.wait(spawn('exit 2'))
    fiber = spin { $?.exitstatus }
    Process.wait(spawn('exit 3'))
    assert_equal [2, 3], [fiber.await, $?.exitstatus]
  end

  def test_what_a_generator_waited_for_is_seen_by_who_asked_it
    other = busy_fiber(9)
    generator = Enumerator.new { |y| [1, 2].each { |n| Process.wait(spawn("exit #{n}")); sleep 0.002; y << n } }
    2.times do
      n = generator.next
      sleep 0.005
      assert_equal n, $?.exitstatus
    end
    other.stop
  end

  def test_a_child_that_has_no_news_clears_the_last_status_of_the_fiber_alone
    one = child
    Process.wait(spawn('exit 1'))
    fiber = spin { [Process.wait(one.pid, Process::WNOHANG), $?, snooze, $?] }
    assert_equal [nil, nil, nil, nil], fiber.await
    assert_equal 1, $?.exitstatus
    one.finish
    Process.wait(one.pid)
  end

  def test_the_last_status_survives_gc_and_compaction
    other = busy_fiber(9)
    Process.wait(spawn('exit 3'))
    3.times do
      GC.respond_to?(:compact) ? GC.compact : GC.start
      sleep 0.002
      assert_equal 3, $?.exitstatus
    end
    other.stop
  rescue NotImplementedError
    other.stop
  end

  # --- nobody gets what another waits for ------------------------------------------------------

  def test_who_waits_for_any_child_does_not_get_one_that_is_waited_for_by_its_pid
    ones = Array.new(5) { |i| child(i) }
    named = ones.first(3).map { |one| waiting { Process.wait2(one.pid) } }
    any = Array.new(2) { waiting { Process.wait2 } }
    ones.each(&:finish)
    assert_equal [0, 1, 2], named.map { |fiber| fiber.await.last.exitstatus }
    assert_equal [3, 4], any.map { |fiber| fiber.await.last.exitstatus }.sort
  end

  def test_polling_for_any_child_does_not_get_one_that_is_waited_for_by_its_pid
    one = child(1)
    other = child(2)
    named = waiting { Process.wait2(one.pid) }
    one.finish
    until_ended(one.pid)
    other.finish
    pair = nil
    pair = Process.wait2(-1, Process::WNOHANG) until pair
    assert_equal [other.pid, 2], pair.then { |pid, status| [pid, status.exitstatus] }
    assert_equal [one.pid, 1], named.await.then { |pid, status| [pid, status.exitstatus] }
    assert_raises(Errno::ECHILD) { Process.wait }
  end

  def test_a_handler_that_reaps_everything_takes_nothing_from_fibers
    reaped = []
    before = trap('CHLD') do
      while (pid = Process.wait(-1, Process::WNOHANG)) do reaped << pid end
    rescue Errno::ECHILD
      nil
    end
    ones = Array.new(4) { |i| child(i) }
    named = ones.first(2).map { |one| waiting { Process.wait2(one.pid) } }
    ones.each(&:finish)
    assert_equal [0, 1], named.map { |fiber| fiber.await.last.exitstatus }
    sleep 0.001 until reaped.size == 2
    assert_equal ones.last(2).map(&:pid).sort, reaped.sort
  ensure
    trap('CHLD', before || 'DEFAULT')
  end

  def test_who_waits_for_any_child_leaves_detached_ones_to_their_thread
    10.times do
      thread = Process.detach(spawn('exit 5'))
      one = child(1)
      any = spin { Process.wait2 }
      assert_equal 5, thread.value.exitstatus
      one.finish
      assert_equal [one.pid, 1], any.await.then { |pid, status| [pid, status.exitstatus] }
    end
  end

  def test_threads_and_fibers_each_get_their_own
    ones = Array.new(6) { |i| child(i) }
    ready = Queue.new
    threads = ones.first(2).map { |one| Thread.new { ready << true; Process.wait2(one.pid).last.exitstatus } }
    2.times { ready.pop }
    any = Thread.new { ready << true; Process.wait2.last.exitstatus }
    ready.pop
    fibers = ones[2, 3].map { |one| waiting { Process.wait2(one.pid).last.exitstatus } }
    ones.each(&:finish)
    assert_equal [0, 1, 5, 2, 3, 4], [*threads, any].map(&:value) + fibers.map(&:await)
  end

  def test_a_child_that_another_has_reaped_is_echild
    one = child
    waiters = Array.new(2) { spin { outcome { Process.wait(one.pid) } } }
    3.times { snooze }
    one.finish
    results = waiters.map(&:await)
    assert_includes results, one.pid
    assert_equal 1, results.grep(Errno::ECHILD).size
  end

  # --- cancelled waits ------------------------------------------------------------------------

  CANCELLED = {
    'wait' => ->(pid) { Process.wait2(pid) }, 'wait_for_any' => ->(_) { Process.wait2 },
    'wait_for_the_group' => ->(_) { Process.wait2(0) },
    'untraced' => ->(pid) { Process.wait2(pid, Process::WUNTRACED) },
    'status_wait' => ->(pid) { Process::Status.wait(pid).then { |status| [status.pid, status] } },
    'waitall' => ->(_) { Process.waitall.first }
  }.freeze

  CANCELLED.each do |name, way|
    define_method("test_a_cancelled_#{name}_loses_no_status") do
      cancel_everywhere do |run|
        one = child(7)
        got = nil
        run.scenario { got = way.call(one.pid) }
        run.beside { 2.times { snooze }; one.finish }
        run.check do
          got ||= Process.wait2(one.pid)
          assert_equal [one.pid, 7], [got.first, got.last.exitstatus]
          assert_raises(Errno::ECHILD) { Process.wait }
        end
      end
    end
  end

  def test_a_cancelled_waitall_leaves_what_it_had_to_those_who_wait_next
    ones = Array.new(4) { |i| child(i) }
    fiber = waiting { Process.waitall }
    ones.first(2).each(&:finish)
    until_gone(*ones.first(2).map(&:pid))
    fiber.stop
    fiber.await
    assert_equal [ones[1].pid, 1], Process.wait2(ones[1].pid).then { |pid, status| [pid, status.exitstatus] }
    ones.each(&:finish)
    assert_equal [0, 2, 3], Process.waitall.map { |_, status| status.exitstatus }.sort
    assert_equal [], Process.waitall
  end

  def test_a_detached_child_is_reaped_whoever_is_cancelled
    one = child(2)
    thread = Process.detach(one.pid)
    waiter = waiting { thread.value }
    waiter.stop
    waiter.await
    one.finish
    assert_equal 2, thread.value.exitstatus
    assert_empty zombies
  end

  # --- many -----------------------------------------------------------------------------------

  def test_two_hundred_children_with_all_kinds_of_waits
    heavy
    beats = 0
    heart = spin { loop { beats += 1; sleep 0.0005 } }
    pids = Array.new(200) { |i| spawn("exit #{i % 50}") }
    named = pids.each_slice(4).flat_map do |a, b, c, d|
      [spin { [a, Process.wait2(a).last.exitstatus] }, spin { [b, Process::Status.wait(b).exitstatus] },
       spin { Process.wait2(-1).then { |pid, status| [pid, status.exitstatus] } },
       spin { Process.detach(d).value.then { |status| [d, status.exitstatus] } }]
    end
    assert_equal pids.each_with_index.to_h { |pid, i| [pid, i % 50] }, named.map(&:await).to_h
    heart.stop
    assert_operator beats, :>, 1
    assert_raises(Errno::ECHILD) { Process.wait }
    assert_empty zombies
  end

  # A pidfd for each is more than there is: then it is looked again and again.
  def test_without_descriptors_left_every_child_is_still_waited_for
    skip 'no descriptors are needed' unless File.directory?('/proc/self/fd')
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      Thread.current.backend
      gates = Array.new(30) { IO.pipe }
      pids = gates.each_with_index.map { |(reader, _), i| spawn("read line; exit #{i}", in: reader) }
      gates.each { |reader, _| reader.close }
      used = Dir.children('/proc/self/fd').map(&:to_i).max
      Process.setrlimit(:NOFILE, used + 10)
      fibers = pids.map { |pid| spin { Process.wait2(pid).last.exitstatus } }
      any = spin { sleep 0.01; Process.wait(fork { exit!(40) }); $?.exitstatus }
      sleep 0.02
      gates.each { |_, writer| writer.close }
      p fibers.map(&:await) == [*0...30], any.await
    RUBY
    assert_predicate status, :success?, err
    assert_equal "true\n40\n", out
  end
end
