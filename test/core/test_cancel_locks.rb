# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Locks, conditions, semaphores and channels, ended at each of their wait points: nobody is left
# waiting, nothing stays locked, no signal and no place is lost.
class TestCancelLocks < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  def nothing_pending
    stats = Thread.current.backend.stats
    assert_equal [0, 0], stats.values_at(:pending_ops, :pending_timers)
  end

  def assert_free(lock)
    assert_nil lock.locked?
    assert_equal [], lock.holders
    assert_equal :works, lock.synchronize { :works }
  end

  # More wait points than the first run and the lock itself.
  def assert_visited(points)
    assert_operator points, :>=, 4 * 3
  end

  def test_a_mutex
    points = cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      inside = 0
      alone = true
      section = proc do
        lock.synchronize do
          alone &&= (inside += 1) == 1
          snooze
        ensure
          inside -= 1
        end
      end
      run.beside(&section)
      run.scenario { 3.times(&section) }
      2.times { run.beside { 2.times(&section) } }
      run.check do
        assert alone, 'two were inside'
        assert_free lock
      end
    end
    assert_visited points
  end

  # The scenario begins behind two others, so that it waits in the middle of the line.
  def test_a_mutex_keeps_its_order
    cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      order = []
      take = ->(name) { lock.lock; order << name; snooze; lock.unlock if lock.owned? }
      run.scenario { snooze; snooze; take.call(:scenario) }
      run.beside { take.call(:first) }
      run.beside { snooze; take.call(:second) }
      run.beside { 3.times { snooze }; take.call(:last) }
      run.check do |finished|
        assert_equal %i[first second last], order - [:scenario]
        assert_equal :scenario, order[2] if finished
        assert_free lock
      end
    end
  end

  # It is ended without unlocking: those who wait get the lock all the same.
  def test_a_mutex_whose_holder_is_ended
    cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      got = []
      run.scenario { lock.lock; 3.times { snooze } }
      run.beside { lock.synchronize { got << 1; snooze } }
      run.beside { snooze; lock.synchronize { got << 2 } }
      run.check do
        assert_equal [1, 2], got
        assert_free lock
      end
    end
  end

  def test_a_mutex_that_sleeps_is_held_whatever_ends_the_sleep
    points = cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      owned = []
      run.scenario do
        lock.synchronize do
          lock.sleep(0.0002)
          snooze
        ensure
          owned << lock.owned?
        end
      end
      run.beside { 3.times { lock.synchronize { 2.times { snooze } }; snooze } }
      run.check do
        assert_equal [true], owned.uniq unless owned.empty?
        assert_free lock
        nothing_pending
      end
    end
    assert_visited points
  end

  def test_a_monitor
    points = cancel_everywhere do |run|
      monitor = Polyphony::Monitor.new
      run.beside { monitor.synchronize { 2.times { snooze } } }
      run.scenario do
        monitor.synchronize do
          snooze
          monitor.synchronize { snooze }
          monitor.enter
          begin
            snooze
          ensure
            monitor.exit
          end
        end
      end
      run.beside { 2.times { monitor.synchronize { snooze } } }
      run.check { assert_free monitor }
    end
    assert_visited points
  end

  def test_a_condition_of_a_monitor_gives_back_every_level
    points = cancel_everywhere do |run|
      monitor = Polyphony::Monitor.new
      cond = monitor.new_cond
      ready = false
      owned = []
      run.scenario do
        monitor.synchronize do
          monitor.synchronize { cond.wait_until { ready } }
        ensure
          owned << monitor.owned?
        end
      end
      run.beside { 3.times { snooze }; monitor.synchronize { snooze; ready = true; cond.signal; snooze } }
      run.check do
        assert_equal [true], owned.uniq unless owned.empty?
        assert_free monitor
      end
    end
    assert_visited points
  end

  # Two wait and there is one signal. If the scenario is ended before it could act on the signal,
  # the other one gets it.
  def test_a_condition_loses_no_signal
    points = cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      cond = Polyphony::ConditionVariable.new
      got = []
      owned = []
      wait = lambda do |name|
        lock.synchronize do
          cond.wait(lock)
          got << name
        ensure
          owned << lock.owned?
        end
      end
      run.scenario { wait.call(:scenario) }
      run.beside { wait.call(:other) }
      run.beside do
        2.times { snooze }
        lock.synchronize { cond.signal; 2.times { snooze } } # it has to wait for the lock, too
        snooze until got.any?
        cond.broadcast
      end
      run.check do |finished|
        assert_includes got, :other
        assert_equal %i[scenario other], got if finished
        assert_equal [true], owned.uniq
        assert_free lock
      end
    end
    assert_visited points
  end

  def test_a_condition_with_a_timeout
    cancel_everywhere do |run|
      lock = Polyphony::Mutex.new
      cond = Polyphony::ConditionVariable.new
      run.scenario { lock.synchronize { cond.wait(lock, 0.0002); cond.wait(lock, 100) } }
      run.beside { 10.times { lock.synchronize { snooze }; snooze }; sleep 0.001; cond.broadcast }
      run.check do
        assert_free lock
        nothing_pending
      end
    end
  end

  def test_a_semaphore
    points = cancel_everywhere do |run|
      gate = Polyphony::Semaphore.new(2)
      inside = most = done = 0
      section = proc do
        gate.synchronize do
          most = [most, inside += 1].max
          snooze
          done += 1
        ensure
          inside -= 1
        end
      end
      2.times { run.beside(&section) }
      run.scenario { 3.times(&section) }
      2.times { run.beside { 2.times(&section) } }
      run.check do |finished|
        assert_equal [0, 2, []], [inside, gate.available, gate.holders]
        assert_operator most, :<=, 2
        assert_equal 9, done if finished
        assert_operator done, :>=, 6
      end
    end
    assert_visited points
  end

  def test_a_semaphore_with_a_timeout
    cancel_everywhere do |run|
      gate = Polyphony::Semaphore.new(1)
      run.scenario do
        2.times do
          gate.release if gate.acquire(timeout: 0.0002)
          gate.release if gate.acquire(timeout: 100)
        end
      end
      run.beside { 4.times { gate.synchronize { 3.times { snooze } } } }
      run.check do
        assert_equal 1, gate.available
        nothing_pending
      end
    end
  end

  def test_a_channel_loses_no_item
    points = cancel_everywhere do |run|
      channel = Polyphony::Channel.new
      taken = []
      run.scenario { channel.receive_loop { |item| taken << item } }
      run.beside { 3.times { |i| channel << i; 2.times { snooze } }; channel.close }
      run.check do
        assert_equal [0, 1, 2], taken + channel.shift_all
        assert_equal 0, channel.num_waiting
      end
    end
    assert_visited points
  end
end
