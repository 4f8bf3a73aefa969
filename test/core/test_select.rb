# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Fiber.await, select, race and map, and the monitors under them.
class TestSelect < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  def sleeper
    spin { sleep }
  end

  # --- monitors -----------------------------------------------------------------------------

  def test_a_monitor_is_told_the_result
    fiber = spin { :done }
    assert_same fiber, fiber.monitor(Fiber.current)
    assert_equal [Fiber.current], fiber.monitors
    assert_equal [fiber, :done], Fiber.current.monitor_mailbox.shift
  end

  def test_a_fiber_that_has_ended_is_reported_at_once
    fiber = spin { :done }
    fiber.await
    fiber.monitor(Fiber.current)
    assert_equal [[fiber, :done]], Fiber.current.monitor_mailbox.shift_all
  end

  def test_a_parent_that_monitors_gets_errors_as_reports
    parent = spin do
      fiber = spin { raise IOError }
      fiber.monitor(Fiber.current)
      _, error = Fiber.current.monitor_mailbox.shift
      error.class
    end
    assert_equal IOError, parent.await
  end

  def test_a_monitor_mailbox_that_is_full_or_closed_keeps_nobody_from_ending
    closed = sleeper.tap { |fiber| fiber.monitor_mailbox.close }
    full = sleeper.tap { |fiber| fiber.monitor_mailbox.cap(1) }
    fibers = Array.new(2) { spin { snooze } }
    fibers.each { |fiber| fiber.monitor(closed).monitor(full) }
    selecting = spin { Fiber.select(fibers) }
    assert_same fibers.first, selecting.await.first
    assert_equal [closed, full], Fiber.current.children
    assert_equal 2, full.monitor_mailbox.size
  end

  def test_who_is_no_monitor_any_more_is_not_told
    fiber = spin { :done }
    fiber.monitor(Fiber.current).monitor(Fiber.current)
    fiber.unmonitor(Fiber.current).unmonitor(Fiber.current)
    assert_equal [], fiber.monitors
    fiber.await
    assert Fiber.current.monitor_mailbox.empty?
    assert_match(/got 1/, assert_raises(TypeError) { fiber.monitor(1) }.message)
  end

  # --- select -------------------------------------------------------------------------------

  def test_select_returns_the_first_to_end_and_leaves_the_others
    other = sleeper
    fiber = spin { snooze; :first }
    assert_equal [fiber, :first], Fiber.select(other, fiber)
    assert_equal :waiting, other.state
    assert_equal [], other.monitors
    assert_nil other.__monitors
  end

  def test_select_takes_fibers_that_have_ended_and_arrays
    fiber = spin { 1 }
    fiber.await
    assert_equal [fiber, 1], Fiber.select([sleeper, fiber])
    assert_nil Fiber.select
  end

  def test_select_raises_the_error_of_the_first_once
    assert_raises(IOError) { Fiber.select(spin { raise IOError }, sleeper) }
    3.times { snooze }
    fiber = spin { raise IOError }
    begin
      snooze
    rescue IOError
      nil
    end
    assert_raises(IOError) { Fiber.select(fiber) }
  end

  def test_an_error_of_a_fiber_that_was_not_selected_is_not_lost
    parent = spin do
      Fiber.select(spin { :first }, spin { raise IOError, 'second' })
      sleep
    end
    assert_raises(IOError) { parent.await }
  end

  def test_a_cancelled_select_loses_no_error
    cancel_everywhere do |run|
      seen = []
      run.scenario do
        fibers = [spin { snooze; raise IOError, 'child' }, sleeper]
        Fiber.select(fibers)
      rescue IOError => e
        seen << e.message
      ensure
        begin
          5.times { snooze }
        rescue IOError => e
          seen << e.message
        end
      end
      run.check { |finished| assert_equal(['child'], seen) if finished }
    end
  end

  def test_a_select_that_is_cancelled_as_a_fiber_fails_loses_no_error
    main = Fiber.current
    failing = spin { suspend; raise IOError, 'child' }
    spin { snooze; failing.schedule; main.cancel }
    assert_raises(Polyphony::Cancel) { Fiber.select(failing) }
    assert_raises(IOError) { snooze }
  end

  def test_errors_of_use
    assert_match(/got 1/, assert_raises(TypeError) { Fiber.select(1) }.message)
    assert_match(/await itself/, assert_raises(FiberError) { Fiber.select(Fiber.current) }.message)
    assert_match(/got 0/, assert_raises(ArgumentError) { Fiber.map([1], limit: 0) { 1 } }.message)
    assert_match(/block/, assert_raises(ArgumentError) { Fiber.map([1]) }.message)
    assert_match(/got 3/, assert_raises(TypeError) { Fiber.map(3) { 1 } }.message)
  end

  def test_an_error_of_use_ends_nobody
    other = sleeper
    %i[await select race].each do |word|
      assert_match(/got nil/, assert_raises(TypeError) { Fiber.public_send(word, other, nil) }.message)
      assert_raises(FiberError) { Fiber.public_send(word, other, Fiber.current) }
    end
    3.times { snooze } # where a stop of the caller would arrive
    assert_equal :waiting, other.state
  end

  # --- await --------------------------------------------------------------------------------

  def test_await_sees_the_failure_of_a_fiber_that_is_not_its_child
    fibers = Polyphony::Queue.new
    owner = spin do
      fibers << [sleeper, spin { snooze; raise IOError }]
      sleep
    rescue IOError
      sleep
    end
    waiter = spin { Fiber.await(fibers.shift) }
    assert_raises(IOError) { waiter.await }
    assert_equal [], owner.children
  end

  def test_await_takes_the_same_fiber_twice
    fiber = spin { 1 }
    assert_equal [1, 1], spin { Fiber.await(fiber, fiber) }.await
  end

  # --- race ---------------------------------------------------------------------------------

  def test_race_returns_the_first_success_and_stops_the_others
    ended = []
    slow = spin do
      sleep
    ensure
      ended << :slow
    end
    assert_equal :fast, Fiber.race(slow, spin { raise IOError }, spin { snooze; snooze; :fast })
    assert_equal [:slow], ended
    assert_empty Fiber.current.children
  end

  def test_a_stop_that_comes_together_with_the_end_of_the_last_one_is_not_lost
    fiber = spin do
      loser = spin do
        sleep
      ensure
        fiber.stop(:stopped)
      end
      [:went_on, Fiber.race(spin { snooze }, loser), snooze]
    end
    assert_equal :stopped, fiber.await
  end

  def test_all_of_a_race_are_waited_for_also_if_some_fail_when_they_are_stopped
    log = []
    slow = spin do
      sleep
    ensure
      sleep 0.002
      log << :ended
    end
    failing = spin do
      sleep
    ensure
      raise IOError
    end
    assert_equal [:won, [:ended]], [Fiber.race(spin { snooze; :won }, slow, failing), log]
  end

  def test_a_race_without_winner_raises_what_they_ended_with
    assert_raises(IOError) { Fiber.race(spin { raise IOError }) }
    error = assert_raises(Polyphony::MultipleErrors) { Fiber.race(spin { raise IOError, 'a' }, spin { raise 'b' }) }
    assert_equal [IOError, RuntimeError], error.errors.map(&:class)
    assert_match(/IOError: a .*RuntimeError: b/m, error.message)
    assert_nil Fiber.race
  end

  def test_a_cancelled_race_leaves_nobody
    cancel_everywhere do |run|
      run.scenario { Fiber.race(spin { 3.times { snooze }; 1 }, sleeper) }
      run.check { assert_empty Fiber.current.children }
    end
  end

  # --- map ----------------------------------------------------------------------------------

  def test_map_keeps_the_order_and_the_limit
    inside = most = 0
    result = Fiber.map(1..9, limit: 3) do |n|
      most = [most, inside += 1].max
      (10 - n).times { snooze }
      inside -= 1
      n * n
    end
    assert_equal (1..9).map { |n| n * n }, result
    assert_equal 3, most
  end

  def test_map_takes_elements_as_fibers_become_free
    taken = 0
    endless = Enumerator.new { |y| loop { y << (taken += 1) } }
    assert_raises(IOError) { Fiber.map(endless, limit: 2) { |n| n < 5 ? snooze : raise(IOError) } }
    assert_operator taken, :<=, 8
    assert_empty Fiber.current.children
  end

  def test_map_without_a_limit_and_without_elements
    assert_equal [2, 3], Fiber.map([1, 2]) { |n| n + 1 }
    assert_equal [], Fiber.map([]) { flunk }
  end

  def test_a_cancelled_map_leaves_nobody
    cancel_everywhere do |run|
      run.scenario { Fiber.map(1..4, limit: 2) { |n| snooze; n } }
      run.check { assert_empty Fiber.current.children }
    end
  end

  # The race would wait for it for ever.
  def test_a_loser_that_is_restarted_while_it_is_ended_does_not_begin_again
    runs = 0
    loser = spin do
      (runs += 1) == 1 ? sleep : flunk('begun again')
    ensure
      5.times { snooze }
    end
    winner = spin { 2.times { snooze }; :won }
    spin { snooze until winner.dead? && loser.state == :runnable; loser.restart }
    assert_equal [:won, 1], [Fiber.race(winner, loser), runs]
  end
end
