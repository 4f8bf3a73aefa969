# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::ThreadPool: blocks in threads, while fibers run.
class TestThreadPool < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def setup
    super
    @pools = []
  end

  def teardown
    @pools.each(&:stop)
    super
  end

  def pool(size = 2)
    Polyphony::ThreadPool.new(size).tap { |pool| @pools << pool }
  end

  # A job that has begun and waits to be let go.
  def blocking_job(pool)
    begun = Polyphony::Queue.new
    go = Thread::Queue.new
    fiber = spin { pool.process { begun << true; go.pop } }
    begun.shift
    [fiber, go]
  end

  def wait_while_busy(pool)
    sleep 0.001 while pool.busy?
  end

  # --- process -------------------------------------------------------------------------------------

  def test_process_runs_the_block_in_another_thread_and_returns_its_value
    thread, value = pool.process { [Thread.current, :value] }
    refute_same Thread.current, thread
    assert_equal :value, value
    assert_nil pool.process { nil }
  end

  def test_other_fibers_run_meanwhile
    pool = pool()
    fiber, go = blocking_job(pool)
    ticks = 0
    3.times { sleep 0.001; ticks += 1 }
    assert_equal :waiting, fiber.state
    go << :done
    assert_equal :done, fiber.await
    assert_equal 3, ticks
  end

  def test_as_many_jobs_run_at_once_as_there_are_threads
    pool = pool(3)
    jobs = Array.new(3) { blocking_job(pool) }
    fourth = spin { pool.process { :fourth } }
    sleep 0.005
    assert_equal :waiting, fourth.state
    jobs.first.last << :first
    assert_equal :fourth, fourth.await
    jobs.each { |_, go| go << :done }
    assert_equal %i[first done done], jobs.map { |fiber, _| fiber.await }
  end

  def test_jobs_begin_in_the_order_in_which_they_came
    pool = pool(1)
    log = []
    Fiber.await(Array.new(20) { |i| spin { pool.process { log << i } } })
    assert_equal Array.new(20) { |i| i }, log
  end

  def test_many_fibers_and_threads_use_it_at_once
    heavy
    pool = pool(3)
    work = -> { Array.new(10) { |i| spin { Array.new(5) { |n| pool.process { i * n } }.sum } }.sum(&:await) }
    threads = Array.new(3) { Thread.new(&work) }
    assert_equal [450] * 4, [work.call, *threads.map(&:value)]
    refute pool.busy?
  end

  def test_an_error_is_raised_with_a_backtrace_that_goes_from_the_block_to_the_caller
    line = __LINE__ + 1
    error = assert_raises(Boom) { pool.process { raise Boom, 'in a thread' } }
    assert_equal 'in a thread', error.message
    here = "#{__FILE__}:#{line}"
    assert_match(/\A#{here}:in .*block/, error.backtrace.first)
    assert_operator error.backtrace.grep(/\A#{here}:/).size, :>=, 2
    assert_match(/#{__method__}/, error.backtrace.join("\n"))
    assert_empty error.backtrace.grep(%r{lib/polyphony/core})
  end

  def test_an_error_that_is_frozen_or_raised_again_and_again_does_no_harm
    pool = pool()
    error = Boom.new('always the same').freeze
    3.times { assert_equal 'always the same', assert_raises(Boom) { pool.process { raise error } }.message }
    kept = Boom.new('kept')
    lengths = Array.new(3) { assert_raises(Boom) { pool.process { raise kept } }.backtrace.size }
    assert_equal 1, lengths.uniq.size
  end

  def test_whatever_a_block_raises_is_raised_in_the_caller
    pool = pool()
    [Boom, NotImplementedError, SystemExit, Polyphony::Cancel, ClosedQueueError, Interrupt].each do |error|
      assert_raises(error) { pool.process { raise error } }
    end
    assert_raises(UncaughtThrowError) { catch(:out) { pool.process { throw :out } } }
    assert_raises(LocalJumpError) { pool.process { break } }
    assert_equal :still_there, pool.process { :still_there }
  end

  def test_a_job_may_use_all_words
    result = pool.process do
      sleep 0.001
      [spin { sleep 0.001; 1 }, spin { 2 }].map(&:await) << move_on_after(0.001, with_value: 3) { sleep }
    end
    assert_equal [1, 2, 3], result
  end

  def test_what_a_job_spins_ends_with_it_and_an_error_there_is_the_jobs
    pool = pool(1)
    ended = false
    pool.process do
      spin do
        sleep
      ensure
        ended = true
      end
      snooze
    end
    assert ended
    assert_raises(Boom) { pool.process { 2.times { spin { raise Boom } }; sleep } }
    assert_equal :next, pool.process { sleep 0.001; :next }
  end

  # It would wait for a thread that waits for it.
  def test_process_in_a_thread_of_the_pool_calls_the_block_there
    pool = pool(1)
    threads = pool.process { [Thread.current, pool.process { Thread.current }] }
    assert_same(*threads)
    other = pool(1)
    refute_same(*pool.process { [Thread.current, other.process { Thread.current }] })
  end

  def test_a_method_can_be_given
    assert_kind_of Numeric, pool.process(&method(:clock))
    assert_equal 7, pool.process(&-> { 7 })
  end

  # --- cancelling ----------------------------------------------------------------------------------

  def test_a_job_that_has_begun_goes_on_when_its_caller_is_cancelled
    pool = pool(1)
    fiber, go = blocking_job(pool)
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert pool.busy?
    go << :done
    assert_equal :next, pool.process { :next }
    refute pool.busy?
  end

  def test_a_job_that_has_not_begun_is_not_run_when_its_caller_is_cancelled
    pool = pool(1)
    first, go = blocking_job(pool)
    ran = false
    assert_equal(:late, move_on_after(0.001, with_value: :late) { pool.process { ran = true } })
    go << :done
    first.await
    refute pool.busy?
    assert_equal :next, pool.process { :next }
    refute ran
  end

  def test_nobody_hears_of_a_job_whose_caller_was_cancelled
    pool = pool(1)
    begun = Polyphony::Queue.new
    go = Thread::Queue.new
    fiber = spin { pool.process { begun << true; go.pop; raise Boom } }
    begun.shift
    fiber.stop
    fiber.await
    go << true
    wait_while_busy(pool)
    assert_equal 0, sleep(0.002)
  end

  def test_callers_that_are_ended_anywhere_leave_a_pool_that_works
    pool = pool(1)
    cancel_everywhere do |run|
      got = []
      run.scenario { 2.times { |i| got << pool.process { i } } }
      run.beside { got << pool.process { :beside } }
      run.check do |finished|
        assert_includes got, :beside
        assert_equal [0, 1], got - [:beside] if finished
        wait_while_busy(pool)
        assert_equal :next, pool.process { :next }
      end
    end
  end

  # --- cast ----------------------------------------------------------------------------------------

  def test_cast_does_not_wait
    pool = pool(1)
    go = Thread::Queue.new
    done = Polyphony::Queue.new
    assert_same pool, pool.cast { done << go.pop }
    assert pool.busy?
    go << :done
    assert_equal :done, done.shift
  end

  def test_an_error_in_a_cast_block_is_raised_in_the_fiber_that_cast_it
    pool = pool(1)
    fiber = spin do
      pool.cast { raise Boom, 'cast away' }
      sleep
    rescue Boom => e
      [e.message, e.source_fiber.tag, e.backtrace.first[/\A.*?:\d+/]]
    end
    assert_equal ['cast away', :job, "#{__FILE__}:#{__LINE__ - 5}"], fiber.await
  end

  def test_an_error_in_a_cast_block_goes_to_main_when_the_fiber_has_ended
    pool = pool(1)
    go = Thread::Queue.new
    spin { pool.cast { go.pop; raise Boom, 'too late' } }.await
    go << true
    assert_equal 'too late', assert_raises(Boom) { sleep patient(10) }.message
  end

  def test_an_error_in_a_cast_block_goes_to_main_when_the_thread_has_ended
    pool = pool(1)
    go = Thread::Queue.new
    Thread.new { sleep 0.001; pool.cast { go.pop; raise Boom, 'too late' } }.join
    go << true
    assert_equal 'too late', assert_raises(Boom) { sleep patient(10) }.message
  end

  def test_a_cast_from_a_fiber_of_rubys_own_is_answered_for_by_main
    pool = pool(1)
    Fiber.new { pool.cast { raise Boom, 'by an enumerator' } }.resume
    assert_equal 'by an enumerator', assert_raises(Boom) { sleep patient(10) }.message
  end

  # The main thread uses nothing of Polyphony here, and the thread that casts has ended.
  def test_an_error_is_written_when_there_is_nobody_to_raise_it_in
    out, err, = run_ruby(<<~'RUBY', options: ['-W0'])
      require 'polyphony'
      written = Thread::Queue.new
      $stderr = Object.new.tap { |object| object.define_singleton_method(:write) { |text| written << text } }
      pool = Polyphony::ThreadPool.new(1)
      go = Thread::Queue.new
      Thread.new { pool.cast { go.pop; raise 'nobody waits' } }.join
      go << true
      puts written.pop
    RUBY
    assert_match(/nobody waits.*RuntimeError/, out, err)
  end

  def test_a_cast_before_the_first_wait_of_the_program
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      Polyphony::ThreadPool.new(1).cast { raise 'early' }
      begin
        sleep 10
      rescue RuntimeError => e
        puts e.message
      end
    RUBY
    assert_equal "early\n", out, err
  end

  # --- life ----------------------------------------------------------------------------------------

  def test_threads_are_started_when_there_is_work_for_them
    before = Thread.list.size
    pool = pool(3)
    assert_equal before, Thread.list.size
    2.times { pool.process { nil } }
    assert_equal before + 1, Thread.list.size
    jobs = Array.new(3) { blocking_job(pool) }
    assert_equal before + 3, Thread.list.size
    assert_equal({ threads: 3, idle: 0, busy: 3, waiting: 0, largest: 3, done: 2 }, pool.stats)
    jobs.each { |fiber, go| go << true; fiber.await }
    assert_equal 3, pool.size
    assert_equal Etc.nprocessors, Polyphony::ThreadPool.new.size
  end

  def test_stop_waits_for_all_jobs_and_ends_the_threads
    before = Thread.list
    pool = pool(2)
    log = []
    5.times { |i| pool.cast { Thread.pass; log << i } }
    assert_same pool, pool.stop
    assert_equal [0, 1, 2, 3, 4], log.sort
    assert_equal before, Thread.list
    refute pool.busy?
    pool.stop
  end

  def test_other_fibers_run_while_a_pool_is_stopped_and_the_wait_may_be_ended
    pool = pool(1)
    fiber, go = blocking_job(pool)
    assert_equal(:late, move_on_after(0.002, with_value: :late) { pool.stop })
    stopping = Array.new(2) { waiting { pool.stop } }
    go << :done
    assert_equal :done, fiber.await
    Fiber.await(stopping)
  end

  def test_a_stopped_pool_takes_no_more_jobs
    pool = pool(1)
    pool.process { nil }
    pool.stop
    assert_raises(ThreadError) { pool.process { flunk } }
    assert_raises(ThreadError) { pool.cast { flunk } }
    refute pool.busy?
  end

  def test_a_pool_that_never_worked_can_be_stopped
    pool = pool(1).stop
    assert_raises(ThreadError) { pool.process { flunk } }
  end

  def test_a_job_cannot_stop_its_own_pool
    pool = pool(1)
    assert_raises(ThreadError) { pool.process { pool.stop } }
  end

  def test_a_thread_that_its_job_has_killed_is_replaced
    pool = pool(1)
    error = assert_raises(ThreadError) { pool.process { Thread.current.kill } }
    assert_match(/killed/, error.message)
    assert_equal :next, pool.process { :next }
    refute pool.busy?
  end

  def test_there_is_a_pool_for_all
    threads = Array.new(2) { Polyphony::ThreadPool.process { Thread.current } }
    refute_includes threads, Thread.current
    assert_raises(Boom) { Polyphony::ThreadPool.process { raise Boom } }
    assert_nil Polyphony::ThreadPool.reset
    refute threads.any?(&:alive?)
    assert_nil Polyphony::ThreadPool.reset
    assert_equal :again, Polyphony::ThreadPool.process { :again }
  ensure
    Polyphony::ThreadPool.reset
  end

  def test_idle_and_busy_threads_do_not_keep_the_program_from_ending
    ['nil', 'pool.cast { sleep }', 'pool.cast { Thread::Queue.new.pop }', 'pool.cast { loop {} }'].each do |code|
      out, err, status = run_ruby(<<~RUBY)
        require 'polyphony'
        pool = Polyphony::ThreadPool.new(1)
        pool.process { nil }
        #{code}
        sleep 0.01
        puts 'end'
      RUBY
      assert_equal ["end\n", ''], [out, err], code
      assert status.success?, code
    end
  end

  def test_idle_threads_do_not_hide_a_deadlock
    _out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      pool = Polyphony::ThreadPool.new(2)
      pool.process { nil }
      pool.cast { sleep 0.01 }
      Polyphony::Queue.new.shift
    RUBY
    refute status.success?
    assert_match(/Polyphony::Deadlock/, err)
  end

  def test_a_forked_child_has_threads_of_its_own_and_does_not_do_its_parents_jobs
    skip 'the allocator of AddressSanitizer may be locked at a fork' if ENV['LD_PRELOAD'].to_s.include?('asan')
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      parent = Process.pid
      pool = Polyphony::ThreadPool.new(1)
      go = Thread::Queue.new
      pool.cast { go.pop }
      pool.cast { puts "job in \#{Process.pid == parent ? :parent : :child}" }
      Process.wait(fork do
        puts "child busy: \#{pool.busy?}"
        puts pool.process { 'child: done' }
        pool.stop
      end)
      go << true
      pool.stop
      Process.wait(fork { pool.process { nil } rescue puts "child of a stopped one: \#{$!.class}" })
    RUBY
    assert_equal <<~TEXT, out, err
      child busy: false
      child: done
      job in parent
      child of a stopped one: ThreadError
    TEXT
  end

  def test_a_job_may_fork
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      pool = Polyphony::ThreadPool.new(1)
      pid = pool.process { fork }
      puts 'parent'
      Process.wait(pid)
      puts "child ended: \#{$?.exitstatus}"
    RUBY
    assert_equal "parent\nchild ended: 0\n", out, err
  end

  # --- errors of use -------------------------------------------------------------------------------

  def test_inspect_tells_what_it_does
    pool = Polyphony::ThreadPool.new(2)
    go = ::Thread::Queue.new
    texts = [pool.inspect]
    pool.cast { go.pop }
    texts << pool.inspect
    go << 1
    pool.stop
    assert_equal %w[idle busy stopped].map { |state| "#<Polyphony::ThreadPool of 2, #{state}>" }, texts << pool.inspect
  end

  def test_a_size_is_a_positive_integer
    [0, -1, 1.5, nil, '3'].each do |size|
      error = assert_raises(ArgumentError, size.inspect) { Polyphony::ThreadPool.new(size) }
      assert_includes error.message, size.inspect
    end
  end

  def test_blocks_are_needed
    assert_raises(ArgumentError) { pool.process }
    assert_raises(ArgumentError) { pool.cast }
    assert_raises(ArgumentError) { Polyphony::ThreadPool.process }
  ensure
    Polyphony::ThreadPool.reset
  end
end
