# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/places'
require_relative '../support/thread_helpers'

# Ruby's own Mutex, ConditionVariable and Monitor, in all kinds of fibers.
class TestStockLocks < Polyphony::TestCase
  include Polyphony::Places
  include Polyphony::ThreadHelpers

  on_every_driver

  # A fiber that has the lock until it is told.
  def hold(lock = ::Mutex.new)
    release = Polyphony::Event.new
    holder = waiting { lock.synchronize { release.await } }
    yield lock, -> { release.signal }
    holder.await
  ensure
    holder.stop
  end

  # --- Mutex ----------------------------------------------------------------------------------------------------------

  def test_lock_waits_and_the_fiber_that_called_has_it
    in_all_places do |kind|
      hold do |mutex, release|
        assert_same mutex, beating(release) { mutex.lock }, kind
        assert mutex.owned?, kind
        assert_same mutex, mutex.unlock
      end
    end
  end

  def test_synchronize_waits_and_runs_its_block_in_the_fiber_that_called
    in_all_places do |kind|
      hold do |mutex, release|
        inside = beating(release) { mutex.synchronize { [mutex.owned?, Fiber.current] } }
        assert_equal [true, Fiber.current], inside, kind
        refute mutex.locked?
      end
    end
  end

  def test_a_lock_that_another_thread_has
    in_all_places do |kind|
      mutex, told = ::Mutex.new, ::Queue.new
      has_it = Polyphony::Event.new
      thread = Thread.new { mutex.synchronize { has_it.signal; told.pop } }
      has_it.await
      beating(-> { told << 1 }) { mutex.lock }
      assert mutex.owned?, kind
      mutex.unlock
      thread.join
    end
  end

  def test_what_ruby_refuses
    in_all_places do |kind|
      mutex = ::Mutex.new.lock
      errors = [-> { mutex.lock }, -> { mutex.synchronize { flunk } }, -> { mutex.synchronize },
                -> { mutex.unlock; mutex.unlock }, -> { mutex.sleep(1) }].map { |use| assert_raises(ThreadError, &use).message }
      assert_equal ['deadlock; recursive locking', 'deadlock; recursive locking', 'must be called with a block',
                    'Attempt to unlock a mutex which is not locked', 'Attempt to unlock a mutex which is not locked'],
                   errors, kind
    end
    mutex = ::Mutex.new.lock
    assert_match(/locked by another/, spin { assert_raises(ThreadError) { mutex.unlock }.message }.await)
  end

  def test_a_stock_signal_handler_may_not_lock
    mutex = ::Mutex.new
    holder = waiting { mutex.synchronize { sleep } }
    errors = []
    before = Signal.trap(:USR1) { [mutex, ::Mutex.new].each { |lock| lock.lock rescue errors << $!.class } }
    Process.kill(:USR1, Process.pid)
    snooze until errors.size == 2
    assert_equal [ThreadError, ThreadError], errors
  ensure
    Signal.trap(:USR1, before)
    holder.stop
  end

  def test_a_cancelled_wait_leaves_the_lock_to_others
    in_all_places do |kind|
      hold do |mutex, release|
        assert_equal :over, move_on_after(0.001, with_value: :over) { mutex.lock }, kind
        assert_raises(IOError) { cancel_after(0.001, with_exception: IOError) { mutex.synchronize { flunk } } }
        second = spin { mutex.synchronize { :second } }
        snooze
        release.call
        assert_equal :second, second.await
        refute mutex.locked?
      end
    end
  end

  # The lock is given to it in the same turn in which it is to be ended.
  def test_a_cancel_that_comes_with_the_lock_loses_nothing
    in_all_places do |kind|
      mutex = ::Mutex.new
      holder = spin { mutex.lock; suspend; mutex.unlock }
      snooze until mutex.locked?
      me = Fiber.current
      others = Array.new(2) { |i| spin { snooze; mutex.synchronize { i } } }
      spin { 3.times { snooze }; holder.schedule; snooze; me.schedule(IOError.new("late")) }
      log = begin
        mutex.synchronize { sleep }
      rescue IOError => e
        e.message
      end
      assert_equal 'late', log, kind
      assert_equal [0, 1], others.map(&:await)
      refute mutex.locked?
    end
  end

  def test_blocking_and_other_fibers_take_turns
    mutex, inside, log = ::Mutex.new, 0, []
    work = lambda do |name|
      20.times do
        mutex.synchronize do
          assert_equal 1, inside += 1
          log << name
          snooze
          inside -= 1
        end
        2.times { snooze }
      end
    end
    spun = Array.new(3) { |i| spin { work.call(i) } }
    thread = Thread.new { spin { work.call(:thread) }.await }
    work.call(:main)
    Enumerator.new { |yielder| yielder << work.call(:enumerator) }.next
    spun.each(&:await)
    thread.join
    assert_equal({ 0 => 20, 1 => 20, 2 => 20, main: 20, enumerator: 20, thread: 20 }, log.tally)
  end

  def test_an_error_shows_where_the_lock_was_asked_for
    hold do |mutex, release|
      error = assert_raises(IOError) { cancel_after(0.001, with_exception: IOError) { mutex.lock } }
      line = __LINE__ - 1
      assert_match(/\A#{Regexp.escape(__FILE__)}:#{line}:in .*lock/, error.backtrace.first)
      release.call
    end
  end

  # --- Mutex#sleep ------------------------------------------------------------------------------------------------------

  def test_sleep_gives_the_lock_away_and_has_it_again
    in_all_places do |kind|
      mutex = ::Mutex.new
      mutex.synchronize do
        free = nil
        result = beating(-> { free = mutex.synchronize { snooze; :free } }, turns: 2) { mutex.sleep(0.005) while free.nil? }
        assert_nil result
        assert mutex.owned?, kind
        assert_equal :free, free
        assert_nil mutex.sleep(0.001), 'after the time is over'
      end
    end
  end

  def test_sleep_refuses_what_ruby_refuses_and_keeps_the_lock
    in_all_places do |kind|
      ::Mutex.new.synchronize { nil }
      mutex = ::Mutex.new.lock
      assert_raises(ArgumentError) { mutex.sleep(-1) }
      assert_raises(TypeError) { mutex.sleep('1') }
      assert_raises(ArgumentError) { mutex.sleep(1, 2) }
      assert mutex.owned?, kind
    end
  end

  def test_sleep_is_ended_by_wakeup_of_the_thread
    mutex = ::Mutex.new
    thread = Thread.new { spin { sleep }; snooze; mutex.synchronize { [mutex.sleep, mutex.owned?] } }
    wait_until_waiting(thread)
    thread.wakeup
    assert_equal [Integer, true], [thread.value.first.class, thread.value.last]
    me = Thread.current
    spin { snooze; me.wakeup }
    assert_instance_of Integer, mutex.synchronize { mutex.sleep(patient(20)) }
  end

  def test_a_sleep_that_is_broken_off_has_the_lock_again_first
    in_all_places do |kind|
      mutex = ::Mutex.new
      log = []
      other = nil
      error = assert_raises(IOError) do
        mutex.synchronize do
          me = Fiber.current
          other = spin { mutex.synchronize { me.schedule(IOError.new); 3.times { snooze }; log << :other } }
          mutex.sleep
        ensure
          log << mutex.owned?
        end
      end
      assert_instance_of IOError, error, kind
      assert_equal [:other, true], log
      other.await
      refute mutex.locked?
    end
  end

  # Several things come while it waits for the lock.
  def test_what_comes_while_it_locks_again_follows
    in_all_places do |kind|
      mutex, log = ::Mutex.new, []
      begin
        mutex.synchronize do
          me = Fiber.current
          spin { mutex.synchronize { snooze; me.schedule(IOError.new("a")); snooze; me.schedule(KeyError.new("b")); snooze } }
          begin
            mutex.sleep(0.0001)
            log << :not_reached
          rescue IOError
            log << :a
          end
          sleep
        ensure
          log << mutex.owned?
        end
      rescue KeyError
        log << :b
      end
      assert_equal [:a, true, :b], log, kind
    end
  end

  # --- ConditionVariable --------------------------------------------------------------------------------------------------

  def test_a_condition_variable_wakes
    in_all_places do |kind|
      mutex, condition, ready = ::Mutex.new, ::ConditionVariable.new, false
      signal = -> { mutex.synchronize { ready = true; condition.signal } }
      result = mutex.synchronize do
        value = beating(signal) { condition.wait(mutex) }
        assert mutex.owned?, kind
        value
      end
      assert ready
      assert_instance_of Integer, result
    end
  end

  def test_a_condition_variable_stops_waiting_in_time
    in_all_places do |kind|
      mutex, condition = ::Mutex.new, ::ConditionVariable.new
      mutex.synchronize do
        assert_nil condition.wait(mutex, 0.001), kind
        assert mutex.owned?
        assert_raises(ArgumentError) { condition.wait(mutex, -1) }
        assert_raises(TypeError) { condition.wait(mutex, '1') }
        assert mutex.owned?
      end
      assert_raises(ThreadError) { condition.wait(mutex) }
      assert_raises(ArgumentError) { condition.wait }
    end
  end

  def test_signals_from_another_thread
    in_all_places do |kind|
      mutex, condition, got = ::Mutex.new, ::ConditionVariable.new, 0
      thread = Thread.new do
        50.times do |i|
          mutex.synchronize { got += 1; condition.signal }
          Thread.pass until got == 0
        end
      end
      mutex.synchronize { 50.times { condition.wait(mutex) while got == 0; got = 0 } }
      thread.join
      assert_equal 0, got, kind
    end
  end

  def test_broadcast_reaches_all_kinds_of_fibers
    mutex, condition, waiting, woken, done = ::Mutex.new, ::ConditionVariable.new, 0, 0, false
    wait = lambda do
      mutex.synchronize { waiting += 1; condition.wait(mutex) until done; woken += 1 }
    end
    spun = Array.new(2) { spin(&wait) }
    thread = Thread.new { spin { snooze }; snooze; wait.call }
    plain = Thread.new(&wait)
    spin { snooze until waiting == 5; mutex.synchronize { done = true; condition.broadcast } }
    wait.call
    [*spun, thread, plain].each { |one| one.is_a?(Thread) ? one.join : one.await }
    assert_equal 5, woken
  end

  # The one that is ended has been struck off the list by the signal.
  def test_a_signal_to_a_cancelled_waiter_goes_to_the_next
    %i[main spun enumerator].each do |kind|
      mutex, condition, second, test = ::Mutex.new, ::ConditionVariable.new, nil, Fiber.current
      assert_raises(IOError) do
        KINDS[kind].call(lambda do
          mutex.synchronize do
            me = Fiber.current
            second = test.spin { mutex.synchronize { condition.wait(mutex) ? :woken : :late } }
            # With the lock in its hands it first breaks the wait off and then signals.
            spin { 3.times { snooze }; mutex.synchronize { me.schedule(IOError.new); snooze; snooze; condition.signal } }
            condition.wait(mutex)
          end
        end)
      end
      assert_equal :woken, second.await, kind
    end
  end

  def test_a_signal_while_a_wait_that_is_over_locks_again_counts
    in_all_places do |kind|
      mutex, condition = ::Mutex.new, ::ConditionVariable.new
      result = mutex.synchronize do
        spin { mutex.synchronize { sleep 0.005; condition.signal; snooze } }
        condition.wait(mutex, 0.0005)
      end
      assert_instance_of Integer, result, kind
    end
  end

  # Anything that can sleep, as in stock Ruby.
  def test_a_condition_variable_takes_what_sleeps
    sleeper = Class.new { def sleep(time) = (Kernel.sleep(time || 50); :slept) }
    in_all_places do |kind|
      condition = ::ConditionVariable.new
      assert_equal :slept, beating(-> { condition.signal }) { condition.wait(sleeper.new) }, kind
    end
    in_all_places do
      condition, lock = ::ConditionVariable.new, Polyphony::Mutex.new
      lock.synchronize { beating(-> { lock.synchronize { condition.signal } }) { condition.wait(lock) } }
    end
  end

  # --- Monitor ----------------------------------------------------------------------------------------------------------------

  def test_a_monitor_is_entered_again_by_its_fiber_alone
    in_all_places do |kind|
      monitor = ::Monitor.new
      monitor.enter
      monitor.synchronize { monitor.mon_enter; monitor.exit }
      assert monitor.mon_owned?, kind
      refute spin { monitor.try_enter }.await
      waiter = spin { monitor.synchronize { monitor.mon_synchronize { :entered } } }
      snooze
      monitor.exit
      assert_equal :entered, waiter.await
      refute monitor.mon_locked?
      assert_raises(ThreadError) { monitor.exit }
    end
  end

  def test_a_monitor_waits_and_the_fiber_that_called_has_it
    in_all_places do |kind|
      hold(::Monitor.new) do |monitor, release|
        assert_nil beating(release) { monitor.enter }
        assert monitor.mon_owned?, kind
        assert monitor.try_enter
        2.times { monitor.exit }
        refute monitor.mon_locked?
      end
      hold(::Monitor.new) do |monitor, release|
        inside = beating(release) { monitor.synchronize { monitor.synchronize { [monitor.mon_owned?, Fiber.current] } } }
        assert_equal [true, Fiber.current], inside
        refute monitor.mon_locked?
      end
    end
  end

  def test_a_cancelled_entry_leaves_the_monitor_to_others
    in_all_places do |kind|
      hold(::Monitor.new) do |monitor, release|
        assert_equal :over, move_on_after(0.001, with_value: :over) { monitor.enter }, kind
        release.call
        assert_equal :free, spin { monitor.synchronize { :free } }.await
      end
    end
  end

  def test_conditions_of_a_monitor
    in_all_places do |kind|
      monitor = ::Monitor.new
      changed, level = monitor.new_cond, 0
      raise_level = -> { 3.times { monitor.synchronize { level += 1; changed.signal }; snooze } }
      monitor.synchronize do
        monitor.synchronize { beating(raise_level) { changed.wait_until { level == 3 } } }
        assert monitor.mon_owned?, kind
        refute changed.wait(0.001)
        assert changed.wait_while { false }.nil?
        monitor.exit
        monitor.enter
      end
      refute monitor.mon_locked?
    end
  end

  def test_objects_that_are_monitors
    in_all_places do |kind|
      list = [].extend(MonitorMixin)
      filled = list.new_cond
      fill = -> { list.synchronize { list << 1; filled.broadcast } }
      beating(fill) { list.mon_synchronize { filled.wait_while { list.empty? } } }
      assert_equal [1], list, kind
      hold(list) { |_, release| beating(release) { list.mon_enter; list.mon_exit } }
    end
  end

  # --- the end ------------------------------------------------------------------------------------------------------------------

  # Ruby has taken the scheduler away when at_exit blocks run.
  def test_locks_in_at_exit
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      mutex, queue = Mutex.new.lock, Queue.new
      first = spin { mutex.synchronize { print 'locked ' } }
      taker = spin { print queue.pop }
      at_exit do
        mutex.unlock
        queue << 'taken '
        first.await
        taker.await
        spin { snooze; queue << 'main' }
        print queue.pop
      end
      snooze
      Process.detach(spawn('true')).join
    RUBY
    assert_equal 'locked taken main', out, err
  end

  def test_a_killed_thread_has_the_lock_again_when_it_is_left
    mutex, log = ::Mutex.new, []
    thread = quiet do
      spin { sleep }
      mutex.synchronize do
        snooze
        mutex.sleep
      ensure
        log << mutex.owned?
      end
    end
    wait_until_waiting(thread)
    mutex.synchronize do
      thread.kill
      thread.join(0.005)
      log << :still
    end
    thread.join
    assert_equal [:still, true], log
    refute mutex.locked?
  end

  # --- threads without fibers ------------------------------------------------------------------------------------------

  def unseen
    Polyphony.const_get(:StockLocks).unseen
  end

  # A thread that has no backend gives the lock up, by +giving+, when a fiber of ours waits for it.
  def given_up_by_a_thread(lock, giving)
    held, taker, before = false, nil, unseen
    thread = Thread.new do
      lock.synchronize do
        held = true
        Thread.pass until taker&.state == :waiting
        giving.call
      end
    end
    wait_until('the thread has the lock') { held }
    taker = spin { lock.synchronize { :taken } }
    assert_equal :taken, taker.await
    assert_equal before, unseen, 'a lock was given up and nobody was told'
    refute thread.__polyphony_backend?
    yield
    thread.join
  end

  def test_fibers_are_told_when_a_thread_waits_for_a_signal
    [nil, patient(20), Rational(patient(20))].each do |limit|
      mutex, condition = ::Mutex.new, ::ConditionVariable.new
      given_up_by_a_thread(mutex, -> { condition.wait(mutex, limit) }) { mutex.synchronize { condition.signal } }
    end
  end

  def test_fibers_are_told_when_a_thread_sleeps_without_its_lock
    mutex, sleeper = ::Mutex.new, nil
    given_up_by_a_thread(mutex, -> { sleeper = Thread.current; mutex.sleep }) { sleeper.wakeup }
  end

  # Those who were not told look after a tenth of a second.
  def test_fibers_are_told_when_a_thread_waits_in_a_monitor
    times = Array.new(5) do
      monitor, begun, taken = ::Monitor.new, nil, nil
      condition = monitor.new_cond
      waits = -> { begun = clock; monitor.synchronize { condition.wait } }
      given_up_by_a_thread(monitor, waits) { taken = clock; monitor.synchronize { condition.signal } }
      taken - begun
    end
    assert_operator times.min, :<, 0.05
  end

  def test_a_thread_that_may_not_sleep_keeps_its_lock
    mutex = ::Mutex.new
    hold(mutex) do |_, release|
      taker = waiting { mutex.synchronize { :taken } }
      thread = quiet { assert_raises(ThreadError) { mutex.sleep(1) }; mutex.sleep('soon') }
      assert_raises(TypeError) { thread.join }
      assert_equal :waiting, taker.state
      release.call
      assert_equal :taken, taker.await
    end
  end
end
