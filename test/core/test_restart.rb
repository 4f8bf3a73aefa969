# frozen_string_literal: true

require_relative '../test_helper'

# Fiber#restart: the same fiber again while it lives, a new one after its end.
class TestRestart < Polyphony::TestCase
  on_every_driver

  def test_a_stop_followed_by_a_restart_runs_the_block_twice
    log = []
    fiber = spin do
      log << :began
      sleep 0.005
      log << :slept
    ensure
      log << :left
    end
    snooze
    fiber.stop
    assert_same fiber, fiber.restart
    fiber.await
    assert_equal %i[began left began slept left], log
  end

  def test_the_block_gets_the_value_of_the_restart
    values = []
    fiber = spin { |value| values << value; sleep if values.size < 3; :over }
    snooze
    fiber.restart(:first)
    snooze
    fiber.reset(:second)
    assert_equal :over, fiber.await
    assert_equal [nil, :first, :second], values
  end

  def test_a_fiber_that_has_not_begun_runs_once
    runs = []
    fiber = spin { |value| runs << value }
    fiber.restart(:again)
    fiber.await
    assert_equal [:again], runs
  end

  def test_what_comes_before_the_first_run_is_heeded_one_after_the_other
    log = []
    assert_equal :stopped, spin { sleep }.interject { log << 1 }.stop(:stopped).await
    assert_equal :stopped, spin { |value| log << value; sleep }.restart(2).stop(:stopped).await
    spin { |value| log << value }.stop.restart(3).await
    assert_equal [1, 2, 3], log
  end

  def test_a_restart_that_comes_as_the_block_ends_is_not_lost
    runs = 0
    fiber = spin { Fiber.current.restart if (runs += 1) < 3 }
    fiber.await
    assert_equal 3, runs
  end

  # Ends after a while.
  def slow_child
    spin do
      sleep
    ensure
      sleep 0.005
    end
  end

  def test_a_restart_that_comes_while_children_end_is_not_lost
    runs = []
    fiber = spin do |value|
      runs << value
      slow_child if runs.size == 1
      snooze
    end
    5.times { snooze }
    refute_empty fiber.children
    fiber.restart(:again)
    fiber.await
    assert_equal [nil, :again], runs
  end

  def test_of_several_that_come_while_children_end_the_last_counts
    runs = []
    body = proc do |value|
      runs << value
      slow_child if value.nil?
      sleep if value.nil?
    end
    fiber = spin(&body)
    stopped = spin(&body)
    2.times { snooze }
    [fiber, stopped].each { |one| one.restart(:first) }
    2.times { snooze }
    fiber.restart(:second)
    stopped.stop(:over)
    assert_equal [nil, :over], [fiber.await, stopped.await]
    assert_equal [nil, nil, :second], runs
  end

  def test_an_error_before_a_late_restart_is_raised_in_the_parent_that_awaits_it
    runs = 0
    fiber = spin do
      sleep if (runs += 1) == 1
      :again
    ensure
      raise IOError if runs == 1
    end
    spin { snooze; fiber.stop && fiber.restart }
    assert_raises(IOError) { fiber.await }
    assert_equal [:again, 2], [fiber.await, runs]
  end

  def test_one_that_has_ended_is_not_restarted_by_another_thread
    fibers = Thread::Queue.new
    go_on = Polyphony::Queue.new
    thread = Thread.new { fibers << spin { 1 }.tap(&:await); go_on.shift }
    fiber = fibers.pop
    assert_match(/its own thread only/, assert_raises(FiberError) { fiber.restart }.message)
    go_on << :over
    assert_equal :over, thread.value
    assert_match(/its parent has ended/, assert_raises(FiberError) { fiber.restart }.message)
  end

  def test_what_is_sent_after_the_restart_is_for_the_next_run
    fiber = spin { |again| again ? receive : sleep }
    snooze
    fiber << :old
    fiber.restart(true)
    fiber << :new
    assert_equal :new, fiber.await
  end

  def test_the_mailbox_is_emptied
    fiber = spin { |value| value ? receive_all_pending : sleep }
    fiber << :old
    snooze
    fiber.restart(true)
    assert_equal [], fiber.await
  end

  def test_whoever_waits_for_an_answer_is_told_that_none_will_come
    fiber = spin { |again| again ? sleep : receive && sleep }
    askers = Array.new(2) { |n| spin { outcome { fiber.ask(n) } rescue $!.class } }
    snooze until askers.all? { |asker| asker.state == :waiting }
    fiber.restart(true)
    assert_equal [Polyphony::Request::Unanswered] * 2, askers.map(&:await)
    assert_nil fiber.__monitors
  end

  def test_children_end_before_the_block_runs_again
    log = []
    fiber = spin do |again|
      log << :ran
      next if again

      spin { sleep } .then { |child| child.tag = :child }
      spin do
        sleep
      ensure
        sleep 0.002
        log << :child_ended
      end
      sleep
    end
    snooze
    snooze
    fiber.restart(true)
    fiber.await
    assert_equal %i[ran child_ended ran], log
  end

  def test_an_error_of_a_child_that_ends_for_a_restart_is_not_lost
    runs = 0
    fiber = spin do
      runs += 1
      spin do
        sleep
      ensure
        raise IOError, 'in the child'
      end
      sleep
    end
    snooze
    snooze
    fiber.restart
    assert_raises(IOError) { fiber.await }
    assert_equal 1, runs
  end

  def test_a_stop_while_children_end_for_a_restart_is_not_lost
    runs = 0
    fiber = spin do
      runs += 1
      spin do
        sleep
      ensure
        sleep 0.005
      end
      sleep
    end
    snooze
    snooze
    fiber.restart
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_equal 1, runs
  end

  def test_an_error_before_a_restart_goes_to_the_parent
    runs = 0
    parent = spin do
      fiber = spin { (runs += 1) == 1 ? sleep : :second }
      snooze
      fiber.raise IOError, 'first'
      fiber.restart
      sleep
    end
    assert_raises(IOError) { parent.await }
    assert_operator runs, :<=, 2
  end

  def test_a_parent_that_ends_is_not_held_up_by_restarts
    runs = 0
    child = nil
    parent = spin do
      child = spin { runs += 1; sleep }
      snooze
    end
    snooze
    snooze
    child.restart
    parent.stop
    parent.await
    assert child.dead?
    assert_operator runs, :<=, 2
  end

  def test_an_ended_fiber_gets_a_successor_with_the_same_parent_tag_and_monitors
    fiber = again = nil
    parent = spin(:parent) do
      fiber = spin(:child) { |value| value }
      fiber.monitor(Fiber.current)
      fiber.await
      again = fiber.restart(:second)
      assert_same Fiber.current, again.parent
      again.await
    end
    assert_equal :second, parent.await
    refute_same fiber, again
    assert_equal [:child, [parent]], [again.tag, again.monitors]
    assert_equal [[fiber, nil], [again, :second]], parent.monitor_mailbox.shift_all
  end

  def test_without_its_parent_an_ended_fiber_is_not_restarted
    fiber = nil
    spin { fiber = spin { 1 }; fiber.await }.await
    error = assert_raises(FiberError) { fiber.restart }
    assert_match(/its parent has ended/, error.message)
  end

  def test_main_fibers_and_foreign_ones_are_not_restarted
    assert_raises(RuntimeError) { Fiber.current.restart }
    assert_match(/not made by spin/, assert_raises(FiberError) { Fiber.new { 1 }.restart }.message)
  end

  def test_a_restart_from_another_thread
    runs = 0
    ready = Polyphony::Queue.new
    thread = Thread.new do
      fiber = spin { |value| runs += 1; value || sleep }
      snooze
      ready << fiber
      fiber.await
    end
    fiber = ready.shift
    fiber.restart(:from_outside)
    assert_equal :from_outside, thread.value
    assert_equal 2, runs
  end
end
