# frozen_string_literal: true

require_relative '../test_helper'

# Messages between fibers.
class TestMailbox < Polyphony::TestCase
  on_every_driver

  def test_a_message_is_received
    fiber = spin { receive }
    2.times { snooze } # receiving passes through the scheduler once before it waits
    assert_equal :waiting, fiber.state
    assert_same fiber, (fiber << :hello)
    assert_equal :hello, fiber.await
  end

  def test_messages_arrive_in_order
    fiber = spin { Array.new(3) { receive } }
    3.times { |i| fiber << i }
    assert_equal [0, 1, 2], fiber.await
  end

  def test_messages_wait_until_they_are_received
    fiber = spin { snooze; snooze; receive }
    fiber << :early
    assert_equal :early, fiber.await
  end

  def test_a_fiber_may_write_to_itself
    Fiber.current << :note
    assert_equal :note, receive
  end

  def test_receive_all_pending_takes_what_is_there_without_waiting
    assert_equal [], receive_all_pending
    3.times { |i| Fiber.current << i }
    assert_equal [0, 1, 2], receive_all_pending
    assert_equal [], Fiber.current.receive_all_pending
  end

  def test_receive_loop_gets_every_message
    got = []
    fiber = spin { receive_loop { |message| got << message } }
    3.times { |i| fiber << i }
    5.times { snooze }
    assert_equal [0, 1, 2], got
    fiber.stop
    fiber.await
  end

  def test_the_mailbox_is_a_queue_of_its_own_for_each_fiber
    assert_instance_of Polyphony::Queue, Fiber.current.mailbox
    assert_same Fiber.current.mailbox, Fiber.current.mailbox
    refute_same Fiber.current.mailbox, spin { Fiber.current.mailbox }.await
  end

  def test_ping_pong
    pong = spin { loop { peer, message = receive; peer << [:pong, message] } }
    10.times do |i|
      pong << [Fiber.current, i]
      assert_equal [:pong, i], receive
    end
    pong.stop
    pong.await
  end

  def test_a_mailbox_can_be_capped
    fiber = spin { snooze; 3.times.map { 3.times { snooze }; receive } }
    fiber.mailbox.cap(1)
    log = []
    spin { 3.times { |i| fiber << i; log << i } }
    2.times { snooze }
    assert_operator log.size, :<, 3
    assert_equal [0, 1, 2], fiber.await
  end

  def test_a_message_to_a_dead_fiber_is_no_error
    fiber = spin { nil }
    fiber.await
    assert_same fiber, (fiber << :late)
  end

  def test_a_cancelled_receive_loses_no_message
    fiber = spin do
      move_on_after(0.001) { receive } || receive
    end
    sleep 0.002
    fiber << :kept
    assert_equal :kept, fiber.await
  end

  def test_messages_between_threads
    thread = Thread.new { Array.new(3) { receive } }
    sleep 0.001 until thread.main_fiber
    3.times { |i| thread.main_fiber << i }
    assert_equal [0, 1, 2], thread.value
  end

  def test_any_object_is_a_message_even_an_exception
    error = RuntimeError.new('just a message')
    fiber = spin { [receive, receive, receive] }
    [nil, false, error].each { |message| fiber << message }
    assert_equal [nil, false, error], fiber.await
  end
end
