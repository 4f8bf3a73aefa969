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

  def test_receive_loop_ends_with_break
    2.times { |i| Fiber.current << i }
    assert_equal(:broken, receive_loop { |message| break :broken if message == 1 })
  end

  def test_receive_loop_ends_with_stop_iteration
    fiber = spin { receive_loop { raise StopIteration }; :ended }
    fiber << 1
    assert_equal :ended, fiber.await
  end

  def test_receive_loop_ends_when_the_mailbox_is_closed_and_empty
    got = []
    fiber = spin { receive_loop { |message| got << message } }
    2.times { |i| fiber << i }
    fiber.mailbox.close
    fiber.await
    assert_equal [0, 1], got
  end

  def test_receive_loop_yields_no_message_that_nobody_sent_when_the_mailbox_is_closed
    got = []
    fiber = spin { receive_loop { |message| got << message } }
    snooze until fiber.mailbox.pending?
    fiber << nil
    snooze until fiber.mailbox.pending? && got.any?(&:nil?)
    fiber.mailbox.close
    fiber.await
    assert_equal [nil], got
  end

  def test_receive_loop_without_a_block_is_refused
    assert_raises(ArgumentError) { receive_loop }
    assert_raises(ArgumentError) { spin { sleep }.receive_loop }
  end

  def test_messages_are_matched_by_patterns
    log = []
    fiber = spin do
      loop do
        case receive
        in [:add, Integer => a, Integer => b] then log << a + b
        in { name: String => name } then log << name
        in :stop then break
        end
      end
    end
    fiber << [:add, 1, 2] << { name: 'me' } << :stop
    fiber.await
    assert_equal [3, 'me'], log
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

  # --- send -----------------------------------------------------------------------------------------

  def test_send_with_one_argument_is_a_message
    fiber = spin { Array.new(4) { receive } }
    assert_same fiber, fiber.send([:subscribe, 1])
    fiber.send(:alive?) # not the method
    fiber.send('text')
    fiber.send(key: 1)
    assert_equal [[:subscribe, 1], :alive?, 'text', { key: 1 }], fiber.await
  end

  def test_send_with_more_arguments_or_a_block_calls_a_method
    fiber = spin { sleep }
    def fiber.three(one, two, key: nil, &block) = [one, two, key, block&.call]
    def fiber.bare = yield
    fiber.singleton_class.send(:private, :three)
    assert_equal [1, 2, nil, nil], fiber.send(:three, 1, 2)
    assert_equal [1, 2, 3, nil], fiber.send(:three, 1, 2, key: 3)
    assert_equal [1, 2, 3, 4], (fiber.send('three', 1, 2, key: 3) { 4 })
    assert_equal :block, (fiber.send(:bare) { :block })
    assert_raises(ArgumentError) { fiber.send }
    assert_raises(NoMethodError) { fiber.send(:missing, 1) }
    assert_empty fiber.mailbox.shift_all
  end

  def test_public_send_and_underscored_send_call_methods
    fiber = spin(:tagged) { sleep }
    assert_equal :tagged, fiber.__send__(:tag)
    assert_equal true, fiber.public_send(:alive?)
    assert_raises(ArgumentError) { fiber.public_send }
    assert_empty fiber.mailbox.shift_all
  end

  # --- receiving what is for another fiber -----------------------------------------------------------

  def test_a_mailbox_may_be_emptied_by_others
    fiber = spin { sleep }
    2.times { |i| fiber << i }
    assert_equal 0, fiber.receive
    assert_equal [1], fiber.receive_all_pending
  end

  def test_several_who_receive_from_one_mailbox_are_served_in_order
    owner = spin { sleep }
    log = []
    fibers = Array.new(3) { |i| spin { log << [i, owner.receive] } }
    snooze until owner.mailbox.num_waiting == 3
    3.times { |i| owner << i }
    Fiber.await(fibers)
    assert_equal [[0, 0], [1, 1], [2, 2]], log
  end

  # --- the end of a fiber -----------------------------------------------------------------------------

  def test_a_message_to_a_fiber_that_has_ended_is_dropped_and_counted
    fiber = spin { nil }
    fiber.await
    assert_same fiber, (fiber << :late)
    assert_same fiber, fiber.send(:later)
    fiber.mailbox << :latest
    assert_equal [[], 3], [fiber.receive_all_pending, fiber.mailbox.dropped]
  end

  def test_what_was_in_the_mailbox_at_the_end_can_still_be_taken
    fiber = spin { snooze }
    2.times { |i| fiber << i }
    fiber.await
    fiber << 2
    assert_predicate fiber.mailbox, :closed?
    assert_equal [0, [1], 1], [fiber.receive, fiber.receive_all_pending, fiber.mailbox.dropped]
    assert_raises(ClosedQueueError) { fiber.receive }
  end

  def test_who_waits_for_room_in_the_mailbox_of_a_fiber_goes_on_when_it_ends
    fiber = spin { sleep }
    fiber.mailbox.cap(1)
    fiber << 0
    senders = Array.new(2) { |i| spin { fiber << i + 1; :sent } }
    snooze until fiber.mailbox.num_waiting == 2
    fiber.stop
    assert_equal %i[sent sent], Fiber.await(senders)
    assert_equal [[0], 2], [fiber.receive_all_pending, fiber.mailbox.dropped]
    fiber << 3
    assert_equal 3, fiber.mailbox.dropped
  end

  def test_who_waits_for_a_message_of_a_fiber_gets_nil_when_it_ends
    fiber = spin { sleep }
    receiver = spin { fiber.receive }
    snooze until fiber.mailbox.pending?
    fiber.stop
    assert_nil receiver.await
  end

  def test_a_fiber_that_fails_lets_senders_go_too
    owner = spin { snooze; raise IOError }
    owner.mailbox.cap(1)
    owner << 0
    sender = spin { owner << 1; :sent }
    assert_raises(IOError) { owner.await }
    assert_equal :sent, sender.await
  end

  def test_the_mailbox_of_a_thread_that_has_ended_takes_nothing
    thread = Thread.new { receive }
    sleep 0.001 until thread.main_fiber
    fiber = thread.main_fiber
    fiber << :read
    assert_equal :read, thread.value
    fiber << :late
    assert_equal [[], 1], [fiber.receive_all_pending, fiber.mailbox.dropped]
  end

  def test_who_waits_for_room_in_the_mailbox_of_a_thread_goes_on_when_it_ends
    gate = Polyphony::Event.new
    thread = Thread.new { gate.await }
    sleep 0.001 until thread.main_fiber
    fiber = thread.main_fiber
    fiber.mailbox.cap(1)
    fiber << 0
    sender = spin { fiber << 1; :sent }
    snooze until fiber.mailbox.num_waiting == 1
    gate.signal
    assert_equal :sent, sender.await
    thread.join
  end

  def test_a_mailbox_knows_its_fiber
    fiber = spin { sleep }
    assert_same fiber, fiber.mailbox.owner
    assert_same Fiber.current, Fiber.current.mailbox.owner
    assert_nil Polyphony::Queue.new.owner
  end

  def test_a_mailbox_may_be_kept_longer_than_its_fiber
    mailboxes = Array.new(50) { |i| spin(i) { sleep }.mailbox }
    Fiber.current.shutdown_all_children
    GC.start
    mailboxes.each { |mailbox| mailbox << "late #{mailbox.object_id}" }
    assert_equal (0...50).to_a, mailboxes.map { |mailbox| mailbox.owner.tag }
    assert_equal 50, mailboxes.sum(&:dropped)
  end

  # --- fork ---------------------------------------------------------------------------------------------

  def test_in_a_forked_child_the_mailboxes_of_the_others_take_nothing
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      fiber = spin { sleep }
      fiber.mailbox.cap(1)
      fiber << 0
      Process.wait(fork do
        fiber << 1
        p fiber.receive_all_pending, fiber.mailbox.dropped
        begin
          fiber.receive
        rescue ClosedQueueError
          p :closed
        end
        Fiber.current << :mine
        p receive
      end)
      p fiber.receive_all_pending
    RUBY
    assert_predicate status, :success?, err
    assert_equal %w[[0] 1 :closed :mine [0]], out.lines(chomp: true)
  end
end
