# frozen_string_literal: true

require_relative '../test_helper'

# Faults found by random programs, each in its smallest form.
class TestRegressions < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  # --- fibers that are not ours -------------------------------------------------------------------

  def test_a_second_exception_for_a_fiber_whose_generator_ended_with_the_first_reaches_the_fiber
    seen = []
    fiber = spin do
      numbers = Enumerator.new { |y| sleep; y << 1 }
      2.times { note_boom(seen) { seen.empty? ? numbers.next : sleep } }
    end
    2.times { snooze }
    fiber.raise(Boom, 'first')
    fiber.raise(Boom, 'second')
    fiber.await
    assert_equal %w[first second], seen
  end

  def test_a_time_limit_around_a_generator_that_was_ended_by_something_else_is_taken_back
    scope = nil
    fiber = spin do
      numbers = Enumerator.new { |y| sleep; y << 1 }
      note_boom([]) { move_on_after(10) { |s| scope = s; numbers.next } }
      snooze
      :went_on
    end
    2.times { snooze }
    fiber.raise(Boom, 'first')
    scope.cancel
    assert_equal :went_on, fiber.await
  end

  def test_a_wake_for_a_fiber_comes_to_it_when_its_generator_has_yielded
    fiber = spin do
      numbers = Enumerator.new { |y| snooze; fiber.schedule(:up); y << 1 }
      numbers.next
      suspend
    end
    assert_equal :up, fiber.await
  end

  def test_a_time_limit_in_a_generator_that_is_over_after_it_has_yielded_waits_for_its_next_wait
    scope = nil
    numbers = Enumerator.new do |y|
      y << move_on_after(10, with_value: :over) { |s| scope = s; y << 1; sleep }
    end
    assert_equal 1, numbers.next
    scope.cancel
    3.times { snooze }
    assert_equal :over, numbers.next
  end

  def test_a_stop_from_another_thread_while_a_generator_is_at_work_reaches_the_fiber
    fibers = Polyphony::Queue.new
    at_work = stopped = false
    thread = Thread.new do
      numbers = Enumerator.new { |y| snooze; at_work = true; Thread.pass until stopped; sleep; y << 1 }
      fibers << (fiber = spin { numbers.next })
      fiber.await
    end
    fiber = fibers.shift
    Thread.pass until at_work
    fiber.stop(:stopped)
    stopped = true
    assert_equal :stopped, thread.value
  end

  # --- errors of children -------------------------------------------------------------------------

  def test_the_error_of_a_child_is_raised_in_a_parent_that_was_about_to_give_up_waiting_for_it
    parent = spin do
      child = spin { suspend; raise Boom, 'unseen' }
      move_on_after(10) { |scope| spin { child.schedule; scope.cancel }; child.await }
      2.times { snooze }
    end
    assert_raises(Boom) { parent.await }
  end

  def test_that_error_comes_once_when_the_parent_waits_for_the_child_again
    parent = spin do
      child = spin { suspend; raise Boom, 'seen' }
      move_on_after(10) { |scope| spin { child.schedule; scope.cancel }; child.await }
      seen = []
      note_boom(seen) { child.await }
      2.times { snooze }
      seen
    end
    assert_equal ['seen'], parent.await
  end

  def test_the_error_of_a_child_that_fails_while_its_parent_is_being_stopped_is_the_parents
    child = nil
    parent = spin do
      child = spin { suspend; raise Boom, 'dropped' }
      sleep
    end
    2.times { snooze }
    parent.stop
    child.schedule_with_priority
    assert_raises(Boom) { parent.await }
  end

  def test_an_interjection_into_a_fiber_that_has_not_begun_is_not_what_its_block_gets
    log = []
    fiber = spin { |first| log << first }
    fiber.interject { log << :interjected }
    fiber.await
    assert_equal [:interjected, nil], log
  end

  # --- queues -------------------------------------------------------------------------------------

  def test_a_shift_that_was_woken_for_an_item_gets_it_though_the_queue_is_flushed_then
    queue = Polyphony::Queue.new
    fiber = spin { queue.shift }
    2.times { snooze }
    queue << :item
    queue.flush_waiters(:flushed)
    assert_equal :item, fiber.await
  end

  # --- what a cancelled operation had got -----------------------------------------------------------

  def test_bytes_of_a_cancelled_read_go_to_a_fiber_that_waits_for_the_same_io_already
    each_stream do |name, reader, writer|
      readers = Array.new(2) { spin { Polyphony.backend_read(reader, nil, 10, false, 0) } }
      3.times { snooze }
      writer.syswrite('hello')
      first = readers.find { |fiber| poll_until_runnable(readers) == fiber }
      first.stop
      assert_equal 'hello', move_on_after(patient(2)) { (readers - [first]).first.await }, name
    end
  end

  def test_bytes_of_a_read_of_several_parts_that_is_cancelled_go_to_a_fiber_that_waits_already
    reader, writer = pipe_pair
    long = spin { Polyphony.backend_read(reader, nil, 10, true, 0) }
    3.times { snooze }
    writer.syswrite('hello')
    sleep 0.005
    short = spin { Polyphony.backend_read(reader, nil, 10, false, 0) }
    3.times { snooze }
    long.stop
    assert_equal('hello', move_on_after(patient(2)) { short.await })
  end

  def test_bytes_of_a_cancelled_read_are_there_for_who_waits_for_a_message_or_for_readiness_next
    [->(io) { Polyphony.backend_recvmsg(io, nil, 10, 0, 0, nil, nil).first },
     ->(io) { Polyphony.backend_wait_io(io, false); 'hello' }].each do |wait|
      reader, writer = socket_pair
      first = spin { Polyphony.backend_read(reader, nil, 10, false, 0) }
      3.times { snooze }
      writer.syswrite('hello')
      poll_until_runnable([first])
      first.stop
      other = spin { wait.call(reader) }
      assert_equal('hello', move_on_after(patient(2)) { other.await })
    end
  end

  def test_bytes_of_a_cancelled_read_go_to_a_fiber_that_waits_for_a_message_already
    sender, receiver = track(*UNIXSocket.pair(:DGRAM))
    first = spin { Polyphony.backend_recv(receiver, nil, 10, 0) }
    other = spin { Polyphony.backend_recvmsg(receiver, nil, 10, 0, 0, nil, nil).first }
    3.times { snooze }
    sender.send('hello', 0)
    poll_until_runnable([first])
    first.stop
    assert_equal('hello', move_on_after(patient(2)) { other.await })
  end

  def test_a_connection_goes_to_another_fiber_when_the_accept_it_woke_is_cancelled
    [0, 1].each do |index|
      server = track(TCPServer.new('127.0.0.1', 0))
      fibers = Array.new(2) { spin { track(Polyphony.backend_accept(server, TCPSocket)) } }
      3.times { snooze }
      track(TCPSocket.new('127.0.0.1', server.local_address.ip_port))
      fibers[index].stop
      assert_instance_of TCPSocket, move_on_after(patient(2)) { fibers[1 - index].await }
    end
  end

  private

  def note_boom(list)
    yield
  rescue Boom => e
    list << e.message
  end

  # @return [Fiber] the one whose operation is done, while it has not run yet
  def poll_until_runnable(fibers)
    Thread.current.backend.poll(false) until (found = fibers.find { |f| f.state == :runnable })
    found
  end
end
