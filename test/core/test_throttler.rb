# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Throttler, and the words that use one.
class TestThrottler < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def throttler(interval = 0.005)
    Polyphony::Throttler.new(interval: interval)
  end

  # In nanoseconds. Nobody may be waiting for it.
  def next_slot(throttler)
    turns = throttler.instance_variable_get(:@turns).value
    turns.shift(true).tap { |slot| turns << slot }
  end

  def times_of_calls(throttler, count)
    Array.new(count) { throttler.call { clock } }
  end

  # The n-th call at the n-th slot or later.
  def assert_not_early(start, times, interval)
    times.each_with_index { |time, i| assert_operator time - start, :>=, i * interval, "call #{i}" }
  end

  # --- the rate ------------------------------------------------------------------------------------

  def test_calls_are_not_closer_than_the_interval
    start = clock
    assert_not_early start, times_of_calls(throttler(0.003), 5), 0.003
  end

  def test_a_rate_is_a_number_of_calls_a_second
    [Polyphony::Throttler.new(250), Polyphony::Throttler.new(rate: 250), Polyphony::Throttler.new({ rate: 250r })]
      .each do |throttler|
        start = clock
        assert_not_early start, times_of_calls(throttler, 4), 0.004
      end
  end

  def test_call_returns_what_the_block_returns_and_gives_it_the_throttler
    throttler = throttler()
    assert_equal([throttler, :value], throttler.call { |t| [t, :value] })
    assert_equal :value, throttler.process { :value }
  end

  def test_a_limit_that_is_over_names_the_throttler
    throttler = Polyphony::Throttler.new(interval: 60)
    throttler.call { 1 }
    waiting = spin { throttler.call { flunk } } # has the next slot
    snooze
    error = assert_raises(Polyphony::Cancel) { cancel_after(0.005) { throttler.call { flunk } } }
    assert_match(/its turn at a throttler \(#<Polyphony::Throttler every 60\.0 s>\)\z/, error.message)
  ensure
    waiting&.stop
  end

  def test_an_error_in_the_block_is_raised_and_the_next_call_goes_on
    throttler = throttler()
    assert_raises(Boom) { throttler.call { raise Boom } }
    assert_equal :next, throttler.call { :next }
  end

  # The first call after a pause is at once, the next at the following slot: two may be close, three not.
  def test_there_is_no_burst_after_a_pause
    throttler = throttler(0.004)
    throttler.call { nil }
    sleep 0.03
    first, _second, third = times_of_calls(throttler, 3)
    assert_operator third - first, :>=, 0.004
  end

  def test_the_slots_stay_on_the_grid_of_the_first_call_however_late_the_others_are
    throttler = throttler(0.002)
    slots = [0, 0.0005, 0.003, 0.0071, 0.001].map do |pause|
      sleep pause
      throttler.call { next_slot(throttler) }
    end
    steps = slots.each_cons(2).map { |a, b| b - a }
    assert_equal [0] * 4, steps.map { |step| step % 2_000_000 }
    assert steps.all?(&:positive?)
  end

  def test_calls_may_overlap
    throttler = throttler(0.001)
    inside = most = 0
    fibers = Array.new(3) do
      spin do
        throttler.call do
          most = [most, inside += 1].max
          snooze until most == 3
          inside -= 1
        end
      end
    end
    Fiber.await(fibers)
    assert_equal 3, most
  end

  # --- many callers --------------------------------------------------------------------------------

  def test_fibers_are_served_in_the_order_in_which_they_came
    throttler = throttler(0.001)
    log = []
    fibers = Array.new(8) { |i| spin { throttler.call { log << i } } }
    Fiber.await(fibers)
    assert_equal Array.new(8) { |i| i }, log
  end

  def test_the_rate_holds_for_all_fibers_together
    throttler = throttler(0.002)
    times = []
    start = clock
    fibers = Array.new(4) { spin { 3.times { throttler.call { times << clock } } } }
    Fiber.await(fibers)
    assert_equal 12, times.size
    assert_not_early start, times, 0.002
  end

  def test_the_rate_holds_for_all_threads_together
    throttler = throttler(0.002)
    times = Polyphony::Queue.new
    start = clock
    use = -> { throttler.call { times << clock } }
    threads = Array.new(3) { Thread.new { [spin { 2.times { use.call } }, spin(&use)].each(&:await) } }
    all = Array.new(9) { times.shift }
    threads.each(&:join)
    assert_not_early start, all.sort, 0.002
  end

  def test_a_cancelled_caller_uses_up_no_slot
    throttler = throttler(100)
    throttler.call { nil }
    slot = next_slot(throttler)
    fibers = Array.new(2) { waiting { throttler.call { flunk } } }
    fibers.each(&:stop)
    Fiber.await(fibers)
    assert_equal slot, next_slot(throttler)
  end

  def test_a_caller_that_is_scheduled_by_somebody_waits_for_its_slot_all_the_same
    throttler = throttler(0.01)
    start = clock
    throttler.call { nil }
    fiber = spin { throttler.call { clock - start } }
    snooze until fiber.state == :waiting
    3.times { fiber.schedule; snooze }
    assert_operator fiber.await, :>=, 0.01
  end

  def test_callers_that_are_ended_anywhere_leave_a_throttler_that_works
    cancel_everywhere do |run|
      throttler = throttler(0.0002)
      calls = Hash.new(0)
      run.scenario { 3.times { throttler.call { calls[:scenario] += 1 } } }
      run.beside { 3.times { throttler.call { calls[:beside] += 1 } } }
      run.check do |finished|
        assert_equal 3, calls[:beside]
        assert_equal 3, calls[:scenario] if finished
        assert_equal :again, throttler.call { :again }
        assert_equal 0, Thread.current.backend.stats[:pending_timers]
      end
    end
  end

  def test_a_thread_that_is_killed_while_it_waits_leaves_its_turn_to_the_next
    throttler = throttler(100)
    throttler.call { nil }
    slot = next_slot(throttler)
    thread = Thread.new { throttler.call { flunk } }
    sleep 0.001 until thread.main_fiber&.state == :waiting
    thread.kill
    thread.join
    assert_equal slot, next_slot(throttler)
  end

  def test_a_forked_child_does_not_wait_for_a_fiber_of_its_parent
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      throttler = Polyphony::Throttler.new(interval: 0.05)
      throttler.call { nil }
      spin { throttler.call { nil } }
      2.times { snooze }
      pid = fork { move_on_after(10) { throttler.call { puts 'child' } } }
      Process.wait(pid)
      throttler.call { puts 'parent' }
    RUBY
    assert_equal "child\nparent\n", out, err
  end

  # --- errors of use -------------------------------------------------------------------------------

  def test_a_throttler_refuses_what_is_no_rate
    [nil, 0, -1, Float::NAN, Float::INFINITY, '10', {}, { rate: 0 }, { rate: nil }, { interval: -0.1 }, { interval: 0 },
     { rate: 1, interval: 1 }, { speed: 1 }, { interval: Float::INFINITY }, 1i].each do |rate|
      error = assert_raises(RuntimeError, rate.inspect) { Polyphony::Throttler.new(rate) }
      assert_includes error.message, rate.inspect
    end
  end

  def test_a_throttler_without_a_block_does_not_wait
    throttler = throttler(1000)
    assert_raises(ArgumentError) { throttler.call }
    assert_equal :first, throttler.call { :first }
  end

  # --- throttled_loop ------------------------------------------------------------------------------

  def test_a_throttled_loop_runs_at_the_rate_given_in_any_way
    [[[250], {}], [[], { rate: 250 }], [[], { interval: 0.004 }]].each do |arguments, options|
      times = []
      start = clock
      assert_nil throttled_loop(*arguments, **options, count: 4) { times << clock }
      assert_equal 4, times.size
      assert_not_early start, times, 0.004
    end
  end

  def test_a_throttled_loop_runs_in_the_current_fiber
    here = nil
    throttled_loop(1000, count: 1) { here = Fiber.current }
    assert_same Fiber.current, here
  end

  def test_break_and_stop_iteration_end_a_throttled_loop_with_their_value
    n = 0
    assert_equal(:broken, throttled_loop(5000) { (n += 1) == 3 and break :broken })
    assert_equal 3, n
    assert_nil(throttled_loop(5000) { raise StopIteration })
    enumerator = [1, 2].each
    taken = []
    assert_equal [1, 2], throttled_loop(5000, count: 10) { taken << enumerator.next }
    assert_equal [1, 2], taken
  end

  def test_a_throttled_loop_with_a_count_of_zero_does_nothing
    assert_nil(throttled_loop(1, count: 0) { flunk })
  end

  def test_a_throttled_loop_can_be_stopped_and_its_errors_are_raised
    n = 0
    fiber = spin { throttled_loop(2000) { n += 1 } }
    snooze until n == 2
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_raises(Boom) { throttled_loop(1000) { raise Boom } }
  end

  def test_a_throttled_loop_refuses_what_is_no_rate_or_count
    error = assert_raises(RuntimeError) { throttled_loop(-5) { flunk } }
    assert_includes error.message, '-5'
    assert_raises(RuntimeError) { throttled_loop { flunk } }
    assert_raises(RuntimeError) { throttled_loop(5, interval: 1) { flunk } }
    assert_raises(RuntimeError) { throttled_loop(5, rate: 5) { flunk } }
    assert_includes assert_raises(ArgumentError) { throttled_loop(5, count: -1) { flunk } }.message, '-1'
    assert_includes assert_raises(ArgumentError) { throttled_loop(5, count: 1.5) { flunk } }.message, '1.5'
    assert_raises(ArgumentError) { throttled_loop(5) }
  end

  # --- spin_loop -----------------------------------------------------------------------------------

  def test_a_spin_loop_may_be_throttled
    [{ rate: 250 }, { interval: 0.004 }].each do |options|
      times = []
      start = clock
      fiber = spin_loop(:ticker, **options) { times << clock; break if times.size == 4 }
      assert_equal :ticker, fiber.tag
      assert_nil fiber.await
      assert_equal 4, times.size
      assert_not_early start, times, 0.004
    end
  end

  def test_stop_iteration_ends_a_throttled_spin_loop
    n = 0
    assert_nil spin_loop(rate: 5000) { (n += 1) == 2 and raise StopIteration }.await
    assert_equal 2, n
  end

  def test_an_error_in_a_throttled_spin_loop_is_its_result
    assert_raises(Boom) { spin_loop(rate: 1000) { raise Boom }.await }
    assert_raises(LocalJumpError) { spin_loop(rate: 1000) { raise LocalJumpError }.await }
  end

  def test_loops_that_are_ended_anywhere_leave_no_timer_and_no_fiber
    cancel_everywhere do |run|
      ticks = 0
      run.scenario do
        throttled_loop(10_000, count: 2) { snooze }
        every(0.0001) { break if (ticks += 1) == 2 }
        after(0.0001) { snooze }.await
        spin_loop(rate: 10_000) { break if (ticks += 1) == 4 }.await
      end
      run.check do |finished|
        assert_equal 4, ticks if finished
        assert_equal 0, Thread.current.backend.stats[:pending_timers]
        assert_empty Fiber.current.children
      end
    end
  end

  def test_a_spin_loop_refuses_what_is_no_rate_at_the_call
    error = assert_raises(RuntimeError) { spin_loop(rate: -3) { flunk } }
    assert_includes error.message, '-3'
    assert_raises(RuntimeError) { spin_loop(rate: 1, interval: 1) { flunk } }
    assert_raises(ArgumentError) { spin_loop(rate: 1) }
    assert_empty Fiber.current.children
  end
end
