# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require_relative '../support/places'
require_relative '../support/thread_helpers'

# Ruby's own Queue and SizedQueue, in all kinds of fibers.
class TestStockQueues < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  include Polyphony::Places
  include Polyphony::ThreadHelpers

  on_every_driver

  KINDS_OF_QUEUES = [-> { ::Queue.new }, -> { ::SizedQueue.new(1) }].freeze

  def each_queue(&block)
    KINDS_OF_QUEUES.each { |make| in_all_places { |kind| block.call(make.call, kind) } }
  end

  def test_an_item_is_waited_for
    each_queue do |queue, kind|
      %i[pop shift deq].each do |name|
        assert_equal 1, beating(-> { queue << 1 }) { queue.public_send(name) }, kind
        queue << 2
        assert_equal 2, queue.public_send(name)
      end
      assert_equal 0, queue.num_waiting
    end
  end

  def test_room_is_waited_for
    in_all_places do |kind|
      queue = ::SizedQueue.new(1)
      %i[push << enq].each do |name|
        queue << 1
        assert_same queue, beating(-> { queue.pop }) { queue.public_send(name, 2) }, kind
        assert_equal 2, queue.pop
      end
      queue << 1
      assert_same queue, beating(-> { queue.max = 2 }) { queue.push(2) }, kind
      assert_same queue, beating(-> { queue.clear }) { queue.push(3) }, kind
      assert_equal [3, 0], [queue.pop, queue.num_waiting]
    end
  end

  # Those for which Ruby does not ask the scheduler: whether they have to wait is asked first. Fibers of enumerators
  # are among them before Ruby 3.2.
  def in_blocking_places
    seen = in_all_places { |kind| Fiber.current.blocking?.tap { |blocking| yield kind if blocking } }
    assert_equal [true, true], seen.values_at(:main, :thread)
  end

  # The question is a call, and at its end other threads may run.
  def test_an_item_that_another_thread_takes_after_the_question
    taken = Module.new { def empty? = super.tap { clear } }
    KINDS_OF_QUEUES.each do |make|
      in_blocking_places do |kind|
        queue = make.call.extend(taken) << 1
        assert_equal 2, beating(-> { queue << 2 }) { queue.pop }, kind
        queue << 3
        assert_equal :over, move_on_after(0.001, with_value: :over) { queue.pop }, kind
        assert_equal 0, queue.num_waiting
      end
    end
  end

  def test_room_that_another_thread_takes_after_the_question
    taken = Module.new do
      def length
        return super if @taken

        @taken = true
        super.tap { push(:theirs) }
      end
    end
    in_blocking_places do |kind|
      queue = ::SizedQueue.new(1).extend(taken)
      assert_same queue, beating(-> { assert_equal :theirs, queue.pop }) { queue.push(:mine) }, kind
      assert_equal :mine, queue.pop
    end
  end

  def test_an_error_of_another_thread_is_not_taken_for_an_empty_queue
    queue, ready = ::Queue.new, ::Queue.new
    thread = quiet { snooze; ready << 1; loop { queue << 1; queue.pop } }
    ready.pop
    thread.raise(ThreadError, 'something else')
    assert_equal 'something else', assert_raises(ThreadError) { thread.join }.message
  end

  def test_what_a_queue_is_not_given
    each_queue do |queue, kind|
      queue << 1
      assert_raises(ArgumentError, kind) { queue.pop(1, 2) }
      assert_equal 1, queue.pop(false)
    end
    in_all_places do |kind|
      queue = ::SizedQueue.new(1)
      assert_raises(ArgumentError, kind) { queue.push }
      assert_raises(ArgumentError, kind) { queue.push(1, 2, 3) }
      assert_same queue, queue.push(1, false)
      assert_equal 1, queue.pop
    end
  end

  def test_items_from_another_thread
    each_queue do |queue, kind|
      told = ::Queue.new
      thread = Thread.new { told.pop; queue << :item }
      assert_equal :item, beating(-> { told << 1 }) { queue.pop }, kind
      thread.join
    end
  end

  def test_who_waits_is_counted
    each_queue do |queue, kind|
      seen = nil
      beating(-> { seen = queue.num_waiting; queue << 1 }) { queue.pop }
      assert_equal 1, seen, kind
    end
    queue = ::SizedQueue.new(1) << 1
    seen = nil
    beating(-> { seen = queue.num_waiting; queue.pop }) { queue << 2 }
    assert_equal 1, seen
  end

  def test_what_does_not_wait
    each_queue do |queue, kind|
      assert_equal 'queue empty', assert_raises(ThreadError) { queue.pop(true) }.message, kind
      queue << 1
      assert_equal 1, queue.pop(true)
      queue.close
      assert_nil queue.pop
      assert_raises(ThreadError) { queue.pop(true) }
      assert_raises(ClosedQueueError) { queue << 1 }
      assert_raises(ArgumentError) { queue.pop(1, 2) }
    end
    queue = ::SizedQueue.new(1) << 1
    assert_equal 'queue full', assert_raises(ThreadError) { queue.push(2, true) }.message
  end

  def test_closing_ends_a_wait
    each_queue { |queue, kind| assert_nil(beating(-> { queue.close }) { queue.pop }, kind) }
    in_all_places do |kind|
      queue = ::SizedQueue.new(1) << 1
      assert_raises(ClosedQueueError, kind) { beating(-> { queue.close }) { queue.push(2) } }
    end
  end

  def test_limits_of_rubys_own
    skip 'this Ruby has no timeout: for queues' if RUBY_VERSION < '3.2'
    each_queue do |queue, kind|
      assert_nil queue.pop(timeout: 0.001), kind
      assert_equal 1, beating(-> { queue << 1 }) { queue.pop(timeout: patient(20)) }
      assert_nil queue.pop(timeout: 0)
    end
    in_all_places do |kind|
      queue = ::SizedQueue.new(1) << 1
      assert_nil queue.push(2, timeout: 0.001), kind
      assert_same queue, beating(-> { queue.pop }) { queue.push(2, timeout: patient(20)) }
    end
  end

  def test_a_cancelled_taker_takes_nothing
    each_queue do |queue, kind|
      assert_equal :over, move_on_after(0.001, with_value: :over) { queue.pop }, kind
      queue << 1
      assert_equal [1, 0], [queue.size, queue.num_waiting]
    end
  end

  def test_a_cancelled_giver_gives_nothing
    in_all_places do |kind|
      queue = ::SizedQueue.new(1) << 1
      assert_equal :over, move_on_after(0.001, with_value: :over) { queue << 2 }, kind
      assert_equal [1, 0, 0], [queue.pop, queue.size, queue.num_waiting]
    end
  end

  def test_nothing_is_lost_at_any_wait_point
    cancel_everywhere do |run|
      queue, taken = ::SizedQueue.new(2), []
      run.scenario { 5.times { taken << queue.pop } }
      run.beside { 5.times { |i| queue << i; snooze }; queue.close }
      run.beside { while (item = queue.pop) do taken << item end }
      run.check { assert_equal [0, 1, 2, 3, 4], taken.compact.sort }
    end
  end

  # Takers in blocking fibers are served in their turn.
  def test_first_come_first_served
    queue, got = ::Queue.new, []
    takers = Array.new(2) { |i| spin { got << [i, queue.pop] } }
    2.times { snooze }
    takers << spin { 3.times { snooze }; got << [:late, queue.pop] }
    spin { 6.times { snooze }; 4.times { |i| queue << i } }
    got << [:main, queue.pop]
    takers.each(&:await)
    assert_equal [[0, 0], [1, 1], [:main, 2], [:late, 3]], got.sort_by(&:last)
  end

  def test_fibers_and_threads_share_a_queue
    queue, results = ::SizedQueue.new(3), ::Queue.new
    take = -> { while (item = queue.pop) do results << item end }
    threads = Array.new(2) { Thread.new { 2.times { spin(&take) }; take.call } } + [Thread.new(&take)]
    fibers = Array.new(2) { spin(&take) }
    heart = 0
    beat = spin { loop { heart += 1; sleep 0.0001 } }
    300.times { |i| queue << i }
    queue.close
    threads.each(&:join)
    fibers.each(&:await)
    beat.stop
    assert_equal (0...300).to_a, Array.new(300) { results.pop }.sort
    assert_operator heart, :>, 1
  end
end
