# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Mutex: one fiber at a time, in order of arrival, whatever happens to those who hold it
# and to those who wait.
class TestMutex < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    super
    @lock = Polyphony::Mutex.new
  end

  # @return [Fiber] that holds the lock until it is scheduled
  def holder
    waiting { @lock.synchronize { suspend_here } }
  end

  def suspend_here
    Polyphony.backend_wait_event(true)
  end

  # --- the words ---------------------------------------------------------------------------------------

  def test_lock_and_unlock_return_the_lock_and_tell_who_has_it
    assert_nil @lock.locked?
    assert_equal false, @lock.owned?
    assert_same @lock, @lock.lock
    assert_same Fiber.current, @lock.locked?
    assert_equal true, @lock.owned?
    assert_equal false, spin { @lock.owned? }.await
    assert_same @lock, @lock.unlock
    assert_nil @lock.locked?
  end

  def test_a_second_fiber_waits_until_the_first_unlocks
    first = holder
    second = waiting { @lock.lock; :locked }
    first.schedule
    assert_equal :locked, second.await
  end

  def test_try_lock_does_not_wait
    assert_equal true, @lock.try_lock
    assert_equal false, @lock.try_lock, 'not even for oneself'
    assert_equal false, spin { @lock.try_lock }.await
    @lock.unlock
    assert_equal true, spin { @lock.try_lock.tap { @lock.unlock } }.await
  end

  def test_synchronize_returns_what_the_block_returns_and_unlocks
    assert_equal :value, @lock.synchronize { @lock.owned? && :value }
    assert_nil @lock.locked?
  end

  def test_synchronize_unlocks_after_an_exception_a_break_and_a_throw
    assert_raises(Boom) { @lock.synchronize { raise Boom } }
    assert_nil @lock.locked?
    assert_equal 1, (@lock.synchronize { break 1 })
    assert_nil @lock.locked?
    assert_equal 2, catch(:out) { @lock.synchronize { throw :out, 2 } }
    assert_nil @lock.locked?
  end

  def test_synchronize_is_re_entrant
    assert_equal :inner, @lock.synchronize { @lock.synchronize { @lock.synchronize { :inner } } }
    assert_nil @lock.locked?
    @lock.lock
    @lock.synchronize { nil }
    assert @lock.owned?, 'an inner synchronize does not unlock'
    @lock.unlock
  end

  def test_holders_tell_who_has_it_since_when
    assert_equal [], @lock.holders
    before = clock
    fiber = holder
    (held_by, since), *others = @lock.holders
    assert_same fiber, held_by
    assert_kind_of Float, since
    assert_in_delta before, since, patient(5)
    assert_empty others
    fiber.schedule
    fiber.await
    assert_equal [], @lock.holders
  end

  def test_a_copy_is_a_lock_of_its_own
    @lock.lock
    assert_nil @lock.dup.locked?
    @lock.unlock
  end

  # --- errors of use -----------------------------------------------------------------------------------

  def test_locking_twice_is_an_error
    @lock.lock
    error = assert_raises(ThreadError) { @lock.lock }
    assert_match(/holds this lock already/, error.message)
    assert @lock.owned?
    @lock.unlock
  end

  def test_unlocking_what_is_not_locked_is_an_error
    error = assert_raises(ThreadError) { @lock.unlock }
    assert_match(/not locked/, error.message)
  end

  def test_unlocking_what_another_fiber_holds_is_an_error_that_names_it
    fiber = spin(:other) { @lock.synchronize { suspend_here } }
    snooze
    error = assert_raises(ThreadError) { @lock.unlock }
    assert_includes error.message, fiber.inspect
    assert_same fiber, @lock.locked?
    fiber.schedule
    fiber.await
  end

  def test_unlocking_inside_synchronize_is_an_error_that_hides_no_other
    assert_raises(ThreadError) { @lock.synchronize { @lock.unlock } }
    assert_raises(Boom) { @lock.synchronize { @lock.unlock; raise Boom } }
    assert_nil @lock.locked?
  end

  def test_synchronize_needs_a_block
    assert_match(/block/, assert_raises(ArgumentError) { @lock.synchronize }.message)
    @lock.lock
    assert_raises(ArgumentError) { @lock.synchronize }
    @lock.unlock
  end

  # --- order -------------------------------------------------------------------------------------------

  def test_those_who_wait_get_it_in_order_of_arrival
    order = []
    @lock.lock
    fibers = Array.new(5) { |i| waiting { @lock.synchronize { order << i; snooze } } }
    @lock.unlock
    Fiber.await(fibers)
    assert_equal [0, 1, 2, 3, 4], order
  end

  def test_nobody_jumps_the_queue
    order = []
    @lock.lock
    fiber = waiting { @lock.synchronize { order << :waited } }
    @lock.unlock
    assert_equal false, @lock.try_lock, 'it is for the one who has been woken'
    @lock.synchronize { order << :newcomer }
    fiber.await
    assert_equal %i[waited newcomer], order
  end

  def test_a_cancelled_lock_is_not_held
    first = holder
    second = waiting { @lock.lock }
    second.stop
    second.await
    assert_same first, @lock.locked?
    first.schedule
    first.await
    assert_nil @lock.locked?
    assert @lock.try_lock
    @lock.unlock
  end

  def test_a_time_limit_ends_the_wait_for_a_lock
    fiber = holder
    assert_equal :late, move_on_after(0.001, with_value: :late) { @lock.synchronize { :inside } }
    fiber.schedule
    fiber.await
    assert_equal :inside, move_on_after(10) { @lock.synchronize { :inside } }
  end

  def test_a_fiber_that_is_cancelled_when_its_turn_has_come_leaves_it_to_the_next
    order = []
    @lock.lock
    fibers = Array.new(3) { |i| waiting { @lock.synchronize { order << i } } }
    @lock.unlock
    fibers[0].stop # woken, but it has not run
    fibers[1].stop
    Fiber.await(fibers)
    assert_equal [2], order
    assert_nil @lock.locked?
  end

  def test_a_plain_wake_does_not_let_a_fiber_in
    fiber = holder
    second = waiting { @lock.synchronize { :inside } }
    second.schedule(:nonsense)
    second.interject { nil }
    3.times { snooze }
    assert_equal :waiting, second.state
    fiber.schedule
    assert_equal :inside, second.await
  end

  def test_a_generator_may_wait_for_a_lock
    fiber = holder
    numbers = Enumerator.new { |y| y << @lock.synchronize { 1 } }
    taker = waiting { numbers.next }
    fiber.schedule
    assert_equal 1, taker.await
    assert_nil @lock.locked?
  end

  # --- holders that end --------------------------------------------------------------------------------

  def test_lock_takes_over_from_a_dead_holder
    fiber = spin { @lock.lock }
    fiber.await
    assert_nil @lock.locked?
    assert_equal true, @lock.try_lock
    @lock.unlock
    spin { @lock.lock }.await
    assert_same @lock, @lock.lock
    @lock.unlock
  end

  def test_fibers_that_wait_take_over_when_the_holder_ends
    order = []
    first = waiting { @lock.lock; suspend_here }
    others = Array.new(3) { |i| waiting { @lock.lock; order << i; snooze } } # none unlocks
    first.schedule
    Fiber.await(others)
    assert_equal [0, 1, 2], order
    assert_nil @lock.locked?
  end

  def test_fibers_that_wait_take_over_when_the_holder_is_stopped_or_fails
    [->(fiber) { fiber.stop }, ->(fiber) { fiber.terminate }, ->(fiber) { fiber.raise(Boom) }].each do |ending|
      first = spin { @lock.lock; suspend_here rescue nil }
      snooze
      second = waiting { @lock.synchronize { :mine } }
      ending.call(first)
      assert_equal :mine, second.await
    end
  end

  def test_a_holder_that_has_unlocked_in_time_takes_nothing_with_it
    first = waiting { @lock.synchronize { suspend_here }; suspend_here }
    second = waiting { @lock.synchronize { suspend_here; :kept } }
    first.schedule
    snooze until @lock.locked? == second
    first.schedule
    first.await
    assert_same second, @lock.locked?
    second.schedule
    assert_equal :kept, second.await
  end

  def test_fibers_that_wait_take_over_from_a_generator_that_ends
    generator = Fiber.new { @lock.lock; Fiber.yield }
    generator.resume
    second = waiting { @lock.synchronize { :mine } }
    generator.resume
    assert_equal :mine, second.await
  end

  def test_fibers_that_wait_take_over_from_a_thread_that_ends
    [proc { nil }, proc { sleep 0.001 }].each do |work|
      go = Polyphony::Queue.new
      thread = Thread.new { @lock.lock; go.shift; work.call }
      sleep 0.001 until @lock.locked?
      second = waiting { @lock.synchronize { :mine } }
      go << 1
      assert_equal :mine, second.await
      thread.join
    end
  end

  def test_fibers_that_wait_take_over_from_a_thread_that_never_waited
    go = false
    thread = Thread.new { @lock.lock; Thread.pass until go }
    Thread.pass until @lock.locked?
    second = waiting { @lock.synchronize { :mine } }
    go = true
    assert_equal :mine, second.await
    thread.join
  end

  def test_lock_takes_over_from_a_generator_whose_thread_has_ended
    generator = nil
    Thread.new { generator = Fiber.new { @lock.lock; Fiber.yield }.tap(&:resume) }.join
    assert generator.alive?
    assert_equal :mine, move_on_after(patient(10)) { @lock.synchronize { :mine } }
  end

  # Without the extensions nobody tells that a thread ends.
  def test_the_core_alone_takes_over_from_a_thread_that_ends
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony/core'
      lock = Polyphony::Mutex.new
      thread = Thread.new { lock.lock; Polyphony.backend_sleep(0.02) }
      Thread.pass until lock.locked?
      puts lock.synchronize { :mine }
    RUBY
    assert status.success?, err
    assert_equal "mine\n", out
  end

  # --- sleep -------------------------------------------------------------------------------------------

  def test_sleep_lets_others_have_the_lock_and_takes_it_again
    log = []
    other = spin { @lock.synchronize { log << :other } }
    @lock.synchronize do
      started = clock
      assert_equal 0, @lock.sleep(0.01)
      assert_operator clock - started, :>=, 0.01
      assert @lock.owned?
      log << :back
    end
    other.await
    assert_equal %i[other back], log
  end

  def test_sleep_without_a_time_ends_when_the_fiber_is_scheduled
    fiber = waiting { @lock.synchronize { [@lock.sleep, @lock.owned?] } }
    assert_nil @lock.locked?
    fiber.schedule
    assert_equal [0, true], fiber.await
  end

  def test_sleep_rounds_seconds
    assert_equal 1, @lock.synchronize { @lock.sleep(0.51) }
  end

  def test_the_lock_is_held_after_a_sleep_that_was_cancelled
    owned = nil
    fiber = waiting do
      @lock.synchronize do
        @lock.sleep
      ensure
        owned = @lock.owned?
      end
    end
    @lock.lock
    fiber.stop(:stopped)
    2.times { snooze }
    assert_equal :waiting, fiber.state, 'for the lock'
    @lock.unlock
    assert_equal :stopped, fiber.await
    assert_equal true, owned
    assert_nil @lock.locked?
  end

  def test_sleep_without_the_lock_is_an_error
    assert_raises(ThreadError) { @lock.sleep(0) }
  end

  def test_sleep_refuses_what_is_no_duration_and_keeps_the_lock
    @lock.lock
    assert_match(/-1/, assert_raises(ArgumentError) { @lock.sleep(-1) }.message)
    assert_raises(TypeError) { @lock.sleep('1') }
    assert_raises(ArgumentError) { @lock.sleep(Float::NAN) }
    assert @lock.owned?
    @lock.unlock
  end

  # --- for conditions ----------------------------------------------------------------------------------

  def test_conditional_release_and_reacquire
    assert_raises(ThreadError) { @lock.conditional_release }
    @lock.lock
    assert_equal 1, @lock.conditional_release
    assert_nil @lock.locked?
    assert_same @lock, @lock.conditional_reacquire
    assert @lock.owned?
    assert_raises(ThreadError) { @lock.conditional_reacquire }
    @lock.unlock
    assert_match(/0/, assert_raises(ArgumentError) { @lock.conditional_reacquire(0) }.message)
    assert_nil @lock.locked?
  end

  def test_what_comes_during_a_reacquire_is_raised_afterwards_and_all_of_it
    caught = []
    first = holder
    fiber = spin do
      @lock.conditional_reacquire
      caught << @lock.owned?
      3.times { snooze rescue caught << $!.message }
      @lock.unlock
    end
    snooze
    %w[one two three].each { |message| fiber.raise(Boom, message) }
    3.times { snooze }
    assert_equal :waiting, fiber.state
    first.schedule
    fiber.await
    assert_equal [true, 'one', 'two', 'three'], caught
  end

  # --- deadlocks ---------------------------------------------------------------------------------------

  def test_a_lock_that_nobody_will_unlock_is_a_deadlock
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      a, b = Polyphony::Mutex.new, Polyphony::Mutex.new
      spin { a.synchronize { snooze; b.lock } }
      begin
        b.synchronize { snooze; a.lock }
      rescue Polyphony::Deadlock => e
        puts e.message[/waits for a lock/]
      end
    RUBY
    assert status.success?, err
    assert_equal "waits for a lock\n", out
  end

  def test_a_lock_that_cannot_be_taken_again_is_a_deadlock_too
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      lock = Polyphony::Mutex.new
      spin { lock.lock; Polyphony.backend_wait_event(true) }
      begin
        lock.synchronize { lock.sleep(0.001) }
      rescue Polyphony::Deadlock
        puts :deadlock, lock.owned?
      end
    RUBY
    assert status.success?, err
    assert_equal "deadlock\nfalse\n", out
  end

  def test_a_generator_that_holds_a_lock_for_ever_is_a_deadlock
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      lock = Polyphony::Mutex.new
      numbers = Enumerator.new { |y| lock.synchronize { y << 1 } }
      numbers.next
      begin
        lock.lock
      rescue Polyphony::Deadlock
        puts :deadlock
      end
    RUBY
    assert status.success?, err
    assert_equal "deadlock\n", out
  end

  # --- threads -----------------------------------------------------------------------------------------

  def test_threads_exclude_each_other
    count = 0
    threads = Array.new(4) do
      Thread.new do
        500.times do
          @lock.synchronize do
            before = count
            Thread.pass
            count = before + 1
          end
        end
      end
    end
    threads.each(&:join)
    assert_equal 2000, count
    assert_nil @lock.locked?
  end

  def test_fibers_of_several_threads_exclude_each_other_while_some_are_cancelled
    inside = most = done = 0
    threads = Array.new(3) do
      Thread.new do
        fibers = Array.new(4) do |i|
          spin do
            30.times do
              move_on_after(i.zero? ? 0.0002 : nil) do
                @lock.synchronize do
                  most = [most, inside += 1].max
                  snooze
                  done += 1
                ensure
                  inside -= 1
                end
              end
            end
          end
        end
        Fiber.await(fibers)
      end
    end
    threads.each(&:join)
    assert_equal [0, 1], [inside, most]
    assert_operator done, :>=, 3 * 3 * 30
    assert_nil @lock.locked?
  end

  def test_threads_wait_in_order_of_arrival
    order = []
    @lock.lock
    threads = Array.new(4) do |i|
      ready = false
      thread = Thread.new { ready = Fiber.current; @lock.synchronize { order << i } }
      sleep 0.001 until ready && ready.__wait_reason
      thread
    end
    @lock.unlock
    threads.each(&:join)
    assert_equal [0, 1, 2, 3], order
  end

  def test_a_thread_that_is_killed_while_it_waits_or_holds_leaves_the_lock_usable
    @lock.lock
    fiber = nil
    thread = Thread.new { fiber = Fiber.current; @lock.lock }
    sleep 0.001 until fiber&.__wait_reason
    thread.kill
    thread.join
    @lock.unlock
    thread = Thread.new { @lock.synchronize { sleep } }
    sleep 0.001 until @lock.locked?
    thread.kill
    thread.join
    assert_equal :free, @lock.synchronize { :free }
  end

  def test_a_thread_that_is_killed_in_its_sleep_takes_the_lock_first
    owned = nil
    fiber = nil
    thread = Thread.new do
      fiber = Fiber.current
      @lock.synchronize do
        @lock.sleep
      ensure
        owned = @lock.owned?
      end
    end
    sleep 0.001 until fiber&.__wait_reason
    @lock.lock
    thread.kill
    sleep 0.005
    assert thread.alive?, 'waits for the lock'
    @lock.unlock
    thread.join
    assert_equal true, owned
    assert_nil @lock.locked?
  end

  def test_a_thread_that_is_killed_while_it_takes_the_lock_again_dies_with_it
    owned = nil
    fiber = nil
    reached = false
    thread = Thread.new do
      fiber = Fiber.current
      @lock.synchronize do
        @lock.sleep
        reached = true
      ensure
        owned = @lock.owned?
      end
    end
    sleep 0.001 until fiber&.__wait_reason
    @lock.lock
    fiber.schedule
    sleep 0.001 until fiber.__wait_reason == 'a lock'
    thread.kill
    sleep 0.005
    assert thread.alive?, 'waits for the lock'
    @lock.unlock
    assert_nil thread.value
    assert_equal [true, false], [owned, reached]
    assert_nil @lock.locked?
  end

  # A trace proc is Ruby: another thread may run in it, between any two steps.
  def test_nothing_is_lost_when_threads_change_in_the_middle
    backend = Thread.current.backend
    backend.trace_proc = proc { Thread.pass }
    count = 0
    work = proc { 100.times { @lock.synchronize { count += 1; snooze } } }
    thread = Thread.new { Thread.current.backend.trace_proc = proc { Thread.pass }; work.call }
    work.call
    thread.join
    assert_equal 200, count
  ensure
    backend.trace_proc = nil
  end
end
