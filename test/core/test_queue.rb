# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Queue: every method, order, capacity, closing, cancelling, threads.
class TestQueue < Polyphony::TestCase
  on_every_driver

  def setup
    super
    @queue = Polyphony::Queue.new
  end

  def shifter(queue = @queue)
    spin { queue.shift }.tap { 2.times { snooze } }
  end

  # --- push and shift ------------------------------------------------------------------------------------

  def test_items_come_out_in_the_order_they_went_in
    @queue.push(1)
    @queue << 2
    @queue.enq(3)
    assert_equal [1, 2, 3], [@queue.shift, @queue.pop, @queue.deq]
  end

  def test_shift_with_a_timeout
    assert_nil @queue.shift(timeout: 0.001)
    assert_nil @queue.shift(timeout: 0)
    assert_equal 0, @queue.num_waiting
    @queue << 1
    assert_equal 1, @queue.shift(timeout: 5)
    spin { snooze; @queue << 2 }
    assert_equal 2, @queue.pop(timeout: 5)
    assert_nil Polyphony::Channel.new.shift(timeout: 0.001)
    assert_match(/timeout/, assert_raises(ArgumentError) { @queue.shift(true, timeout: 1) }.message)
    assert_raises(ArgumentError) { @queue.shift(time: 1) }
  end

  def test_each_ends_when_the_queue_is_closed_and_empty
    seen = []
    fiber = spin { @queue.each { |item| seen << item } }
    @queue << 1 << nil
    snooze until @queue.empty?
    @queue << 2 << nil
    @queue.close
    assert_same @queue, fiber.await
    assert_equal [1, nil, 2, nil], seen
    assert_same @queue, @queue.each { flunk }
    assert_kind_of Enumerator, Polyphony::Queue.new.each
  end

  def test_push_returns_the_queue
    assert_same @queue, @queue.push(1)
    assert_same @queue, (@queue << 2)
    assert_same @queue, @queue.enq(3)
    assert_same @queue, @queue.unshift(0)
  end

  def test_any_object_is_an_item_even_nil_and_false
    items = [nil, false, :symbol, 'string', Object.new, Exception.new('no')]
    items.each { |item| @queue << item }
    assert_equal items, Array.new(items.size) { @queue.shift }
  end

  def test_unshift_puts_an_item_at_the_head
    @queue << 2
    @queue.unshift(1)
    @queue << 3
    @queue.unshift(0)
    assert_equal [0, 1, 2, 3], @queue.shift_all
  end

  def test_the_ring_grows_and_wraps
    heavy
    expected = []
    pushed = 0
    random = Random.new(5)
    1000.times do
      if expected.empty? || random.rand(5) > 1
        item = pushed += 1
        random.rand(4).zero? ? (@queue.unshift(item); expected.unshift(item)) : (@queue << item; expected << item)
      else
        assert_equal expected.shift, @queue.shift(true)
      end
    end
    assert_equal expected, @queue.shift_all
  end

  def test_shift_waits_for_an_item
    fiber = shifter
    assert_equal :waiting, fiber.state
    @queue << :item
    assert_equal :item, fiber.await
  end

  def test_waiting_shifters_are_served_first_come_first_served
    log = []
    3.times { |i| spin { log << [i, @queue.shift] } }
    2.times { snooze }
    %i[a b c].each { |item| @queue << item }
    Fiber.current.await_all_children
    assert_equal [[0, :a], [1, :b], [2, :c]], log
  end

  def test_a_newcomer_does_not_take_the_item_another_shifter_was_woken_for
    fiber = shifter
    @queue << :first
    assert_raises(ThreadError) { @queue.shift(true) }
    late = spin { @queue.shift }
    assert_equal :first, fiber.await
    @queue << :second
    assert_equal :second, late.await
  end

  # Items leave in order, whoever takes them: a reader never sees a later item before an earlier.
  def test_a_newcomer_takes_the_first_item_when_there_are_enough_for_all
    fiber = shifter
    @queue << :first
    @queue << :second
    assert_equal :first, @queue.shift(true)
    assert_equal :second, fiber.await
  end

  # Two items come while one fiber waits and another is in the turn that every shift takes.
  def test_a_newcomer_lets_those_begin_first_who_were_there_before
    log = []
    fibers = [waiting { log << [0, @queue.shift] }, spin { log << [1, @queue.shift] }]
    snooze
    2.times { |item| @queue << item }
    Fiber.await(fibers)
    assert_equal [[0, 0], [1, 1]], log
  end

  def test_what_a_newcomer_that_is_stopped_was_to_have_goes_to_the_next
    first = shifter
    late = Array.new(2) { spin { @queue.shift } }
    snooze
    2.times { |item| @queue << item }
    snooze
    late.first.stop
    assert_equal 0, first.await
    assert_equal 1, late.last.await
    @queue << 2
    assert_equal 2, @queue.shift, 'nobody is counted among those who were woken'
  end

  def test_a_newcomer_with_a_timeout_gets_its_item_though_the_time_is_over
    first = shifter
    late = spin { @queue.shift(timeout: 0) }
    snooze
    2.times { |item| @queue << item }
    assert_equal [0, 1], Fiber.await(first, late)
  end

  def test_unshift_wakes_a_shifter
    fiber = shifter
    @queue.unshift(:item)
    assert_equal :item, fiber.await
  end

  def test_a_shift_that_need_not_wait_passes_through_the_scheduler_once
    log = []
    @queue << 1
    spin { log << :other }
    log << @queue.shift
    assert_equal [:other, 1], log
  end

  def test_an_uncapped_push_does_not_switch
    log = []
    spin { log << :other }
    @queue << 1
    assert_empty log
    snooze
  end

  def test_a_push_to_a_capped_queue_passes_through_the_scheduler_once
    log = []
    queue = Polyphony::Queue.new(10)
    spin { log << :other }
    queue << 1
    assert_equal [:other], log
  end

  def test_shift_nonblock_raises_when_the_queue_is_empty
    error = assert_raises(ThreadError) { @queue.shift(true) }
    assert_equal 'queue empty', error.message
    assert_raises(ThreadError) { @queue.pop(true) }
    assert_raises(ThreadError) { @queue.deq(true) }
    @queue << 1
    assert_equal 1, @queue.shift(true)
  end

  def test_shift_nonblock_does_not_switch
    log = []
    @queue << 1
    spin { log << :other }
    @queue.shift(true)
    assert_empty log
    snooze
  end

  # --- looking and emptying -------------------------------------------------------------------------------

  def test_size_length_and_empty
    assert @queue.empty?
    assert_equal 0, @queue.size
    @queue << 1
    @queue << 2
    refute @queue.empty?
    assert_equal [2, 2], [@queue.size, @queue.length]
  end

  def test_shift_all_takes_everything_without_waiting
    assert_equal [], @queue.shift_all
    3.times { |i| @queue << i }
    assert_equal [0, 1, 2], @queue.shift_all
    assert @queue.empty?
  end

  def test_shift_each_yields_what_is_there
    3.times { |i| @queue << i }
    seen = []
    assert_same @queue, (@queue.shift_each { |item| seen << item; @queue << :later if item == 0 })
    assert_equal [0, 1, 2], seen
    assert_equal [:later], @queue.shift_all
  end

  def test_shift_each_without_a_block_loses_nothing
    3.times { |i| @queue << i }
    enumerator = @queue.shift_each
    assert_kind_of Enumerator, enumerator
    assert_equal [0, 1, 2], enumerator.to_a
  end

  def test_delete_takes_the_first_that_is_identical
    a = +'same'
    b = +'same'
    [a, b, a].each { |item| @queue << item }
    assert_same b, @queue.delete(b)
    assert_equal 2, @queue.size
    assert_same a, @queue.delete(a)
    assert_nil @queue.delete('same')
    assert_same a, @queue.shift
  end

  def test_delete_keeps_the_order_of_the_others
    10.times { |i| @queue << i }
    [0, 9, 5].each { |i| @queue.delete(i) }
    assert_equal [1, 2, 3, 4, 6, 7, 8], @queue.shift_all
  end

  def test_clear_drops_everything
    3.times { |i| @queue << i }
    assert_same @queue, @queue.clear
    assert @queue.empty?
  end

  def test_pending_and_num_waiting_tell_of_waiters
    refute @queue.pending?
    assert_equal 0, @queue.num_waiting
    fibers = Array.new(2) { shifter }
    assert @queue.pending?
    assert_equal 2, @queue.num_waiting
    2.times { |i| @queue << i }
    Fiber.await(fibers)
    refute @queue.pending?
    assert_equal 0, @queue.num_waiting
  end

  def test_num_waiting_counts_pushers_too
    queue = Polyphony::Queue.new(1)
    queue << 1
    fiber = spin { queue << 2 }
    2.times { snooze }
    assert_equal 1, queue.num_waiting
    refute queue.pending?
    queue.shift
    fiber.await
  end

  def test_flush_waiters_wakes_all_shifters_with_a_value
    fibers = Array.new(3) { shifter }
    @queue.flush_waiters(:flushed)
    assert_equal %i[flushed flushed flushed], Fiber.await(fibers)
    @queue << 1
    assert_equal 1, @queue.shift
  end

  def test_a_flush_does_not_take_the_item_of_a_shifter_that_was_woken_for_it
    fibers = Array.new(2) { shifter }
    @queue << :item
    @queue.flush_waiters(:flushed)
    results = Fiber.await(fibers)
    left = @queue.shift_all
    assert_includes [[[:item, :flushed], []], [[nil, :flushed], [:item]], [%i[flushed flushed], [:item]]],
                    [results, left]
    assert_equal 1, (results + left).count(:item)
  end

  # --- capacity --------------------------------------------------------------------------------------------

  def test_a_capped_queue_makes_pushers_wait
    queue = Polyphony::Queue.new(2)
    assert_equal 2, queue.capped?
    log = []
    fiber = spin { 4.times { |i| queue << i; log << i } }
    10.times { snooze }
    assert_equal [0, 1], log
    assert_equal 2, queue.size
    assert_equal 0, queue.shift
    5.times { snooze }
    assert_equal [0, 1, 2], log
    assert_equal [1, 2, 3], Array.new(3) { queue.shift }
    fiber.await
  end

  def test_waiting_pushers_are_served_in_order
    queue = Polyphony::Queue.new(1)
    queue << :full
    3.times { |i| spin { queue << i } }
    5.times { snooze }
    assert_equal [:full, 0, 1, 2], Array.new(4) { queue.shift }
  end

  # Two items go while one fiber waits for room and another is in the turn that such a push takes.
  def test_a_newcomer_does_not_push_before_those_who_were_there_before
    queue = Polyphony::Queue.new(2)
    2.times { queue << :full }
    fibers = [waiting { queue << 0 }, spin { queue << 1 }]
    snooze
    2.times { queue.shift(true) }
    Fiber.await(fibers)
    assert_equal [0, 1], queue.shift_all
  end

  def test_unshift_to_a_full_queue_waits
    queue = Polyphony::Queue.new(1)
    queue << 1
    fiber = spin { queue.unshift(0) }
    3.times { snooze }
    assert_equal :waiting, fiber.state
    assert_equal 1, queue.shift
    fiber.await
    assert_equal 0, queue.shift
  end

  def test_a_queue_is_never_fuller_than_its_capacity
    queue = Polyphony::Queue.new(3)
    most = 0
    pushers = Array.new(10) { |i| spin { 10.times { |j| queue << [i, j]; most = [most, queue.size].max } } }
    taken = Array.new(100) { queue.shift }
    Fiber.await(pushers)
    assert_equal 100, taken.uniq.size
    assert_operator most, :<=, 3
    10.times { |i| assert_equal Array.new(10) { |j| [i, j] }, taken.select { |who, _| who == i } }
  end

  def test_cap_changes_the_capacity_and_zero_removes_it
    queue = Polyphony::Queue.new(1)
    queue << 0
    fibers = Array.new(3) { |i| spin { queue << i + 1 } }
    3.times { snooze }
    assert_same queue, queue.cap(2)
    5.times { snooze }
    assert_equal 2, queue.size
    queue.cap(0)
    Fiber.await(fibers)
    assert_nil queue.capped?
    assert_equal [0, 1, 2, 3], queue.shift_all
    assert_nil @queue.capped?
  end

  def test_a_smaller_cap_keeps_what_is_there
    queue = Polyphony::Queue.new
    5.times { |i| queue << i }
    queue.cap(2)
    fiber = spin { queue << :late }
    3.times { snooze }
    assert_equal :waiting, fiber.state
    assert_equal [0, 1, 2, 3], Array.new(4) { queue.shift }
    fiber.await
    assert_equal [4, :late], queue.shift_all
  end

  def test_room_made_by_delete_clear_and_shift_all_is_used
    { delete: ->(q) { q.delete(:x) }, clear: :clear.to_proc, shift_all: :shift_all.to_proc }.each do |name, make_room|
      queue = Polyphony::Queue.new(1)
      queue << :x
      fiber = spin { queue << :y }
      3.times { snooze }
      make_room.call(queue)
      fiber.await
      assert_equal [:y], queue.shift_all, name
    end
  end

  def test_a_negative_or_senseless_capacity_is_refused
    assert_raises(ArgumentError) { Polyphony::Queue.new(-1) }
    assert_raises(TypeError) { Polyphony::Queue.new('1') }
    assert_raises(ArgumentError) { @queue.cap(-1) }
    assert_nil Polyphony::Queue.new(nil).capped?
    assert_nil Polyphony::Queue.new(0).capped?
  end

  # --- closing ---------------------------------------------------------------------------------------------

  def test_closing_wakes_waiting_shifters_with_nil
    fibers = Array.new(2) { shifter }
    assert_same @queue, @queue.close
    assert_equal [nil, nil], Fiber.await(fibers)
    assert @queue.closed?
  end

  def test_what_is_in_a_closed_queue_can_be_taken
    2.times { |i| @queue << i }
    @queue.close
    assert_equal [0, 1], [@queue.shift, @queue.shift]
    assert_raises(ClosedQueueError) { @queue.shift }
  end

  def test_pushing_to_a_closed_queue_is_an_error
    refute @queue.closed?
    @queue.close
    assert_raises(ClosedQueueError) { @queue << 1 }
    assert_raises(ClosedQueueError) { @queue.unshift(1) }
    @queue.close
  end

  def test_closing_wakes_waiting_pushers_with_an_error
    queue = Polyphony::Queue.new(1)
    queue << 1
    fiber = spin do
      queue << 2
    rescue ClosedQueueError
      :refused
    end
    3.times { snooze }
    queue.close
    assert_equal :refused, fiber.await
    assert_equal [1], queue.shift_all
  end

  # The second one lines up when the only item is for the first, which has been woken.
  def test_close_with_an_item_for_somebody_else_leaves_nobody_waiting
    first = shifter
    second = spin { @queue.shift }
    snooze
    @queue << :item
    @queue.close
    assert_equal [:item, nil], [first.await, second.await]
  end

  def test_shift_nonblock_of_a_closed_empty_queue
    @queue.close
    assert_equal 'queue empty', assert_raises(ThreadError) { @queue.shift(true) }.message # as of Thread::Queue
  end

  # --- cancelling --------------------------------------------------------------------------------------------

  def test_a_cancelled_shift_takes_no_item
    fiber = shifter
    fiber.stop
    fiber.await
    @queue << 1
    assert_equal 1, @queue.shift
    assert_equal 0, @queue.num_waiting
  end

  def test_an_item_whose_shifter_is_stopped_after_its_wake_goes_to_the_next
    first = shifter
    second = shifter
    @queue << :item
    first.stop(:stopped)
    assert_equal %i[stopped item], Fiber.await(first, second)
  end

  def test_an_item_whose_shifter_is_stopped_after_its_wake_stays_when_nobody_waits
    fiber = shifter
    @queue << :item
    fiber.stop
    fiber.await
    assert_equal :item, @queue.shift(true)
  end

  def test_room_whose_pusher_is_stopped_after_its_wake_goes_to_the_next
    queue = Polyphony::Queue.new(1)
    queue << :full
    first = spin { queue << :a }
    second = spin { queue << :b }
    3.times { snooze }
    queue.shift(true)
    first.stop
    Fiber.await(first, second)
    assert_equal [:b], queue.shift_all
  end

  def test_a_timeout_ends_a_shift
    assert_equal(:late, move_on_after(0.001, with_value: :late) { @queue.shift })
    assert_equal 0, @queue.num_waiting
  end

  def test_a_plain_wake_does_not_end_a_shift
    fiber = shifter
    fiber.schedule(:nonsense)
    3.times { snooze }
    assert_equal :waiting, fiber.state
    @queue << :item
    assert_equal :item, fiber.await
  end

  # --- threads -----------------------------------------------------------------------------------------------

  def test_an_item_pushed_by_another_thread_wakes_a_shifter
    thread = Thread.new { @queue << Thread.current }
    assert_same thread, @queue.shift
    thread.join
  end

  def test_a_shifter_in_another_thread_is_woken
    thread = Thread.new { @queue.shift }
    sleep 0.001 until @queue.num_waiting == 1
    @queue << :item
    assert_equal :item, thread.value
  end

  def test_many_threads_push_and_shift_and_nothing_is_lost
    heavy
    capped = Polyphony::Queue.new(5)
    [@queue, capped].each do |queue|
      producers = Array.new(5) { |i| Thread.new { 200.times { |j| queue << [i, j] } } }
      consumers = Array.new(4) do
        Thread.new { [].tap { |got| while (item = queue.shift) do got << item end } }
      end
      producers.each(&:join)
      sleep 0.001 until queue.empty?
      4.times { queue << nil }
      got = consumers.map(&:value)
      assert_equal Array.new(5) { |i| Array.new(200) { |j| [i, j] } }.flatten(1), got.flatten(1).sort
      got.each do |items|
        5.times { |i| assert_equal items.select { |who, _| who == i }.sort, items.select { |who, _| who == i } }
      end
    end
  end

  def test_a_room_made_by_another_thread_wakes_a_pusher
    queue = Polyphony::Queue.new(1)
    queue << 1
    thread = Thread.new { sleep 0.001 until queue.num_waiting == 1; queue.shift }
    queue << 2
    assert_equal 1, thread.value
    assert_equal [2], queue.shift_all
  end

  # An item for a shifter whose thread is killed must go to somebody else.
  def test_a_thread_that_is_killed_while_it_waits_takes_no_item_along
    thread = Thread.new { @queue.shift }
    sleep 0.001 until @queue.num_waiting == 1
    thread.kill
    thread.join
    assert_equal 0, @queue.num_waiting
    @queue << :item
    assert_equal :item, @queue.shift
  end

  # The thread has been woken for the flush, but does not run: what comes now is not its item.
  def test_a_flush_in_another_thread_takes_no_item_from_who_comes_later
    thread = Thread.new { @queue.shift }
    sleep 0.001 until @queue.num_waiting == 1
    @queue.flush_waiters(:flushed)
    @queue << :item
    assert_equal(:item, cancel_after(patient(10)) { @queue.shift })
    assert_equal :flushed, thread.value
  end

  def test_what_is_in_a_closed_queue_goes_to_whoever_comes_first
    thread = Thread.new { @queue.shift }
    sleep 0.001 until @queue.num_waiting == 1
    @queue << :item # for the thread, unless somebody is quicker
    @queue.close
    mine = begin
      cancel_after(patient(10)) { @queue.shift }
    rescue ClosedQueueError
      nil
    end
    assert_equal [:item], [mine, thread.value].compact
  end

  def test_items_are_kept_from_the_garbage_collector
    100.times { |i| @queue << "item #{i}" }
    GC.start
    assert_equal Array.new(100) { |i| "item #{i}" }, @queue.shift_all
  end

  def test_a_queue_that_is_part_of_something_says_what_its_shifters_wait_for
    assert_nil @queue.__owner
    assert_same @queue, @queue.__serve(:pool, 'a resource of a pool')
    assert_equal :pool, @queue.__owner
    fiber = waiting { @queue.shift }
    assert_equal 'a resource of a pool', fiber.__wait_reason
    @queue << :item
    assert_equal :item, fiber.await
    assert_raises(TypeError) { @queue.__serve(:pool, 1) }
    assert_equal :pool, @queue.__owner
  end

  # --- sparing with wakes, as a pool of threads is ----------------------------------------------------------

  def sparing_with_shifters(count)
    @queue.__be_sparing
    @seen = []
    Array.new(count) { spin { loop { @seen << @queue.shift; yield } } }.tap { count.times { snooze } }
  end

  def test_one_is_woken_for_many_items_and_takes_them_as_long_as_it_does_not_wait
    sparing_with_shifters(3) { nil }
    5.times { |i| @queue << i }
    assert_equal 2, @queue.num_waiting
    snooze until @queue.num_waiting == 3
    assert_equal [0, 1, 2, 3, 4], @seen
  end

  def test_the_next_is_woken_where_the_first_one_waits
    sparing_with_shifters(3) { suspend }
    5.times { |i| @queue << i }
    snooze until @seen.size == 3
    assert_equal [0, 1, 2], @seen
    assert_equal 2, @queue.size
  end

  def test_a_wake_that_comes_to_nothing_goes_to_the_next_one
    shifters = sparing_with_shifters(3) { suspend }
    4.times { |i| @queue << i }
    shifters.first.stop
    snooze until @seen.size == 2
    assert_equal [0, 1], @seen
    @queue.delete(2)
    shifters.last.schedule
    snooze until @seen.size == 3
    assert_equal [0, 1, 3], @seen
  end
end
