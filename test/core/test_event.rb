# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Event: one waits, anyone signals, the signal is kept until it is taken.
class TestEvent < Polyphony::TestCase
  on_every_driver

  def setup
    super
    @event = Polyphony::Event.new
  end

  def test_await_returns_the_value_of_the_signal
    fiber = spin { @event.await }
    snooze
    assert_equal :waiting, fiber.state
    assert_same @event, @event.signal(:value)
    assert_equal :value, fiber.await
  end

  def test_a_signal_without_value_is_nil
    fiber = spin { @event.await }
    snooze
    @event.signal
    assert_nil fiber.await
  end

  def test_a_signal_is_kept_until_it_is_awaited
    @event.signal(:early)
    snooze
    assert_equal :early, @event.await
  end

  def test_signals_coalesce_and_the_last_value_counts
    @event.signal(1)
    @event.signal(2)
    assert_equal 2, @event.await
    assert_equal(:late, move_on_after(0.001, with_value: :late) { @event.await })
  end

  def test_an_event_resets_itself_and_can_be_awaited_again
    3.times do |i|
      fiber = spin { @event.await }
      snooze
      @event.signal(i)
      assert_equal i, fiber.await
    end
  end

  def test_a_second_waiter_is_refused
    fiber = spin { @event.await }
    snooze
    assert_raises(RuntimeError) { @event.await }
    @event.signal(:first)
    assert_equal :first, fiber.await
  end

  def test_a_new_waiter_may_come_when_the_first_was_cancelled
    fiber = spin { @event.await }
    snooze
    fiber.stop
    fiber.await
    @event.signal(:next)
    assert_equal :next, @event.await
  end

  def test_a_signal_whose_waiter_is_stopped_before_it_runs_is_kept
    fiber = spin { @event.await }
    snooze
    @event.signal(:kept)
    fiber.stop
    fiber.await
    assert_equal :kept, @event.await
  end

  def test_a_plain_wake_does_not_end_the_waiting
    fiber = spin { @event.await }
    snooze
    fiber.schedule(:nonsense)
    2.times { snooze }
    assert_equal :waiting, fiber.state
    @event.signal(:real)
    assert_equal :real, fiber.await
  end

  def test_a_signal_from_another_thread_wakes_the_waiter
    thread = Thread.new { @event.signal(:from_thread) }
    assert_equal :from_thread, @event.await
    thread.join
  end

  def test_a_waiter_in_another_thread_is_woken
    ready = Polyphony::Queue.new
    thread = Thread.new { ready << Thread.current.main_fiber; @event.await }
    fiber = ready.shift
    sleep 0.001 until fiber.state == :waiting
    @event.signal(:to_thread)
    assert_equal :to_thread, thread.value
  end

  def test_two_threads_play_ping_pong
    ping = Polyphony::Event.new
    pong = Polyphony::Event.new
    thread = Thread.new { 100.times { |i| pong.signal([i, ping.await]) } }
    100.times do |i|
      ping.signal(i)
      assert_equal [i, i], pong.await
    end
    thread.join
  end

  def test_a_signal_from_a_trap_wakes_the_waiter
    previous = trap(:USR2) { @event.signal(:trapped) }
    fiber = spin { @event.await }
    snooze
    Process.kill(:USR2, Process.pid)
    assert_equal :trapped, fiber.await
  ensure
    trap(:USR2, previous)
  end

  def test_signal_takes_one_value_at_most
    assert_raises(ArgumentError) { @event.signal(1, 2) }
  end
end
