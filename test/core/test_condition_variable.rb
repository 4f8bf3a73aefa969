# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::ConditionVariable: who waits has no lock, who goes on has it, and no signal is lost.
class TestConditionVariable < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    super
    @lock = Polyphony::Mutex.new
    @cond = Polyphony::ConditionVariable.new
  end

  # @return [Array<Fiber>] that wait for a signal
  def waiters(count = 1, timeout = nil)
    Array.new(count) { |i| waiting { @lock.synchronize { [i, @cond.wait(@lock, timeout), @lock.owned?] } } }
  end

  def test_wait_gives_up_the_lock_and_takes_it_again
    fiber, = waiters
    assert_nil @lock.locked?
    assert_same @cond, @cond.signal
    assert_equal [0, true, true], fiber.await
    assert_nil @lock.locked?
  end

  def test_a_signal_wakes_the_one_who_came_first
    fibers = waiters(3)
    order = []
    fibers.each { |fiber| spin { order << fiber.await.first } }
    3.times { @cond.signal; 4.times { snooze } }
    assert_equal [0, 1, 2], order
  end

  def test_a_signal_for_nobody_is_not_kept
    @cond.signal
    assert_same @cond, @cond.broadcast
    assert_equal false, @lock.synchronize { @cond.wait(@lock, 0.001) }
  end

  def test_a_broadcast_wakes_all_one_after_the_other
    fibers = waiters(4)
    @cond.broadcast
    assert_equal Array.new(4) { |i| [i, true, true] }, Fiber.await(fibers)
    assert_nil @lock.locked?
  end

  def test_who_was_signalled_waits_for_the_lock
    fiber, = waiters
    @lock.lock
    @cond.signal
    3.times { snooze }
    assert_equal :waiting, fiber.state
    @lock.unlock
    assert_equal [0, true, true], fiber.await
  end

  def test_a_timeout_is_false_and_has_the_lock
    [0.001, 0, -1].each do |timeout|
      assert_equal [false, true], @lock.synchronize { [@cond.wait(@lock, timeout), @lock.owned?] }
    end
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_a_signal_in_time_is_true
    fiber, = waiters(1, 100)
    @cond.signal
    assert_equal [0, true, true], fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  # --- other locks -------------------------------------------------------------------------------------

  def test_with_a_lock_of_rubys_own
    lock = Thread::Mutex.new
    fiber = waiting { lock.synchronize { @cond.wait(lock).tap { assert lock.owned? } } }
    refute lock.locked?
    @cond.signal
    assert_equal true, fiber.await
  end

  # A lock that only notes what is done to it.
  class Notes
    attr_reader :calls

    def initialize
      @calls = []
    end

    def unlock
      @calls << :unlock
    end

    def lock
      @calls << :lock
    end
  end

  class ConditionalNotes < Notes
    def conditional_release
      @calls << :release
    end

    def conditional_reacquire
      @calls << :reacquire
    end
  end

  def test_with_anything_that_can_be_released_and_taken_again
    { Notes => %i[unlock lock], ConditionalNotes => %i[release reacquire] }.each do |type, calls|
      lock = type.new
      fiber = waiting { @cond.wait(lock) }
      assert_equal calls.first(1), lock.calls
      fiber.raise(Boom)
      assert_raises(Boom) { fiber.await }
      assert_equal calls, lock.calls
    end
  end

  # One that is slow to unlock: the signal comes before the wait has begun.
  class Slow < Notes
    def initialize(cond)
      super()
      @cond = cond
    end

    def unlock
      snooze
      @cond.signal
    end
  end

  def test_a_signal_between_unlocking_and_waiting_is_not_lost
    assert_equal true, spin { @cond.wait(Slow.new(@cond)) }.await
  end

  # --- errors of use -----------------------------------------------------------------------------------

  def test_waiting_without_the_lock_is_an_error
    assert_raises(ThreadError) { @cond.wait(@lock) }
    @lock.lock
    assert_raises(ThreadError) { spin { @cond.wait(@lock) }.await }
    assert @lock.owned?
    @lock.unlock
  end

  def test_waiting_with_what_is_no_lock_is_an_error_that_names_it
    assert_match(/42/, assert_raises(TypeError) { @cond.wait(42) }.message)
    assert_raises(TypeError) { @cond.wait(nil) }
    assert_raises(ArgumentError) { @cond.wait }
  end

  def test_a_timeout_that_is_no_duration_is_refused_and_the_lock_kept
    @lock.lock
    assert_raises(TypeError) { @cond.wait(@lock, '1') }
    assert_raises(ArgumentError) { @cond.wait(@lock, Float::NAN) }
    assert @lock.owned?
    @lock.unlock
  end

  # --- cancelling --------------------------------------------------------------------------------------

  def test_the_lock_is_held_after_a_wait_that_was_cancelled
    log = []
    fiber = spin do
      @lock.synchronize do
        @cond.wait(@lock)
      rescue Boom
        log << @lock.owned?
      end
    end
    snooze
    @lock.lock
    fiber.raise(Boom)
    3.times { snooze }
    assert_equal [:waiting, []], [fiber.state, log]
    @lock.unlock
    fiber.await
    assert_equal [true], log
  end

  def test_a_signal_that_reaches_a_cancelled_fiber_goes_to_the_next
    first, second = waiters(2)
    @cond.signal
    first.stop
    assert_nil first.await
    assert_equal [1, true, true], second.await
  end

  def test_a_signal_whose_fiber_is_cancelled_while_it_waits_for_the_lock_goes_to_the_next
    first, second = waiters(2)
    @lock.lock
    @cond.signal
    2.times { snooze } # the first one waits for the lock now
    first.stop(:stopped)
    2.times { snooze }
    assert_equal :waiting, first.state
    @lock.unlock
    assert_equal :stopped, first.await
    assert_equal [1, true, true], second.await
  end

  def test_a_second_exception_does_not_keep_the_lock_away
    owned = []
    fiber = spin do
      @lock.synchronize do
        @cond.wait(@lock)
      ensure
        owned << @lock.owned?
        begin
          snooze
        rescue Boom => e
          owned << e.message
        end
      end
    end
    snooze
    @lock.lock
    fiber.stop(:stopped)
    snooze
    fiber.raise(Boom, 'second') # it is waiting for the lock by now
    2.times { snooze }
    @lock.unlock
    assert_equal :stopped, fiber.await
    assert_equal [true, 'second'], owned
  end

  def test_a_time_limit_around_a_wait
    late = @lock.synchronize do
      move_on_after(0.001, with_value: :late) { @cond.wait(@lock) }.tap { assert @lock.owned? }
    end
    assert_equal :late, late
    assert_nil @lock.locked?
  end

  def test_a_time_limit_that_is_over_while_the_fiber_waits_for_the_lock_strikes_when_it_has_it
    fiber = spin do
      @lock.synchronize do
        move_on_after(0.002, with_value: :late) { @cond.wait(@lock) }.tap { assert @lock.owned? }
      end
    end
    snooze
    @lock.lock
    @cond.signal
    sleep 0.005
    @lock.unlock
    assert_equal :late, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  # --- threads -----------------------------------------------------------------------------------------

  def exchange(lock, makers:, takers:, each:)
    items = []
    taken = []
    take = proc do
      lock.synchronize do
        @cond.wait(lock) while items.empty?
        items.shift.tap { |item| taken << item }
      end
    end
    threads = Array.new(takers) { Thread.new { nil while take.call } }
    threads += Array.new(makers) do |i|
      Thread.new { each.times { |n| lock.synchronize { items << [i, n]; @cond.signal } } }
    end
    threads.last(makers).each(&:join)
    lock.synchronize { takers.times { items << nil }; @cond.broadcast }
    threads.each(&:join)
    taken.compact
  end

  def test_threads_that_make_and_take
    taken = exchange(@lock, makers: 2, takers: 3, each: 200)
    assert_equal 400, taken.uniq.size
    assert_nil @lock.locked?
  end

  def test_threads_that_make_and_take_with_a_lock_of_rubys_own
    taken = exchange(Thread::Mutex.new, makers: 2, takers: 1, each: 100)
    assert_equal 200, taken.uniq.size
  end

  # Two fibers of two threads take turns: a lost signal would hang.
  def test_threads_take_turns
    turn = 0
    work = lambda do |me|
      200.times do
        @lock.synchronize do
          @cond.wait(@lock) until turn % 2 == me
          turn += 1
          @cond.signal
        end
      end
    end
    thread = Thread.new { work.call(1) }
    work.call(0)
    thread.join
    assert_equal 400, turn
  end

  def test_threads_take_turns_although_a_trace_proc_lets_others_run_in_the_middle
    backend = Thread.current.backend
    backend.trace_proc = proc { Thread.pass }
    turn = 0
    work = lambda do |me|
      100.times do
        @lock.synchronize do
          @cond.wait(@lock) until turn % 2 == me
          turn += 1
          @cond.signal
        end
      end
    end
    thread = Thread.new { Thread.current.backend.trace_proc = proc { Thread.pass }; work.call(1) }
    work.call(0)
    thread.join
    assert_equal 200, turn
  ensure
    backend.trace_proc = nil
  end

  def test_a_thread_that_is_killed_while_it_waits_takes_the_lock_first
    owned = nil
    fiber = nil
    thread = Thread.new do
      fiber = Fiber.current
      @lock.synchronize do
        @cond.wait(@lock)
      ensure
        owned = @lock.owned?
      end
    end
    sleep 0.001 until fiber&.__wait_reason
    thread.kill
    thread.join
    assert_equal true, owned
    assert_nil @lock.locked?
  end
end
