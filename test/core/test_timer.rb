# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Timer: sleeps and limits on a grid.
class TestTimer < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def setup
    super
    @timer = Polyphony::Timer.new(resolution: 0.005)
  end

  def nothing_pending
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
    assert_empty @timer.instance_variable_get(:@innermost)
  end

  # --- sleeping and ticking ------------------------------------------------------------------------

  def test_a_sleep_is_not_shorter_than_asked
    [0, 0.0001, 0.006, 1 / 500r].each do |duration|
      start = clock
      assert_nil @timer.sleep(duration)
      assert_operator clock - start, :>=, duration
    end
  end

  def test_a_sleep_ends_on_the_grid
    3.times do
      start = clock
      @timer.sleep(0.001)
      assert_operator clock, :>=, ((start + 0.001) / 0.005).ceil * 0.005
    end
  end

  def test_sleeps_of_different_length_end_together
    timer = Polyphony::Timer.new(resolution: 1000)
    fibers = [1, 2, 3].map { |n| waiting { timer.sleep(n * 0.001) } }
    other = waiting { sleep 0.004 }
    other.await
    assert_equal %i[waiting waiting waiting], fibers.map(&:state)
    fibers.each(&:stop)
  end

  def test_a_sleep_may_be_ended_and_may_be_endless
    fiber = waiting { @timer.sleep(Float::INFINITY) }
    fiber.schedule(:woken)
    assert_equal :woken, fiber.await
    fiber = waiting { @timer.sleep(100) }
    fiber.raise(Boom)
    assert_raises(Boom) { fiber.await }
    nothing_pending
  end

  def test_after_runs_its_block_later_in_a_fiber
    log = []
    start = clock
    fiber = Polyphony::Timer.new(:later, resolution: 0.002).after(0.003) { log << :later; clock - start }
    assert_equal [:later, Fiber.current], [fiber.tag, fiber.parent]
    log << :now
    assert_operator fiber.await, :>=, 0.003
    assert_equal %i[now later], log
  end

  def test_every_ticks_at_the_rate_of_its_interval
    times = []
    start = clock
    timer = Polyphony::Timer.new(resolution: 0.001)
    assert_equal(:enough, timer.every(0.0025) { times << clock - start; break :enough if times.size == 4 })
    times.each_with_index { |time, i| assert_operator time, :>=, (i + 1) * 0.0025 }
  end

  def test_every_leaves_out_ticks_that_were_missed
    times = []
    start = clock
    Polyphony::Timer.new(resolution: 0.001).every(0.004) do
      times << (clock - start) / 0.004
      ticked = clock
      nil until times.size > 1 || clock - ticked > 0.009
      break if times.size == 2
    end
    assert_operator times[1], :>=, 4
  end

  # --- limits --------------------------------------------------------------------------------------

  def test_a_block_that_is_in_time_is_left_alone
    assert_equal :value, @timer.cancel_after(100) { :value }
    assert_equal :value, @timer.move_on_after(100) { :value }
    assert_raises(Boom) { @timer.cancel_after(100) { raise Boom } }
    nothing_pending
  end

  def test_move_on_after_ends_the_block_and_returns_a_value
    start = clock
    assert_nil(@timer.move_on_after(0.002) { sleep })
    assert_operator clock - start, :>=, 0.002
    assert_equal(:late, @timer.move_on_after(0.002, with_value: :late) { sleep 100 })
    nothing_pending
  end

  def test_cancel_after_raises_what_it_is_told_to
    assert_raises(Polyphony::Cancel) { @timer.cancel_after(0.001) { sleep } }
    assert_raises(Boom) { @timer.cancel_after(0.001, with_exception: Boom) { sleep } }
    error = assert_raises(Boom) { @timer.cancel_after(0.001, with_exception: [Boom, 'slow']) { sleep } }
    assert_equal 'slow', error.message
    assert_raises(RuntimeError) { @timer.cancel_after(0.001, with_exception: 'slow') { sleep } }
    nothing_pending
  end

  def test_no_limit_is_no_limit
    assert_equal(0, @timer.cancel_after(nil) { sleep 0.001 })
    assert_equal(:done, @timer.move_on_after(nil, with_value: :late) { sleep 0.001; :done })
  end

  def test_limits_may_be_nested_and_each_ends_its_own_block
    inner = @timer.move_on_after(100, with_value: :outer) { @timer.move_on_after(0.001, with_value: :inner) { sleep } }
    outer = @timer.move_on_after(0.001, with_value: :outer) { @timer.move_on_after(100, with_value: :inner) { sleep } }
    mixed = move_on_after(0.001, with_value: :word) { @timer.move_on_after(100, with_value: :timer) { sleep } }
    assert_equal %i[inner outer word], [inner, outer, mixed]
    nothing_pending
  end

  def test_reset_starts_the_period_again
    last = clock
    @timer.move_on_after(0.01) do
      3.times do
        sleep 0.002
        last = clock
        assert_same @timer, @timer.reset
      end
      sleep
    end
    assert_operator clock - last, :>=, 0.01
  end

  def test_reset_is_for_the_innermost_limit_of_the_fiber
    result = @timer.move_on_after(0.01, with_value: :outer) do
      @timer.move_on_after(100) { loop { sleep 0.001; @timer.reset } }
    end
    assert_equal :outer, result
  end

  def test_when_the_inner_limit_is_left_reset_is_for_the_outer_one_again
    last = clock
    @timer.move_on_after(0.01) do
      @timer.move_on_after(0.001) { sleep }
      last = clock
      @timer.reset
      sleep
    end
    assert_operator clock - last, :>=, 0.01
  end

  def test_each_fiber_resets_its_own_limit
    quiet = spin { @timer.move_on_after(0.005, with_value: :quiet) { sleep } }
    lively = spin { @timer.move_on_after(100) { sleep 0.001 while @timer.reset && !quiet.dead?; :lively } }
    assert_equal %i[lively quiet], Fiber.await(lively, quiet)
  end

  def test_reset_without_a_limit_is_nil
    assert_nil @timer.reset
    fiber = nil
    @timer.move_on_after(100) { fiber = spin { @timer.reset }; fiber.await }
    assert_nil fiber.result
    other = Polyphony::Timer.new(resolution: 1)
    @timer.move_on_after(100) { assert_nil other.reset }
  end

  def test_a_timer_that_is_used_anywhere_leaves_nothing
    cancel_everywhere do |run|
      timer = Polyphony::Timer.new(resolution: 0.0002)
      run.scenario do
        timer.sleep(0.0001)
        timer.move_on_after(0.0003) { timer.cancel_after(100) { snooze; timer.reset; timer.sleep(100) } }
        timer.after(0.0001) { nil }.await
        timer.every(0.0001) { break }
      end
      run.check do
        @timer = timer
        nothing_pending
      end
    end
  end

  # --- stopping, threads, processes ----------------------------------------------------------------

  def test_a_stopped_timer_takes_nothing_more_and_every_returns
    ticks = 0
    ticking = spin { @timer.every(0.001) { ticks += 1 } }
    sleeping = spin { @timer.sleep(0.02) }
    limited = spin { @timer.move_on_after(0.02, with_value: :ended) { sleep } }
    snooze until ticks >= 2
    before = ticks
    assert_same @timer, @timer.stop
    assert_equal [nil, nil, :ended], Fiber.await(ticking, sleeping, limited)
    assert_equal before, ticks
    [-> { @timer.sleep(0) }, -> { @timer.after(0) { flunk } }, -> { @timer.cancel_after(1) { flunk } },
     -> { @timer.move_on_after(1) { flunk } }].each { |use| assert_raises(RuntimeError, &use) }
    assert_nil @timer.every(1) { flunk }
    @timer.stop
  end

  def test_threads_use_one_timer
    heavy
    work = lambda do
      Array.new(5) do |i|
        spin { @timer.move_on_after(0.002 * i, with_value: i) { @timer.move_on_after(100) { @timer.sleep(100) } } }
      end.map(&:await)
    end
    assert_equal [[0, 1, 2, 3, 4]] * 3, Array.new(3) { Thread.new(&work) }.map(&:value)
    nothing_pending
  end

  def test_a_limit_holds_in_a_forked_child
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      timer = Polyphony::Timer.new(resolution: 0.01)
      pid = nil
      result = timer.move_on_after(0.05, with_value: :limit) do
        pid = fork
        sleep
      end
      puts "\#{pid ? 'parent' : 'child'}: \#{result} \#{timer.move_on_after(0.01, with_value: :again) { sleep }}"
      Process.wait(pid) if pid
    RUBY
    assert_equal ['child: limit again', 'parent: limit again'], out.lines(chomp: true).sort, err
  end

  # --- errors of use -------------------------------------------------------------------------------

  def test_a_resolution_is_a_positive_number
    [0, -1, nil, '1', Float::NAN, Float::INFINITY].each do |resolution|
      error = assert_raises(ArgumentError, resolution.inspect) { Polyphony::Timer.new(resolution: resolution) }
      assert_includes error.message, resolution.inspect
    end
    assert_raises(ArgumentError) { Polyphony::Timer.new }
  end

  def test_what_is_no_duration_is_refused_with_the_value
    uses = [->(n) { @timer.sleep(n) }, ->(n) { @timer.after(n) { flunk } }, ->(n) { @timer.cancel_after(n) { flunk } },
            ->(n) { @timer.move_on_after(n) { flunk } }, ->(n) { @timer.every(n) { flunk } }]
    uses.product([-1, '1', Float::NAN]).each do |use, duration|
      error = assert_raises(ArgumentError, duration.inspect) { use.call(duration) }
      assert_includes error.message, duration.inspect
    end
    assert_raises(ArgumentError) { @timer.sleep(nil) }
    assert_raises(ArgumentError) { @timer.every(0) { flunk } }
    assert_raises(TypeError) { @timer.cancel_after(1, with_exception: 5) { flunk } }
    nothing_pending
  end

  def test_blocks_are_needed
    assert_raises(ArgumentError) { @timer.after(1) }
    assert_raises(ArgumentError) { @timer.every(1) }
    assert_raises(ArgumentError) { @timer.cancel_after(1) }
    assert_raises(ArgumentError) { @timer.move_on_after(1) }
  end
end
