# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require 'timeout'

# Polyphony::Testing.virtual_clock
class TestVirtualClock < Polyphony::TestCase
  on_every_driver

  TestClock = Polyphony.module_eval { const_get(:Clock) }
  LONG = 100_000 # seconds: whoever really waits for it is ended by the watchdog

  def virtual(**options, &block)
    Polyphony::Testing.virtual_clock(**options, &block)
  end

  def compute
    finish = TestClock.real + 0.05
    nil while TestClock.real < finish
  end

  # --- what follows it --------------------------------------------------------------------------

  def test_a_sleep_takes_no_time_and_is_exact
    virtual do |clock|
      assert_equal LONG, sleep(LONG)
      assert_equal LONG, clock.elapsed
      sleep 0.25
      assert_equal LONG + 0.25, clock.elapsed
    end
  end

  def test_time_stands_still_while_a_fiber_runs
    virtual do |clock|
      snooze until Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) > 0
      10_000.times { Object.new }
      assert_equal 0, clock.elapsed
    end
  end

  def test_sleeps_of_many_fibers_end_in_order_of_their_time
    order = []
    virtual do |clock|
      [5, 1, 3, 1].each_with_index { |time, i| spin { sleep(time * 100); order << [time, i, clock.elapsed] } }
      sleep 1000
    end
    assert_equal [[1, 1, 100.0], [1, 3, 100.0], [3, 2, 300.0], [5, 0, 500.0]], order
  end

  def test_time_limits_expire_at_their_time
    virtual do |clock|
      assert_equal :late, move_on_after(LONG, with_value: :late) { suspend }
      assert_raises(Polyphony::Cancel) { cancel_after(10) { sleep } }
      assert_raises(Timeout::Error) { Timeout.timeout(10) { sleep } }
      assert_raises(Polyphony::DeadlineExceeded) { deadline(10) { spin { sleep }.await } }
      snooze until Fiber.current.children.empty?
      assert_equal LONG + 30, clock.elapsed
    end
  end

  def test_limits_that_are_kept_leave_time_alone
    virtual do |clock|
      assert_equal 1, Timeout.timeout(LONG) { 1 }
      assert_equal(2, move_on_after(LONG) { snooze; 2 })
      assert_equal 0, clock.elapsed
    end
  end

  def test_a_timeout_ends_a_block_that_computes_in_real_time
    virtual do
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { nil while true } }
    end
  end

  def test_after_and_every_tick_on_the_grid
    ticks = []
    virtual do |clock|
      after(15) { ticks << [:after, clock.elapsed] }
      fiber = spin { every(10) { ticks << clock.elapsed } }
      sleep 35
      fiber.stop
    end
    assert_equal [10.0, [:after, 15.0], 20.0, 30.0], ticks
  end

  def test_a_timer_ticks
    virtual do |clock|
      timer = Polyphony::Timer.new(resolution: 0.5)
      timer.sleep(LONG)
      assert_operator clock.elapsed, :>=, LONG
      assert_in_delta LONG, clock.elapsed, 0.5
    end
  end

  def test_a_throttler_keeps_its_rate
    times = []
    virtual do |clock|
      throttler = Polyphony::Throttler.new(interval: 60)
      4.times { throttler.call { times << clock.elapsed } }
    end
    assert_equal [0.0, 60.0, 120.0, 180.0], times
  end

  def test_a_supervisor_backs_off
    times = []
    virtual do |clock|
      child = spin do
        times << clock.elapsed
        raise IOError, 'again' if times.size < 4
      end
      capture_io { supervise(child, restart: :on_error, backoff: { from: 10, to: 100, jitter: 0 }) }
    end
    assert_equal [0.0, 10.0, 30.0, 70.0], times
  end

  def test_queues_locks_and_conditions_give_up_in_time
    virtual do |clock|
      assert_nil Polyphony::Queue.new.shift(timeout: 10)
      mutex = Mutex.new
      mutex.synchronize { ConditionVariable.new.wait(mutex, 10) }
      mutex.synchronize { mutex.sleep(10) }
      refute Polyphony::Semaphore.new(1).tap(&:acquire).acquire(timeout: 10)
      assert_equal 40, clock.elapsed
    end
  end

  def test_pools_give_up_in_time
    virtual do |clock|
      pool = Polyphony::ResourcePool.new(limit: 1) { Object.new }
      holder = spin { pool.acquire { sleep } }
      snooze
      assert_raises(Polyphony::ResourcePool::Exhausted) { pool.acquire(timeout: LONG) { flunk } }
      holder.stop
      assert_equal LONG, clock.elapsed
    end
  end

  # --- what does not move it -----------------------------------------------------------------------

  def test_a_wait_for_ever_is_not_jumped_to
    virtual do |clock|
      fiber = spin { sleep }
      other = spin { move_on_after(Float::INFINITY) { suspend } }
      sleep 1
      assert_equal [:waiting, :waiting], [fiber, other].map(&:state)
      assert_equal 1, clock.elapsed
    end
  end

  def test_a_deadlock_is_still_one
    code = <<~RUBY
      require 'polyphony/testing'
      Polyphony::Testing.virtual_clock { spin { Polyphony::Queue.new.shift }.await }
    RUBY
    assert_match(/Polyphony::Deadlock/, run_ruby(code)[1])
  end

  def test_real_input_comes_before_a_distant_deadline
    reader, writer = pipe_pair
    virtual(settle: nil) do |clock|
      Thread.new { 5.times { Thread.pass }; writer << 'x' }.join
      assert_equal('x', move_on_after(LONG) { reader.readpartial(1) })
      assert_equal 0, clock.elapsed
    end
  end

  def test_a_limit_on_input_that_does_not_come_expires
    reader, = pipe_pair
    [0, 0.001].each do |settle|
      virtual(settle: settle) do |clock|
        assert_equal :late, move_on_after(LONG, with_value: :late) { reader.readpartial(1) }
        assert_equal LONG, clock.elapsed
      end
    end
  end

  def test_with_settle_nil_a_clock_waits_for_an_operation_as_long_as_it_takes
    reader, writer = pipe_pair
    child = spawn(RbConfig.ruby, '--disable-gems', '-e', 'STDIN.read', '-e', 'sleep 0.05; print 1', out: writer, in: File::NULL)
    virtual(settle: nil) do |clock|
      assert_equal('1', move_on_after(LONG) { reader.readpartial(1) })
      assert_equal 0, clock.elapsed
    end
  ensure
    Process.wait(child)
  end

  def test_operations_and_sleeps_go_together
    client, server = tcp_pair
    virtual do |clock|
      spin { loop { server << server.readpartial(10) } }
      5.times do |i|
        sleep 600
        client << "ping #{i}"
        assert_equal "ping #{i}", client.readpartial(10)
      end
      assert_equal 3000, clock.elapsed
    end
  end

  # --- threads ------------------------------------------------------------------------------------

  def test_threads_share_the_clock
    virtual do |clock|
      times = [300, 100, 200].map { |time| Thread.new { sleep time; clock.elapsed } }.map(&:value)
      assert_equal [300.0, 100.0, 200.0], times
      assert_equal 300, clock.elapsed
    end
  end

  def test_a_thread_that_computes_holds_the_clock
    virtual do |clock|
      seen = nil
      thread = Thread.new do
        compute
        seen = clock.elapsed
      end
      sleep LONG
      thread.join
      assert_equal 0, seen
    end
  end

  def test_blocking_work_holds_the_clock
    virtual do |clock|
      assert_equal(:done, move_on_after(LONG) { Polyphony.blocking { compute; :done } })
      assert_equal 0, clock.elapsed
    end
  end

  # --- the clocks of Ruby -------------------------------------------------------------------------

  def test_the_clocks_of_ruby_follow
    virtual do
      time, monotonic = Time.now, Process.clock_gettime(Process::CLOCK_MONOTONIC)
      whole = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
      sleep LONG
      assert_equal LONG, Time.now - time
      assert_equal LONG, Time.new - time
      assert_equal '+09:00', Time.now(in: '+09:00').strftime('%:z')
      assert_in_delta LONG, Process.clock_gettime(Process::CLOCK_MONOTONIC) - monotonic, 1e-6
      assert_equal LONG * 1000, Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond) - whole
      assert_equal 2001, Time.new(2001).year
      assert_operator Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID), :<, LONG
      assert_raises(ArgumentError) { Process.clock_gettime(Process::CLOCK_MONOTONIC, :fortnight) }
    end
    assert_in_delta Process.clock_gettime(Process::CLOCK_REALTIME), Time.now.to_f, 1
  end

  def test_the_clocks_of_ruby_are_left_alone_when_told
    virtual(fake: false) do
      time = Time.now
      sleep LONG
      assert_operator Time.now - time, :<, LONG / 2
    end
  end

  def test_threads_from_before_polyphony_see_real_time
    code = <<~RUBY
      sleeper = Kernel.instance_method(:sleep)
      $first = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      $look = false
      thread = Thread.new { sleeper.bind_call(self, 0.001) until $look; Process.clock_gettime(Process::CLOCK_MONOTONIC) - $first }
      require 'polyphony/testing'
      Polyphony::Testing.virtual_clock { sleep #{LONG}; $look = true; p thread.value < #{LONG / 2} }
    RUBY
    assert_equal ["true\n", ''], run_ruby(code).first(2)
  end

  # --- the block -----------------------------------------------------------------------------------

  def test_time_goes_on_from_where_it_is
    fiber = virtual do
      sleep LONG
      spin { sleep 0.01; :woken }
    end
    assert_equal :woken, fiber.await
    before = clock
    sleep 0.01
    assert_operator clock - before, :>=, 0.009
  end

  def test_a_block_within_a_block_has_the_same_time
    virtual do |outer|
      sleep 10
      virtual(fake: false) do |inner|
        assert_same outer, inner
        sleep 10
      end
      time = Time.now
      sleep 10
      assert_equal 10, Time.now - time
      assert_equal 30, outer.elapsed
    end
  end

  def test_real_time_is_back_after_an_exception
    assert_raises(IOError) { virtual { raise IOError } }
    refute TestClock.stopped?
  end

  def test_the_value_of_the_block_is_returned
    assert_equal :value, virtual { :value }
  end

  def test_time_adds_up_to_the_nanosecond
    virtual do |clock|
      30.times { sleep 0.3 }
      assert_equal 9.0, clock.elapsed
      ticks = 0
      ticker = spin { every(0.7) { ticks += 1 } }
      30.times { |i| assert_equal ((i + 1) * 12_601 + 90) / 10.0, clock.advance(1260.1) }
      ticker.stop
      assert_equal 54_004, ticks
    end
  end

  def test_advance_lets_everything_happen_that_is_due
    events = []
    virtual do |clock|
      spin { sleep 5; events << 5; sleep 5; events << 10; sleep 5; events << 15 }
      assert_equal 4, clock.advance(4)
      assert_empty events
      clock.advance(6)
      clock.settle
      assert_equal [5, 10], events
      assert_raises(ArgumentError) { clock.advance(-1) }
      Fiber.current.shutdown_all_children
    end
  end

  def test_a_forked_child_goes_on_in_a_time_of_its_own
    reader, writer = pipe_pair
    virtual do |clock|
      sleep 10
      pid = fork do
        sleep LONG
        writer << clock.elapsed
      end
      Process.wait(pid)
      assert_equal (LONG + 10.0).to_s, reader.readpartial(20)
      assert_equal 10, clock.elapsed
    end
  end

  def test_settings_that_make_no_sense_are_refused
    error = assert_raises(ArgumentError) { virtual(settle: -1) { flunk } }
    assert_match(/settle .*-1/, error.message)
    assert_raises(ArgumentError) { Polyphony::Testing.virtual_clock }
  end
end
