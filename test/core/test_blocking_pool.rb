# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony.blocking and interruptible: blocks in threads that come and go.
class TestBlockingPool < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  class Uncopyable < StandardError
    def initialize_copy(_other)
      raise TypeError, 'there is only one of this'
    end
  end

  # Waits in C without the interpreter's lock, and knows nothing of fibers.
  STOCK_SLEEP = Polyphony::Watchdog::STOCK_SLEEP

  def setup
    super
    @pools = []
  end

  def teardown
    @pools.each(&:stop)
    super
  end

  def pool(**options)
    Polyphony::BlockingPool.new(**options).tap { |pool| @pools << pool }
  end

  # A block that has begun and waits, in a way that is not ours, to be let go.
  def begun(pool, word = :process)
    begun = Polyphony::Queue.new
    go = Thread::Queue.new
    fiber = spin { pool.public_send(word) { begun << true; go.pop } }
    begun.shift
    [fiber, go]
  end

  def wait_until
    sleep 0.001 until yield
  end

  # --- blocking ------------------------------------------------------------------------------------

  def test_the_block_runs_in_another_thread_and_its_value_comes_back
    thread, value = Polyphony.blocking { [Thread.current, :value] }
    refute_same Thread.current, thread
    assert_equal :value, value
    assert_nil Polyphony.blocking { nil }
    assert_equal :value, Polyphony.interruptible { :value }
  end

  def test_an_error_that_cannot_be_copied_comes_back_as_it_is
    %i[blocking interruptible].each do |word|
      error = assert_raises(Uncopyable) { Polyphony.public_send(word) { raise Uncopyable, 'first' } }
      assert_equal 'first', error.message
    end
  end

  def test_other_fibers_run_while_a_call_blocks_its_thread
    pool = pool()
    fiber, go = begun(pool)
    5.times { sleep 0.001 }
    assert_equal :waiting, fiber.state
    go << :done
    assert_equal :done, fiber.await
  end

  def test_there_is_no_thread_before_the_first_block_and_as_many_as_blocks_at_once
    pool = pool()
    assert_equal 0, pool.stats[:threads]
    jobs = Array.new(50) { begun(pool) }
    assert_equal({ threads: 50, idle: 0, busy: 50, waiting: 0, largest: 50, done: 0 }, pool.stats)
    jobs.each { |fiber, go| go << 1; fiber.await }
    assert_equal({ threads: 50, idle: 50, busy: 0, waiting: 0, largest: 50, done: 50 }, pool.stats)
  end

  def test_a_thread_is_used_again
    pool = pool()
    threads = Array.new(20) { pool.process { Thread.current } }
    assert_equal 1, threads.uniq.size
    assert_equal 1, pool.stats[:threads]
  end

  def test_blocks_that_wait_for_each_other_run_at_once_in_threads_that_were_idle
    pool = pool()
    3.times do
      began = Thread::Queue.new
      gates = Array.new(20) { Thread::Queue.new }
      jobs = gates.each_with_index.map { |gate, i| spin { pool.process { began << i; gate.pop } } }
      all = Array.new(20) { began.pop }
      gates.each { |gate| gate << 1 }
      Fiber.await(jobs)
      assert_equal 20, all.uniq.size
    end
    assert_equal 20, pool.stats[:largest]
  end

  # Who waits for them all is woken, and looks after the others. In another round somebody else may have had the processor for so long that it is
  # as if a block had waited.
  def test_short_blocks_wake_one_of_the_idle_threads
    pool = pool()
    4.times.map { begun(pool) }.each { |fiber, go| go << 1; fiber.await }
    jobs = pool.__crew.instance_variable_get(:@jobs)
    wait_until { jobs.num_waiting == 4 }
    assert((1..20).any? { Fiber.map(0...16) { pool.process { jobs.num_waiting } }.first == 3 })
  end

  # Who has pushed need not be in a wait that can be ended, nor alive, when somebody has to see that blocks wait.
  { computes: ->(begun) { nil while begun.size < 8 }, waits_in_c: ->(begun) { STOCK_SLEEP.bind_call(nil, 0.001) while begun.size < 8 },
    ends: ->(_) {} }.each do |what, does|
    define_method(:"test_blocks_that_wait_all_begin_while_who_has_pushed_them_#{what}") do
      pool = Polyphony::ThreadPool.new(8).tap { |made| @pools << made }
      3.times do
        begun = Thread::Queue.new
        go = Thread::Queue.new
        Thread.new { 8.times { pool.cast { begun << 1; go.pop } }; does.call(begun) }.join
        8.times { begun.pop }
        8.times { go << 1 }
        wait_until { !pool.busy? }
      end
    end
  end

  def test_blocks_that_wait_in_c_begin_one_beside_the_other
    pool = pool()
    3.times do
      begun = 0
      Fiber.map(0...8) { pool.process { begun += 1; STOCK_SLEEP.bind_call(self, 0.001) while begun < 8 } }
    end
    assert_equal 8, pool.stats[:largest]
  end

  # Each of them is killed while it waits for what it has pushed, at a different moment; what nobody waits for any more is done all the same.
  def test_jobs_of_threads_that_are_killed_while_they_wait_are_done
    pool = Polyphony::ThreadPool.new(3).tap { |made| @pools << made }
    pushed = 0
    done = Thread::Queue.new
    60.times do |i|
      gate = Thread::Queue.new
      pusher = Thread.new { 3.times { pool.cast { gate.pop; done << 1 }; pushed += 1 }; sleep }
      (i % 6).times { Thread.pass }
      pusher.kill
      pusher.join
      3.times { gate << 1 }
      wait_until { !pool.busy? }
    end
    assert_operator done.size, :>=, pushed
    assert_equal pool.stats[:done], done.size
  end

  def test_who_looks_after_a_pool_is_moved_by_a_compacting_gc_with_it
    skip 'this Ruby cannot compact' unless GC.respond_to?(:compact)
    pool = pool()
    8.times.map { begun(pool) }.each { |fiber, go| go << 1; fiber.await }
    20.times { Fiber.map(0...16) { |i| pool.process { GC.compact if (i % 8).zero? } } }
    assert_equal 328, pool.stats[:done]
  end

  def test_a_cap_makes_blocks_wait_in_order_of_arrival
    pool = pool(cap: 2)
    jobs = Array.new(2) { begun(pool) }
    log = []
    others = Array.new(5) { |i| spin { pool.process { log << i } } }
    wait_until { pool.stats[:waiting] == 5 }
    assert_equal 2, pool.stats[:threads]
    jobs.each { |fiber, go| go << 1; fiber.await }
    Fiber.await(others)
    assert_equal [0, 1, 2, 3, 4], log.sort
    assert_equal 2, pool.stats[:largest]
  end

  # A fiber with a block that ends when it is told, and what tells it: it may have to wait before it begins.
  def begin_later(pool, result)
    go = Thread::Queue.new
    [spin { pool.process { go.pop; result } }, go]
  end

  def test_a_cap_can_be_set_and_lifted_later
    pool = pool()
    pool.cap = 1
    first, go = begun(pool)
    second = spin { pool.process { :second } }
    wait_until { pool.stats[:waiting] == 1 }
    pool.cap = nil
    assert_equal :third, pool.process { :third }
    assert_equal :second, second.await
    go << :first
    assert_equal :first, first.await
  end

  def test_blocks_that_wait_begin_when_the_cap_is_lifted
    pool = pool(cap: 1)
    first, go = begun(pool)
    others = Array.new(3) { |i| begin_later(pool, i) }
    wait_until { pool.stats[:waiting] == 3 }
    pool.cap = nil
    wait_until { pool.stats[:busy] == 4 }
    others.each { |fiber, its| its << 1; fiber.await }
    go << 1
    first.await
  end

  def test_a_cap_that_is_set_later_ends_the_threads_beyond_it
    pool = pool()
    6.times.map { begun(pool) }.each { |fiber, go| go << 1; fiber.await }
    assert_equal 6, pool.stats[:threads]
    pool.cap = 2
    jobs = Array.new(5) { |i| begin_later(pool, i) }
    wait_until { pool.stats.values_at(:threads, :busy, :waiting) == [2, 2, 3] }
    jobs.each { |_, go| go << 1 }
    assert_equal [0, 1, 2, 3, 4], Fiber.await(jobs.map(&:first))
    assert_equal 2, pool.stats[:threads]
  end

  def test_a_cap_that_is_set_while_all_are_busy_holds_when_they_are_done
    pool = pool()
    jobs = Array.new(4) { begun(pool) }
    waiting = Array.new(3) { |i| begin_later(pool, i) }
    wait_until { pool.stats[:busy] == 7 }
    pool.cap = 1
    last = begin_later(pool, 3)
    [*jobs, *waiting].each { |fiber, go| go << 1; fiber.await }
    wait_until { pool.stats.values_at(:threads, :busy, :waiting) == [1, 1, 0] }
    last.last << 1
    assert_equal 3, last.first.await
  end

  def test_threads_that_are_not_needed_end_and_the_pool_works_on
    pool = pool(idle_time: 0.01)
    10.times.map { begun(pool) }.each { |fiber, go| go << 1; fiber.await }
    assert_equal 10, pool.stats[:largest]
    wait_until { pool.stats[:threads].zero? }
    assert_equal :again, pool.process { :again }
  end

  def test_a_pool_shrinks_to_what_is_needed_while_it_works
    pool = pool()
    10.times.map { begun(pool) }.each { |fiber, go| go << 1; fiber.await }
    pool.idle_time = 0.02
    wait_until { pool.process { nil }; pool.stats[:threads] == 1 }
  end

  def test_jobs_that_come_while_threads_leave_are_done
    pool = pool(idle_time: 0.0005)
    200.times { |i| assert_equal(i, pool.process { i }); sleep 0.0005 * (i % 4) }
  end

  def test_many_fibers_and_threads_use_it_at_once
    pool = pool()
    threads = Array.new(3) { |t| Thread.new { Fiber.map(0...50) { |i| pool.process { [t, i] } } } }
    mine = Fiber.map(0...50) { |i| pool.process { [:main, i] } }
    assert_equal (0...50).map { |i| [:main, i] }, mine
    threads.each_with_index { |thread, t| assert_equal (0...50).map { |i| [t, i] }, thread.value }
  end

  def test_an_error_is_raised_with_a_backtrace_that_goes_from_the_block_to_the_caller
    line = __LINE__ + 1
    error = assert_raises(Boom) { Polyphony.blocking { raise Boom, 'it' } }
    assert_equal 'it', error.message
    assert_match(/#{__FILE__}:#{line}/, error.backtrace.first)
    assert_operator error.backtrace.grep(/#{__method__}/).size, :>=, 2
    assert_empty(error.backtrace.grep(%r{core/(crew|blocking_pool)}))
    assert_raises(Boom) { Polyphony.interruptible { raise Boom } }
  end

  def test_inside_a_thread_of_the_pool_the_block_is_just_called
    pool = pool(cap: 1)
    assert(pool.process { own = Thread.current; pool.process { own == Thread.current } })
    assert(pool.process { own = Thread.current; pool.interruptible { own == Thread.current } })
  end

  def test_a_block_that_has_begun_goes_on_when_its_caller_is_cancelled_and_nobody_hears_of_it
    pool = pool()
    ended = []
    begun = Polyphony::Queue.new
    go = Thread::Queue.new
    result = move_on_after(10, with_value: :cancelled) do |scope|
      spin { begun.shift; scope.cancel }
      pool.process { begun << true; go.pop; ended << true; raise Boom }
    end
    assert_equal :cancelled, result
    assert_empty ended
    go << true
    wait_until { !pool.busy? }
    assert_equal [true], ended
  end

  def test_a_block_that_has_not_begun_is_not_run_when_its_caller_is_cancelled
    pool = pool(cap: 1)
    first, go = begun(pool)
    ran = []
    %i[process interruptible].each do |word|
      fiber = spin { pool.public_send(word) { ran << word } }
      wait_until { pool.stats[:waiting] == 1 }
      fiber.stop
      fiber.await
      assert_equal 0, pool.stats[:waiting]
    end
    go << true
    first.await
    assert_nil(pool.process { nil })
    assert_empty ran
  end

  def test_callers_that_are_ended_anywhere_leave_a_pool_that_works
    pool = pool(cap: 2)
    %i[process interruptible].each do |word|
      cancel_everywhere do |run|
        run.scenario { 2.times { |i| assert_equal(i, pool.public_send(word) { i }) } }
        run.check { |_| assert_equal :works, pool.process { :works } }
      end
    end
    refute pool.busy?
  end

  # --- interruptible -------------------------------------------------------------------------------

  # What ends it, and what is left behind when the caller goes on.
  def assert_interrupted
    pool = pool()
    log = []
    ready = Polyphony::Queue.new
    result = move_on_after(20, with_value: :cancelled) do |scope|
      spin { ready.shift; scope.cancel }
      pool.interruptible do
        ready << true
        yield
        log << :went_on
      rescue Polyphony::Cancel
        log << :interrupted
        raise
      ensure
        log << :ended
      end
    end
    assert_equal :cancelled, result
    assert_equal %i[interrupted ended], log
    refute pool.busy?
    assert_equal :works, pool.process { :works }
  end

  def test_a_block_that_sleeps_is_interrupted
    assert_interrupted { sleep }
  end

  def test_a_block_that_waits_in_c_is_interrupted
    assert_interrupted { STOCK_SLEEP.bind_call(self, 60) }
  end

  def test_a_block_that_computes_is_interrupted
    assert_interrupted { loop {} }
  end

  def test_a_block_that_waits_again_and_again_is_interrupted
    assert_interrupted { loop { snooze } }
  end

  def test_a_block_in_a_queue_of_stock_ruby_is_interrupted
    queue = Thread::Queue.new
    assert_interrupted { queue.pop }
  end

  def test_interruptible_waits_for_what_the_block_does_at_its_end
    pool = pool()
    done = false
    ready = Polyphony::Queue.new
    fiber = spin { pool.interruptible { ready << true; sleep } }
    ready.shift
    fiber.stop
    fiber.await
    slow = spin { pool.interruptible { ready << true; begin sleep ensure sleep 0.02; done = true end } }
    ready.shift
    slow.stop
    slow.await
    assert done
  end

  def test_a_second_stop_does_not_end_the_wait_for_the_end
    pool = pool()
    done = false
    ready = Polyphony::Queue.new
    go = Thread::Queue.new
    fiber = spin { pool.interruptible { ready << true; begin sleep ensure ready << true; go.pop; done = true end } }
    ready.shift
    fiber.stop
    ready.shift
    fiber.stop
    5.times { sleep 0.001 }
    refute_predicate fiber, :dead?
    go << true
    fiber.await
    assert done
  end

  def test_timeouts_of_ruby_reach_interruptible_blocks
    assert_raises(Timeout::Error) { Timeout.timeout(0.01) { pool.interruptible { STOCK_SLEEP.bind_call(self, 60) } } }
  end

  def test_an_interrupt_hits_no_later_block
    pool = pool(cap: 1)
    100.times do
      move_on_after(0.0005) { pool.interruptible { 50.times { Thread.pass } } }
      assert_equal :next, pool.process { sleep 0.0002; :next }
    end
  end

  # --- life ----------------------------------------------------------------------------------------

  def test_stop_waits_and_then_nothing_is_taken
    pool = pool()
    fiber, go = begun(pool)
    stopper = spin { pool.stop }
    snooze
    refute_predicate stopper, :dead?
    go << :value
    stopper.await
    assert_equal :value, fiber.await
    assert_raises(ThreadError) { pool.process { nil } }
    assert_raises(ThreadError) { pool.interruptible { nil } }
    assert_match(/stopped/, pool.inspect)
  end

  def test_threads_do_not_keep_the_program_from_ending_and_a_child_begins_with_none
    skip 'the allocator of AddressSanitizer may be locked at a fork' if ENV['LD_PRELOAD'].to_s.include?('asan')
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      begun = Thread::Queue.new
      spin { Polyphony.blocking { begun << 1; Thread::Queue.new.pop } }
      begun.pop
      Process.wait(fork { puts "child: \#{Polyphony.blocking_pool.stats[:threads]}"; puts Polyphony.blocking { 'works' } })
      puts 'parent'
    RUBY
    assert_equal "child: 0\nworks\nparent\n", out, err
  end

  def test_it_works_with_core_alone
    out, err, = run_ruby("require 'polyphony/core'\nputs Polyphony.blocking { 1 } + Polyphony.interruptible { 2 }")
    assert_equal "3\n", out, err
  end

  def test_idle_threads_do_not_hide_a_deadlock
    _, err, = run_ruby("require 'polyphony'\nPolyphony.blocking { 1 }\nPolyphony::Queue.new.shift")
    assert_match(/Polyphony::Deadlock/, err)
  end

  # --- errors of use -------------------------------------------------------------------------------

  def test_wrong_settings_are_told
    [0, -1, 1.5, '3'].each do |cap|
      assert_includes assert_raises(ArgumentError) { pool(cap: cap) }.message, cap.inspect
    end
    [0, -1, nil, 'x'].each do |time|
      assert_includes assert_raises(ArgumentError) { pool(idle_time: time) }.message, time.inspect
    end
    assert_raises(ArgumentError) { Polyphony.blocking }
    assert_raises(ArgumentError) { Polyphony.interruptible }
    assert_raises(ArgumentError) { pool.process }
  end
end
