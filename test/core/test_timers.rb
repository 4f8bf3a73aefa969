# frozen_string_literal: true

require_relative '../test_helper'

# sleep and timer_loop: order, exactness, arguments, and what arming costs.
class TestTimers < Polyphony::TestCase
  on_every_driver

  def elapsed
    start = clock
    yield
    clock - start
  end

  def keep_busy(seconds)
    deadline = clock + seconds
    nil until clock > deadline
  end

  # --- order -----------------------------------------------------------------------------------------

  def test_of_a_thousand_sleepers_none_wakes_early
    heavy
    random = Random.new(7)
    woken = []
    1000.times do
      spin do
        duration = random.rand * 0.2
        deadline = clock + duration
        sleep duration
        woken << [deadline, clock]
      end
    end
    Fiber.current.await_all_children
    assert_equal 1000, woken.size
    early = woken.find { |deadline, now| now < deadline - 0.0005 }
    assert_nil early
  end

  def test_equal_deadlines_wake_in_the_order_of_arming
    log = []
    20.times { |i| spin { Polyphony.backend_sleep(0); log << i } }
    Fiber.current.await_all_children
    assert_equal Array.new(20) { |i| i }, log
  end

  def test_no_sleep_is_shorter_than_asked
    [0.0001, 0.001, 0.0015, 0.01].each do |duration|
      5.times { assert_operator elapsed { sleep duration }, :>=, duration }
    end
  end

  def test_a_sleep_is_not_much_longer_than_asked_when_nothing_else_runs
    limit = patient(0.02)
    assert_operator shortest(limit) { elapsed { sleep 0.005 } }, :<, limit
  end

  def test_a_busy_fiber_does_not_make_a_timer_fire_early_or_get_lost
    fired = nil
    start = clock
    spin { sleep 0.002; fired = clock - start }
    snooze
    nil until clock - start > 0.004
    snooze until fired
    assert_operator fired, :>=, 0.002
  end

  # --- waking ------------------------------------------------------------------------------------------

  def test_sleep_returns_nil_when_the_time_is_up
    assert_equal 0, sleep(0.001)
    assert_nil Polyphony.backend_sleep(0.001)
  end

  def test_sleep_returns_the_value_the_fiber_is_scheduled_with
    fiber = spin { sleep 100 }
    snooze
    fiber.schedule(:early)
    assert_equal :early, fiber.await
    endless = spin { sleep }
    snooze
    endless.schedule(:woken)
    assert_equal :woken, endless.await
  end

  def test_a_value_that_comes_just_before_the_timer_fires_is_kept
    fiber = spin { sleep 0.001 }
    snooze
    deadline = clock + 0.003
    nil until clock > deadline
    fiber.schedule(:in_time) # the timer is due, but has not been looked at
    Thread.current.backend.poll(false) # now it has
    assert_equal :in_time, fiber.await
  end

  def test_a_sleep_that_was_woken_leaves_no_timer
    fiber = spin { sleep 100 }
    snooze
    before = Thread.current.backend.stats[:pending_timers]
    fiber.schedule
    fiber.await
    assert_equal before - 1, Thread.current.backend.stats[:pending_timers]
  end

  def test_a_cancelled_sleep_leaves_no_timer
    before = Thread.current.backend.stats[:pending_timers]
    fibers = Array.new(10) { spin { sleep 100 } }
    snooze
    assert_equal before + 10, Thread.current.backend.stats[:pending_timers]
    fibers.shuffle(random: Random.new(1)).each(&:stop)
    Fiber.await(fibers)
    assert_equal before, Thread.current.backend.stats[:pending_timers]
  end

  def test_an_exception_ends_a_sleep
    fiber = spin { sleep 100 }
    snooze
    fiber.raise(ArgumentError, 'wake up')
    assert_equal 'wake up', assert_raises(ArgumentError) { fiber.await }.message
  end

  def test_sleep_lets_others_run_even_when_it_is_zero
    ran = false
    spin { ran = true }
    sleep 0
    assert ran
  end

  # --- arguments ---------------------------------------------------------------------------------------

  def test_sleep_takes_any_number
    [0, 0.0, 0.001, 1 / 1000r, Rational(1, 1_000_000)].each { |n| assert_equal 0, sleep(n) }
  end

  def test_sleep_refuses_what_is_no_duration
    assert_raises(ArgumentError) { sleep(-1) }
    assert_raises(ArgumentError) { sleep(-0.5) }
    assert_raises(ArgumentError) { sleep(Float::NAN) }
    assert_raises(TypeError) { sleep('1') }
    assert_raises(TypeError) { sleep(Object.new) }
    assert_raises(TypeError) { Polyphony.backend_sleep(nil) }
  end

  def test_a_huge_sleep_is_a_long_one_and_not_over_at_once
    [1e10, 1e300, Float::INFINITY, 2**62, 2**70, 9_223_372_036].each do |duration|
      assert_equal(:late, move_on_after(0.001, with_value: :late) { sleep duration }, duration.to_s)
    end
  end

  # --- ticking -----------------------------------------------------------------------------------------

  def test_timer_loop_ticks_on_the_grid_of_its_first_tick
    times = []
    start = clock
    Polyphony.backend_timer_loop(0.005) do
      times << clock - start
      break if times.size == 5
    end
    times.each_with_index { |time, i| assert_operator time, :>=, (i + 1) * 0.005 }
    assert_operator times.last, :<, patient(0.25)
  end

  # The second tick is the fourth of the grid at the earliest, and not one of a burst. But ticks which somebody else kept
  # from being on time are not left out, see below: so it is tried until nobody did.
  def test_timer_loop_leaves_out_ticks_that_were_missed
    tries = Array.new(10) { ticks_after_a_busy_one }
    assert(tries.any? { |_, second, third| second >= 4 && third - second.floor >= 1 }, tries.inspect)
  end

  # @return [Array<Float>] when three ticks came, in periods
  def ticks_after_a_busy_one
    times = []
    start = clock
    Polyphony.backend_timer_loop(0.004) do
      times << (clock - start) / 0.004
      nil until times.size > 1 || clock - start > 0.013 # misses two ticks
      break times if times.size == 3
    end
  end

  def test_a_slow_block_does_not_move_the_grid
    skip 'needs a machine that is not slowed down' if PATIENCE > 1
    total = shortest(0.052) do
      ticks = 0
      elapsed do
        Polyphony.backend_timer_loop(0.01) do
          break if (ticks += 1) == 4

          sleep 0.004
        end
      end
    end
    assert_operator total, :>=, 0.04
    assert_operator total, :<, 0.052, 'the time of the block was added'
  end

  def test_a_short_delay_from_outside_loses_no_tick
    skip 'needs a machine that is not slowed down' if PATIENCE > 1
    total = shortest(0.0385) do
      ticks = 0
      elapsed do
        Polyphony.backend_timer_loop(0.003) do
          break if (ticks += 1) == 10

          spin { keep_busy(0.01) } if ticks == 2
        end
      end
    end
    assert_operator total, :>=, 0.03
    assert_operator total, :<, 0.0385, 'ticks were left out'
  end

  def test_a_long_delay_from_outside_makes_no_burst_of_ticks
    times = []
    Polyphony.backend_timer_loop(0.003) do
      times << clock
      spin { keep_busy(0.05) } if times.size == 1
      break if times.size == 4
    end
    assert_operator times[1] - times[0], :>=, 0.05
    assert_operator times[3] - times[1], :>=, 0.003
  end

  def test_timer_loop_returns_what_it_is_broken_with
    assert_equal(7, Polyphony.backend_timer_loop(0.001) { break 7 })
    assert_equal(7, every(0.001) { break 7 })
  end

  def test_timer_loop_can_be_stopped
    ticks = 0
    fiber = spin { Polyphony.backend_timer_loop(0.001) { ticks += 1 } }
    snooze until ticks == 3
    fiber.stop(:done)
    assert_equal :done, fiber.await
  end

  def test_timer_loop_refuses_what_is_no_interval
    assert_raises(ArgumentError) { Polyphony.backend_timer_loop(-1) { break } }
    assert_raises(ArgumentError) { Polyphony.backend_timer_loop(Float::NAN) { break } }
    assert_raises(TypeError) { Polyphony.backend_timer_loop(nil) { break } }
  end

  def test_a_timer_loop_without_interval_lets_others_run
    others = 0
    spin { loop { others += 1; snooze } }
    ticks = 0
    Polyphony.backend_timer_loop(0) { break if (ticks += 1) == 50 }
    assert_operator others, :>=, 10
  end

  def test_timer_loop_without_a_block_is_an_enumerator
    assert_kind_of Enumerator, Polyphony.backend_timer_loop(0.001)
  end

  # That they are not late either is for bench/micro/every.rb to say.
  def test_none_of_a_thousand_ticks_of_a_millisecond_is_early
    ticks = 0
    early = []
    start = clock
    every(0.001) do
      ticks += 1
      early << ticks if clock - start < ticks * 0.001
      break if ticks == 1000
    end
    assert_empty early
  end

  def test_every_can_be_ended_by_a_time_limit_and_by_a_stop
    assert_equal(:limit, move_on_after(0.005, with_value: :limit) { every(0.001) { nil } })
    ticks = 0
    fiber = spin { every(0.001) { ticks += 1 } }
    snooze until ticks == 2
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_an_error_in_a_tick_is_raised
    assert_raises(IOError) { every(0.001) { raise IOError } }
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_every_refuses_what_is_no_interval_with_the_value
    [nil, 0, 0.0, -1, -0.5, Float::NAN].each do |interval|
      error = assert_raises(ArgumentError, interval.inspect) { every(interval) { break } }
      assert_includes error.message, interval.inspect
    end
    assert_raises(TypeError) { every('1') { break } }
  end

  def test_after_refuses_what_is_no_duration_at_the_call
    [nil, -1, -0.5, Float::NAN].each do |interval|
      error = assert_raises(ArgumentError, interval.inspect) { after(interval) { flunk } }
      assert_includes error.message, interval.inspect
    end
    assert_raises(ArgumentError) { after(1) }
    assert_empty Fiber.current.children
  end

  def test_after_zero_seconds_is_soon
    assert_equal :done, after(0) { :done }.await
  end

  def test_what_was_put_off_can_be_stopped
    fiber = after(100) { flunk }
    snooze
    fiber.stop(:given_up)
    assert_equal :given_up, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_after_runs_its_block_later_in_a_fiber
    log = []
    fiber = after(0.001) { log << :later; 5 }
    log << :now
    assert_equal 5, fiber.await
    assert_equal %i[now later], log
  end

  # --- what it costs -------------------------------------------------------------------------------------

  # The number of system calls this thread has made is not told by Linux; strace counts them.
  COUNTED = <<~'RUBY'
    require 'polyphony'
    n = Integer(ARGV[0])
    fiber = spin { Polyphony.backend_wait_event(true) }
    snooze
    GC.disable
    n.times { move_on_after(1000) { nil } }
    n.times { Polyphony.backend_timeout(1000, nil) { nil } }
    n.times { cancel_after(1000) { Polyphony.backend_timeout(500, nil) { nil } } }
    fiber.schedule
  RUBY

  def system_calls(times)
    Tempfile.create('strace') do |log|
      command = ['strace', '-f', '-qq', '-o', log.path, RbConfig.ruby, "-I#{POLYPHONY_LIB}", '-e', COUNTED, times.to_s]
      assert system({ 'RUBYOPT' => nil }, *command, err: File::NULL), 'strace did not run'
      log.read.lines.grep_v(/brk|mmap|munmap|mremap|madvise|futex|SIG/).size
    end
  end

  def test_arming_and_cancelling_timers_makes_no_system_call
    heavy
    skip 'strace is not installed' unless system('strace -V', out: File::NULL, err: File::NULL)
    skip 'strace is not allowed' unless system('strace', '-o', File::NULL, 'true', err: File::NULL)
    few = Array.new(3) { system_calls(10) }.min
    many = Array.new(3) { system_calls(1010) }.min
    assert_in_delta few, many, 30, 'three thousand timeouts more took so many more system calls'
  end

  def test_arming_and_cancelling_timers_does_not_poll
    heavy
    backend = Thread.current.backend
    backend.stats
    1000.times { move_on_after(1000) { nil } }
    stats = backend.stats
    assert_equal [0, 0, 0], stats.values_at(:poll_count, :op_count, :switch_count)
    assert_equal 0, stats[:pending_timers]
  end

  def test_ten_thousand_timers_at_once
    heavy
    count = 0
    10_000.times { |i| spin { sleep 0.001 + (i % 7) * 0.001; count += 1 } }
    Fiber.current.await_all_children
    assert_equal 10_000, count
  end
end
