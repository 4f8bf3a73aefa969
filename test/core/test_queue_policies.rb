# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# What a push to a full Polyphony::Queue does, by its policy.
class TestQueuePolicies < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  POLICIES = %i[wait drop_oldest drop_newest error].freeze
  NEVER_WAIT = POLICIES.drop(1).freeze

  def queue(capacity, policy, *items)
    Polyphony::Queue.new(capacity, policy: policy).tap { |queue| items.each { |item| queue << item } }
  end

  # --- each of them ---------------------------------------------------------------------------------

  def test_drop_oldest_makes_room_by_dropping_the_first
    queue = queue(2, :drop_oldest, 1, 2)
    assert_same queue, queue.push(3)
    assert_equal [2, 3], queue.shift_all
    assert_equal 1, queue.dropped
  end

  def test_drop_newest_drops_what_comes
    queue = queue(2, :drop_newest, 1, 2)
    assert_same queue, queue.push(3)
    assert_equal [1, 2], queue.shift_all
    assert_equal 1, queue.dropped
  end

  def test_error_raises_and_keeps_what_is_there
    queue = queue(2, :error, 1, 2)
    error = assert_raises(Polyphony::Queue::Full) { queue.push(3) }
    assert_equal 'the queue is full: it holds 2', error.message
    assert_equal [2, nil], [error.capacity, error.owner]
    assert_kind_of ThreadError, error
    assert_equal [1, 2], queue.shift_all
    assert_equal 0, queue.dropped
    queue << 4
    assert_equal [4], queue.shift_all
  end

  def test_the_error_of_a_full_mailbox_names_its_fiber
    fiber = spin(:reader) { sleep }
    fiber.mailbox.cap(1, policy: :error)
    fiber << 1
    error = assert_raises(Polyphony::Queue::Full) { fiber << 2 }
    assert_same fiber, error.owner
    assert_includes error.message, "the mailbox of #{fiber.inspect}"
  end

  def test_wait_is_what_a_queue_does_unless_told_otherwise
    assert_equal %i[wait wait], [Polyphony::Queue.new.policy, Polyphony::Queue.new(1).policy]
    POLICIES.each { |policy| assert_equal policy, queue(1, policy).policy }
  end

  def test_a_queue_with_room_drops_nothing_whatever_its_policy
    POLICIES.each do |policy|
      queue = queue(3, policy, 1, 2, 3)
      assert_equal [1, 2, 3], queue.shift_all, policy
      assert_equal 0, queue.dropped, policy
    end
  end

  def test_a_policy_without_a_capacity_has_nothing_to_do
    NEVER_WAIT.each do |policy|
      queue = Polyphony::Queue.new(policy: policy)
      100.times { |i| queue << i }
      assert_equal [100, 0], [queue.size, queue.dropped]
    end
  end

  # An unshifted item is as new as a pushed one.
  def test_unshift_follows_the_same_policy
    assert_equal [3, 2], queue(2, :drop_oldest, 1, 2).unshift(3).shift_all
    assert_equal [1, 2], queue(2, :drop_newest, 1, 2).unshift(3).shift_all
    queue = queue(2, :error, 1, 2)
    assert_raises(Polyphony::Queue::Full) { queue.unshift(3) }
    assert_equal [1, 2], queue.shift_all
  end

  def test_every_name_of_push_follows_the_policy
    %i[push << enq].each do |name|
      assert_equal [2], queue(1, :drop_oldest, 1).public_send(name, 2).shift_all, name
    end
  end

  # --- switching ------------------------------------------------------------------------------------

  def test_only_a_push_that_may_wait_passes_through_the_scheduler
    POLICIES.each do |policy|
      log = []
      queue = Polyphony::Queue.new(1, policy: policy)
      fiber = spin { log << :other }
      queue << 1
      assert_equal policy == :wait ? [:other] : [], log, policy
      fiber.await
    end
  end

  def test_a_push_that_never_waits_may_be_done_in_a_signal_handler
    queue = queue(1, :drop_oldest)
    before = trap('USR1') { 2.times { |i| queue << i } }
    Process.kill('USR1', Process.pid)
    assert_equal 1, queue.shift
    assert_equal 1, queue.dropped
  ensure
    trap('USR1', before)
  end

  # --- shifters -------------------------------------------------------------------------------------

  def test_a_waiting_shifter_gets_what_was_not_dropped
    { drop_oldest: 2, drop_newest: 1 }.each do |policy, kept|
      queue = Polyphony::Queue.new(1, policy: policy)
      fiber = spin { queue.shift }
      snooze until queue.num_waiting == 1
      queue << 1 << 2
      assert_equal kept, fiber.await, policy
      assert_equal [0, 1], [queue.size, queue.dropped], policy
    end
  end

  def test_shifters_keep_their_order_when_an_item_on_its_way_is_replaced
    queue = queue(1, :drop_oldest)
    log = []
    first, second = Array.new(2) { |i| spin { log << [i, queue.shift] } }
    snooze until queue.num_waiting == 2
    queue << :a << :b # the first is woken once, for what is there when it runs
    first.await
    third = spin { log << [2, queue.shift] }
    snooze until queue.num_waiting == 2
    queue << :c
    second.await
    queue << :d
    third.await
    assert_equal [[0, :b], [1, :c], [2, :d]], log
  end

  # --- changing the limit -----------------------------------------------------------------------------

  def test_cap_keeps_the_policy_unless_told_otherwise
    queue = queue(1, :drop_oldest)
    assert_equal :drop_oldest, queue.cap(2).policy
    assert_equal :drop_newest, queue.cap(2, policy: :drop_newest).policy
    assert_equal 2, queue.capped?
  end

  def full_with_waiting_pushers
    queue = queue(1, :wait, :full)
    pushers = Array.new(2) do |i|
      spin do
        queue << i
        :pushed
      rescue Polyphony::Queue::Full, ClosedQueueError => e
        e.class
      end
    end
    snooze until queue.num_waiting == 2
    [queue, pushers]
  end

  def test_waiting_pushers_go_by_a_new_policy
    {
      { policy: :drop_oldest } => [%i[pushed pushed], [1], 2],
      { policy: :drop_newest } => [%i[pushed pushed], [:full], 2],
      { policy: :error } => [[Polyphony::Queue::Full] * 2, [:full], 0]
    }.each do |options, (results, left, dropped)|
      queue, pushers = full_with_waiting_pushers
      queue.cap(1, **options)
      assert_equal results, Fiber.await(pushers), options
      assert_equal left, queue.shift_all, options
      assert_equal [dropped, 0], [queue.dropped, queue.num_waiting], options
    end
  end

  def test_waiting_pushers_go_on_waiting_when_the_policy_is_changed_there_and_back
    queue, pushers = full_with_waiting_pushers
    queue.cap(1, policy: :drop_oldest).cap(1, policy: :wait)
    snooze until queue.num_waiting == 2
    assert_equal [:full, 0, 1], Array.new(3) { queue.shift }
    assert_equal %i[pushed pushed], Fiber.await(pushers)
    assert_equal 0, queue.dropped
  end

  def test_what_is_there_stays_until_the_next_push_when_the_capacity_shrinks
    queue = Polyphony::Queue.new
    5.times { |i| queue << i }
    queue.cap(2, policy: :drop_oldest)
    assert_equal [5, 0], [queue.size, queue.dropped]
    queue << 5
    assert_equal [4, 5], queue.shift_all
    assert_equal 4, queue.dropped
  end

  # --- closing --------------------------------------------------------------------------------------

  def test_a_closed_queue_refuses_a_push_whatever_its_policy
    POLICIES.each do |policy|
      queue = queue(1, policy, 1)
      queue.close
      assert_raises(ClosedQueueError, policy) { queue << 2 }
      assert_raises(ClosedQueueError, policy) { queue.unshift(2) }
      assert_equal [[1], 0], [queue.shift_all, queue.dropped]
    end
  end

  # --- errors of use --------------------------------------------------------------------------------

  def test_a_wrong_policy_is_refused_with_its_value
    [:drop, 'wait', nil, 1].each do |wrong|
      error = assert_raises(ArgumentError) { Polyphony::Queue.new(1, policy: wrong) }
      assert_equal "a queue's policy is :wait, :drop_oldest, :drop_newest or :error, got #{wrong.inspect}",
                   error.message
    end
    assert_raises(ArgumentError) { Polyphony::Queue.new(1, polizy: :wait) }
  end

  def test_a_wrong_limit_changes_nothing
    queue = queue(3, :drop_oldest)
    assert_match(/-1/, assert_raises(ArgumentError) { queue.cap(-1, policy: :error) }.message)
    assert_raises(ArgumentError) { queue.cap(5, policy: :none) }
    assert_raises(ArgumentError) { queue.cap }
    assert_equal [3, :drop_oldest], [queue.capped?, queue.policy]
  end

  def test_a_queue_cannot_be_copied
    assert_raises(NoMethodError, TypeError) { queue(1, :wait, 1).dup }
    assert_raises(NoMethodError, TypeError) { queue(1, :wait, 1).clone }
  end

  # --- cancelling -----------------------------------------------------------------------------------

  def test_whatever_is_pushed_is_taken_left_or_counted_wherever_the_pusher_is_ended
    NEVER_WAIT.first(2).each do |policy|
      cancel_everywhere do |run|
        queue = Polyphony::Queue.new(1, policy: policy)
        pushed = 0
        taken = []
        run.scenario { 6.times { |i| queue << i; pushed += 1; snooze if i.odd? } }
        run.beside { 3.times { snooze; taken << queue.shift(true) unless queue.empty? } }
        run.check do
          all = taken + queue.shift_all
          assert_equal pushed, all.size + queue.dropped, policy
          assert_equal all.sort, all
          assert_equal 0, queue.num_waiting
        end
      end
    end
  end

  def test_a_push_with_an_error_can_be_ended_anywhere
    cancel_everywhere do |run|
      queue = queue(1, :error)
      pushed = refused = 0
      taken = []
      run.scenario do
        6.times do |i|
          queue << i
          pushed += 1
        rescue Polyphony::Queue::Full
          refused += 1
          snooze
        end
      end
      run.beside { 4.times { snooze; taken << queue.shift(true) unless queue.empty? } }
      run.check do |finished|
        assert_equal pushed, (taken + queue.shift_all).size
        assert_equal 6, pushed + refused if finished
        assert_equal [0, 0], [queue.dropped, queue.num_waiting]
      end
    end
  end

  def test_a_policy_may_change_while_a_pusher_is_ended_anywhere
    cancel_everywhere do |run|
      queue = queue(1, :wait)
      pushed = 0
      run.scenario { 3.times { |i| queue << i; pushed += 1 } }
      run.beside do
        6.times { snooze }
        queue.cap(1, policy: :drop_newest)
      end
      run.check do
        assert_equal pushed, queue.shift_all.size + queue.dropped
        assert_equal 0, queue.num_waiting
        queue << :x
        assert_equal :x, queue.shift
      end
    end
  end

  # --- threads and processes --------------------------------------------------------------------------

  def test_many_threads_push_and_every_item_is_accounted_for
    heavy
    NEVER_WAIT.each do |policy|
      queue = Polyphony::Queue.new(5, policy: policy)
      most = 0
      threads = Array.new(4) do
        Thread.new do
          Array.new(300) do |i|
            queue << i
            most = [most, queue.size].max
            0
          rescue Polyphony::Queue::Full
            1
          end.sum
        end
      end
      taken = 0
      taken += queue.shift_all.size while threads.any?(&:alive?) && sleep(0.0002).nil?
      refused = threads.sum(&:value)
      assert_operator most, :<=, 5, policy
      assert_equal 1200, taken + queue.size + queue.dropped + refused, policy
    end
  end

  def test_a_pusher_of_another_thread_goes_by_a_new_policy
    queue = queue(1, :wait, :full)
    thread = Thread.new { queue << :late; :done }
    sleep 0.001 until queue.num_waiting == 1
    queue.cap(1, policy: :drop_oldest)
    assert_equal :done, thread.value
    assert_equal [:late], queue.shift_all
  end

  def test_policies_hold_in_a_forked_child
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      queue = Polyphony::Queue.new(2, policy: :drop_oldest)
      3.times { |i| queue << i }
      Process.wait(fork { queue << 3; p queue.shift_all, queue.dropped })
      p queue.shift_all, queue.dropped
    RUBY
    assert_predicate status, :success?, err
    assert_equal %w[[2,\ 3] 2 [1,\ 2] 1], out.lines(chomp: true)
  end
end
