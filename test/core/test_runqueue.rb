# frozen_string_literal: true

require_relative '../test_helper'

# The queue of runnable fibers: order, priority, the merge rule, growth, counters.
class TestRunqueue < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end
  class Bang < StandardError; end

  # A fiber that waits in suspend and writes down what it was resumed with, +times+ times.
  def recorder(times = 1)
    log = []
    fiber = spin do
      times.times do
        log << Polyphony.backend_wait_event(true)
      rescue Boom, Bang => e
        log << e
      end
    end
    snooze
    assert_equal :waiting, fiber.state
    [fiber, log]
  end

  def stats
    Thread.current.backend.stats
  end

  # --- order ----------------------------------------------------------------------------------

  def test_fibers_run_in_the_order_in_which_they_were_scheduled
    log = []
    fibers = Array.new(5) { |i| spin { suspend_for_good { log << i } } }
    snooze
    [3, 1, 4, 0, 2].each { |i| fibers[i].schedule }
    snooze
    assert_equal [3, 1, 4, 0, 2], log
  end

  def test_spun_fibers_start_in_the_order_in_which_they_were_spun
    log = []
    4.times { |i| spin { log << i } }
    assert_empty log
    snooze
    assert_equal [0, 1, 2, 3], log
  end

  def test_a_fiber_scheduled_with_priority_runs_before_those_queued_earlier
    log = []
    a, b, c = Array.new(3) { |i| spin { suspend_for_good { log << i } } }
    snooze
    a.schedule
    b.schedule
    c.schedule_with_priority
    snooze
    assert_equal [2, 0, 1], log
  end

  def test_of_two_with_priority_the_later_one_runs_first
    log = []
    a, b, c = Array.new(3) { |i| spin { suspend_for_good { log << i } } }
    snooze
    a.schedule
    b.schedule_with_priority
    c.schedule_with_priority
    snooze
    assert_equal [2, 1, 0], log
  end

  def test_priority_moves_a_queued_fiber_to_the_head
    log = []
    a, b = Array.new(2) { |i| spin { log << [i, Polyphony.backend_wait_event(true)] } }
    snooze
    a.schedule(:a)
    b.schedule(:early)
    b.schedule_with_priority(:late)
    snooze
    assert_equal [[1, :late], [0, :a]], log
  end

  def test_scheduling_again_without_priority_keeps_the_place
    log = []
    a, b = Array.new(2) { |i| spin { suspend_for_good { log << i } } }
    snooze
    a.schedule
    b.schedule
    a.schedule
    snooze
    assert_equal [0, 1], log
  end

  def test_snooze_goes_behind_all_who_are_queued
    log = []
    3.times { |i| spin { 2.times { |round| log << [round, i]; snooze } } }
    Fiber.current.await_all_children
    assert_equal [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]], log
  end

  def test_schedule_returns_the_fiber
    fiber, = recorder
    assert_same fiber, fiber.schedule
    assert_same fiber, fiber.schedule_with_priority
    fiber.await
  end

  # --- at most one entry, and the merge rule ------------------------------------------------------

  def test_a_fiber_scheduled_twice_is_in_the_queue_once
    fiber, log = recorder(2)
    before = stats[:runqueue_length]
    fiber.schedule(1)
    fiber.schedule(2)
    assert_equal before + 1, stats[:runqueue_length]
    snooze
    snooze
    assert_equal [2], log, 'the second wait must not be ended by the first schedule'
    assert_equal :waiting, fiber.state
  end

  def test_a_plain_value_replaces_a_plain_value
    fiber, log = recorder
    fiber.schedule(:old)
    fiber.schedule(:new)
    fiber.await
    assert_equal [:new], log
  end

  def test_an_exception_replaces_a_plain_value
    fiber, log = recorder
    fiber.schedule(:plain)
    fiber.schedule(Boom.new)
    fiber.await
    assert_equal [Boom], log.map(&:class)
  end

  def test_a_plain_value_does_not_replace_an_exception
    fiber, log = recorder(2)
    fiber.schedule(Boom.new)
    fiber.schedule(:plain)
    snooze
    snooze
    assert_equal [Boom], log.map(&:class)
    assert_equal :waiting, fiber.state
  end

  def test_a_plain_value_with_priority_does_not_replace_an_exception
    fiber, log = recorder
    fiber.schedule(Boom.new)
    fiber.schedule_with_priority(:plain)
    fiber.await
    assert_equal [Boom], log.map(&:class)
  end

  def test_a_second_exception_is_delivered_at_the_next_switchpoint
    fiber, log = recorder(2)
    boom = Boom.new
    bang = Bang.new
    fiber.schedule(boom)
    fiber.schedule(bang)
    fiber.await
    assert_equal [boom, bang], log
  end

  def test_many_exceptions_are_delivered_one_by_one_in_order
    fiber, log = recorder(10)
    errors = Array.new(10) { |i| Boom.new(i.to_s) }
    errors.each { |error| fiber.schedule(error) }
    fiber.await
    assert_equal errors, log
  end

  def test_a_plain_value_between_two_exceptions_is_dropped_and_they_are_not
    fiber, log = recorder(3)
    fiber.schedule(Boom.new)
    fiber.schedule(:plain)
    fiber.schedule(Bang.new)
    snooze
    snooze
    assert_equal [Boom, Bang], log.map(&:class)
    fiber.schedule(:then)
    fiber.await
    assert_equal :then, log.last
  end

  def test_the_same_exception_scheduled_twice_is_delivered_once
    fiber, log = recorder(2)
    boom = Boom.new
    fiber.schedule(boom)
    fiber.schedule(boom)
    snooze
    snooze
    assert_equal [boom], log
    assert_equal :waiting, fiber.state
  end

  def test_an_exception_for_a_fiber_that_snoozes_reaches_it_there
    caught = nil
    fiber = spin do
      snooze
    rescue Boom => e
      caught = e
    end
    snooze
    assert_equal :runnable, fiber.state
    fiber.schedule(Boom.new('now'))
    fiber.await
    assert_equal 'now', caught.message
  end

  def test_a_fiber_may_schedule_itself_with_an_exception
    error = assert_raises(Boom) do
      Fiber.current.schedule(Boom.new('mine'))
      suspend
    end
    assert_equal 'mine', error.message
  end

  def test_a_fiber_may_schedule_itself_with_a_value
    Fiber.current.schedule(42)
    assert_equal 42, suspend
  end

  def test_an_exception_scheduled_for_oneself_comes_at_the_snooze
    Fiber.current.schedule(Boom.new)
    assert_raises(Boom) { snooze }
  end

  def test_a_fiber_that_ends_before_its_second_exception_takes_it_along
    fiber = spin { Polyphony.backend_wait_event(true) }
    snooze
    fiber.stop
    fiber.schedule(Boom.new)
    assert_nil fiber.await
    assert_equal :dead, fiber.state
    snooze
  end

  # --- growth -------------------------------------------------------------------------------------

  def test_more_than_64_fibers_keep_their_order
    heavy
    [63, 64, 65, 130].each do |count|
      log = []
      count.times { |i| spin { log << i } }
      Fiber.current.await_all_children
      assert_equal Array.new(count) { |i| i }, log
    end
  end

  def test_ten_thousand_fibers_keep_their_order
    heavy
    log = []
    10_000.times { |i| spin { log << i } }
    Fiber.current.await_all_children
    assert_equal Array.new(10_000) { |i| i }, log
  end

  def test_the_queue_grows_while_head_and_tail_have_wrapped
    log = []
    100.times { snooze } # the ring's head is now somewhere in the middle
    first = spin { suspend_for_good { log << :first } }
    snooze
    70.times { |i| spin { log << i } }
    first.schedule_with_priority
    Fiber.current.await_all_children
    assert_equal [:first] + Array.new(70) { |i| i }, log
  end

  def test_priority_at_the_head_grows_a_full_queue
    log = []
    waiting = Array.new(200) { |i| spin { suspend_for_good { log << i } } }
    snooze
    waiting.each(&:schedule_with_priority)
    Fiber.current.await_all_children
    assert_equal Array.new(200) { |i| 199 - i }, log
  end

  def test_fibers_that_leave_the_queue_leave_no_gap
    log = []
    fibers = Array.new(100) { |i| spin { suspend_for_good { log << i } } }
    snooze
    fibers.each(&:schedule)
    10.times { fibers.reverse_each(&:schedule_with_priority) } # leaves a thousand empty places
    assert_equal 100, stats[:runqueue_length]
    Fiber.current.await_all_children
    assert_equal Array.new(100) { |i| i }, log
  end

  # --- counters -----------------------------------------------------------------------------------

  def test_stats_have_the_documented_names
    names = %i[runqueue_size runqueue_length runqueue_max_length op_count switch_count poll_count
               pending_ops]
    assert_empty names - stats.keys
    assert(names.all? { |name| stats[name].is_a?(Integer) })
  end

  def test_runqueue_length_is_how_many_are_queued
    stats
    5.times { spin { nil } }
    assert_equal 5, stats[:runqueue_length]
    Fiber.current.await_all_children
    assert_equal 0, stats[:runqueue_length]
  end

  def test_runqueue_max_length_is_the_greatest_length_since_the_last_reading
    stats
    9.times { spin { nil } }
    Fiber.current.await_all_children
    assert_includes 9..10, stats[:runqueue_max_length]
    assert_operator stats[:runqueue_max_length], :<=, 1
  end

  def test_runqueue_size_is_a_power_of_two_that_fits
    heavy
    1000.times { spin { nil } }
    size = stats[:runqueue_size]
    assert_operator size, :>=, 1000
    assert_equal 0, size & (size - 1)
    Fiber.current.await_all_children
  end

  def test_switch_count_counts_switchpoints_and_begins_anew_when_read
    stats
    7.times { snooze }
    assert_equal 7, stats[:switch_count]
    assert_equal 0, stats[:switch_count]
  end

  def test_op_count_counts_operations
    reader, writer = pipe_pair
    stats
    3.times do
      Polyphony.backend_write(writer, 'x')
      Polyphony.backend_read(reader, +'', 1, false, 0)
    end
    assert_equal 6, stats[:op_count]
    assert_equal 0, stats[:op_count]
  end

  def test_pending_ops_is_what_is_in_flight_now
    reader, = pipe_pair
    fiber = spin { Polyphony.backend_read(reader, +'', 1, false, 0) }
    snooze
    assert_equal 1, stats[:pending_ops]
    fiber.stop
    fiber.await
    assert_equal 0, stats[:pending_ops]
  end

  def test_poll_count_counts_polls
    stats
    Polyphony.backend_sleep(0.001)
    assert_operator stats[:poll_count], :>=, 1
    assert_equal 0, stats[:poll_count]
  end

  private

  # Waits until it is scheduled; a lone suspend would return.
  def suspend_for_good
    Polyphony.backend_wait_event(true)
    yield
  end
end
