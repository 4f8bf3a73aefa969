# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::WaitList: parking and waking in order of arrival, and wakes that are not used.
class TestWaitlist < Polyphony::TestCase
  on_every_driver

  def test_a_fiber_whose_thread_has_ended_without_it_is_not_woken
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony/core'
      list = Polyphony::WaitList.new
      Thread.new { 2.times { spin { list.park } }; snooze until list.length == 2 }.join
      fiber = spin { list.park }
      snooze until list.length == 3
      p list.wake(:awake), fiber.await, list.wake, list.woken
    RUBY
    assert_equal ["true", ":awake", "false", "0"], out.lines(chomp: true), err
  end

  class Boom < StandardError; end

  def setup
    super
    @list = Polyphony::WaitList.new
  end

  def parked(count = 1, &block)
    block ||= -> { @list.park }
    fibers = Array.new(count) { spin(&block) }
    snooze
    fibers
  end

  def test_a_parked_fiber_waits_until_it_is_woken
    fiber, = parked
    assert_equal :waiting, fiber.state
    assert_equal 1, @list.length
    assert_equal true, @list.wake
    assert_equal true, fiber.await
    assert @list.empty?
  end

  def test_a_list_knows_its_owner_and_what_its_fibers_wait_for
    assert_nil @list.owner
    @list = Polyphony::WaitList.new(:lock, 'a lock')
    assert_equal :lock, @list.owner
    fiber, = parked
    assert_equal 'a lock', fiber.__wait_reason
    fiber.stop
    assert_raises(TypeError) { Polyphony::WaitList.new(:lock, 1) }
  end

  def test_wake_hands_over_a_value
    fiber, = parked
    @list.wake(:value)
    assert_equal :value, fiber.await
    nothing, = parked
    @list.wake(nil)
    assert_nil nothing.await
  end

  def test_wake_of_an_empty_list_is_false_and_is_not_kept
    assert_equal false, @list.wake
    fiber, = parked
    snooze
    assert_equal :waiting, fiber.state
    @list.wake
    fiber.await
  end

  def test_fibers_are_woken_in_the_order_in_which_they_came
    log = []
    4.times { |i| spin { log << [i, @list.park] } }
    snooze
    4.times { |i| @list.wake(i) }
    Fiber.current.await_all_children
    assert_equal [[0, 0], [1, 1], [2, 2], [3, 3]], log
  end

  def test_wake_all_wakes_all_and_tells_how_many
    fibers = parked(3)
    assert_equal 3, @list.wake_all(:all)
    assert_equal %i[all all all], Fiber.await(fibers)
    assert_equal 0, @list.wake_all
  end

  def test_length_and_woken_tell_who_waits_and_who_is_about_to_run
    fibers = parked(3)
    assert_equal [3, 0], [@list.length, @list.woken]
    @list.wake
    assert_equal [2, 1], [@list.length, @list.woken]
    snooze
    assert_equal [2, 0], [@list.length, @list.woken]
    @list.wake_all
    Fiber.await(fibers)
    assert_equal [0, 0], [@list.length, @list.woken]
  end

  def test_a_fiber_may_leave_from_the_middle
    log = []
    fibers = Array.new(5) { |i| spin { @list.park; log << i } }
    snooze
    [0, 2, 4].each { |i| fibers[i].stop }
    Fiber.await(fibers.values_at(0, 2, 4))
    assert_equal 2, @list.length
    @list.wake_all
    Fiber.await(fibers)
    assert_equal [1, 3], log
  end

  def test_a_wake_that_is_not_used_goes_to_the_next
    first, second, third = parked(3)
    @list.wake
    first.raise(Boom)
    assert_raises(Boom) { first.await }
    second.await
    assert_equal :waiting, third.state
    @list.wake
    third.await
  end

  def test_a_wake_passes_over_several_who_do_not_use_it
    fibers = parked(4)
    @list.wake
    fibers.first(3).each(&:stop)
    Fiber.await(fibers)
    assert_equal [0, 0], [@list.length, @list.woken]
  end

  def test_a_wake_that_nobody_can_use_is_gone
    fiber, = parked
    @list.wake
    fiber.stop
    fiber.await
    assert_equal [0, 0], [@list.length, @list.woken]
    assert_equal false, @list.wake
  end

  def test_a_fiber_that_was_scheduled_otherwise_leaves_the_list
    fiber, = parked
    fiber.schedule(:otherwise)
    assert_equal :otherwise, fiber.await
    assert @list.empty?
  end

  # --- with a timeout -----------------------------------------------------------------------------------

  def test_park_with_a_timeout_is_false_when_it_passes
    assert_equal false, @list.park(0.001)
    assert_equal false, @list.park(0)
    assert_equal false, @list.park(-1)
    assert @list.empty?
  end

  def test_park_with_a_timeout_returns_the_value_of_a_wake
    fiber, = parked { @list.park(100) }
    @list.wake(:value)
    assert_equal :value, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_park_with_a_timeout_can_be_cancelled
    fiber, = parked { @list.park(100) }
    fiber.raise(Boom)
    assert_raises(Boom) { fiber.await }
    assert @list.empty?
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_park_refuses_what_is_no_duration
    assert_raises(TypeError) { @list.park('1') }
    assert_raises(ArgumentError) { @list.park(Float::NAN) }
    assert @list.empty?
  end

  def test_a_wake_just_before_the_timeout_counts
    fiber, = parked { @list.park(0.001) }
    deadline = clock + 0.003
    nil until clock > deadline
    @list.wake(:in_time) # the timer is due, but has not been looked at
    Thread.current.backend.poll(false) # now it has
    assert_equal :in_time, fiber.await
  end

  # A fiber that nobody but the list and the timer knows.
  def test_a_raw_fiber_that_parks_with_a_timeout_is_kept_from_the_garbage_collector
    log = []
    Fiber.new { spin { Fiber.new { Polyphony::WaitList.new.park(0.01); log << :woken }.resume } }.resume
    snooze
    GC.start
    sleep 0.02
    assert_equal [:woken], log
  end

  # --- threads ----------------------------------------------------------------------------------------------

  def test_a_wake_from_another_thread
    fiber, = parked
    Thread.new { @list.wake(:outside) }.join
    assert_equal :outside, fiber.await
  end

  def test_fibers_of_several_threads_in_one_list
    threads = Array.new(3) { |i| Thread.new { [i, @list.park] } }
    sleep 0.001 until @list.length == 3
    @list.wake_all(:go)
    assert_equal [[0, :go], [1, :go], [2, :go]], threads.map(&:value).sort
  end

  def test_a_thread_that_is_killed_leaves_the_list
    thread = Thread.new { @list.park }
    sleep 0.001 until @list.length == 1
    thread.kill
    thread.join
    assert_equal [0, 0], [@list.length, @list.woken]
  end

  def test_a_thread_that_is_killed_after_its_wake_passes_it_on
    thread = Thread.new { @list.park }
    sleep 0.001 until @list.length == 1
    fiber, = parked
    @list.wake(:either)
    thread.kill
    thread.join
    @list.wake(:second) unless fiber.state == :runnable
    fiber.await
    assert_equal [0, 0], [@list.length, @list.woken]
  end
end
