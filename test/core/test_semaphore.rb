# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Semaphore: never more inside than the limit, in order of arrival, and no place is lost.
class TestSemaphore < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    super
    @gate = Polyphony::Semaphore.new(2)
  end

  def test_a_semaphore_is_not_copied
    assert_raises(NoMethodError) { Polyphony::Semaphore.new(2).dup }
  end

  def test_places_are_taken_and_given_back
    assert_equal [2, 2], [@gate.limit, @gate.available]
    assert_equal true, @gate.acquire
    assert_equal true, @gate.try_acquire
    assert_equal 0, @gate.available
    assert_equal false, @gate.try_acquire
    assert_same @gate, @gate.release
    assert_equal 1, @gate.available
    @gate.release
    assert_equal 2, @gate.available
  end

  def test_synchronize_lets_so_many_in_at_once
    inside = most = 0
    fibers = Array.new(7) do |i|
      spin do
        @gate.synchronize do
          most = [most, inside += 1].max
          2.times { snooze }
          inside -= 1
          i
        end
      end
    end
    assert_equal (0...7).to_a, Fiber.await(fibers)
    assert_equal [2, 2], [most, @gate.available]
  end

  def test_synchronize_gives_the_place_back_after_an_exception_and_a_break
    assert_raises(Boom) { @gate.synchronize { raise Boom } }
    assert_equal 1, (@gate.synchronize { break 1 })
    assert_equal 2, @gate.available
  end

  def test_a_fiber_may_take_several_places
    @gate.synchronize { @gate.synchronize { assert_equal 0, @gate.available } }
    assert_equal 2, @gate.available
  end

  def test_those_who_wait_get_in_in_order_of_arrival
    order = []
    2.times { @gate.acquire }
    fibers = Array.new(4) { |i| waiting { @gate.acquire; order << i } }
    2.times { @gate.release }
    assert_equal 0, @gate.available, 'the places are for those who were woken'
    assert_equal false, @gate.try_acquire
    Fiber.await(fibers.first(2))
    2.times { @gate.release }
    Fiber.await(fibers)
    assert_equal [0, 1, 2, 3], order
  end

  def test_a_newcomer_lets_those_in_first_who_were_there_before
    [{}, { timeout: 0 }].each do |options|
      order = []
      2.times { @gate.acquire }
      fiber = waiting { @gate.acquire; order << :first }
      2.times { @gate.release }
      assert @gate.acquire(**options)
      order << :newcomer
      fiber.await
      assert_equal %i[first newcomer], order
      2.times { @gate.release }
      assert_equal 2, @gate.available
    end
  end

  def test_a_newcomer_that_is_stopped_while_others_go_first_leaves_its_place
    2.times { @gate.acquire }
    fibers = Array.new(2) { waiting { @gate.synchronize { snooze } } }
    2.times { @gate.release }
    Fiber.await(fibers)
    2.times { @gate.acquire }
    first = waiting { @gate.acquire }
    late = spin { @gate.acquire }
    2.times { @gate.release }
    snooze
    late.stop
    Fiber.await(first, late)
    assert_equal 1, @gate.available
  end

  def test_a_place_may_be_given_back_by_another_fiber
    2.times { @gate.acquire }
    fiber = waiting { @gate.acquire }
    spin { @gate.release }.await
    assert_equal true, fiber.await
  end

  # --- with a timeout ----------------------------------------------------------------------------------

  def test_acquire_with_a_timeout_is_false_when_it_passes
    2.times { @gate.acquire }
    [0.001, 0, -1].each { |timeout| assert_equal false, @gate.acquire(timeout: timeout) }
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
    @gate.release
    assert_equal 1, @gate.available
  end

  def test_acquire_with_a_timeout_is_true_when_there_is_a_place_in_time
    assert_equal true, @gate.acquire(timeout: 0)
    assert_equal true, @gate.acquire(timeout: nil)
    fiber = waiting { @gate.acquire(timeout: 100) }
    fiber.schedule(:nonsense)
    2.times { snooze }
    assert_equal :waiting, fiber.state
    @gate.release
    assert_equal true, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  # --- who has them ------------------------------------------------------------------------------------

  def test_holders_tell_who_took_a_place_since_when
    fiber = waiting { @gate.synchronize { Polyphony.backend_wait_event(true) } }
    @gate.acquire
    assert_equal [fiber, Fiber.current], @gate.holders.map(&:first)
    @gate.holders.each { |_, since| assert_in_delta clock, since, patient(5) }
    fiber.schedule
    fiber.await
    assert_equal [Fiber.current], @gate.holders.map(&:first)
    @gate.release
    assert_equal [], @gate.holders
  end

  def test_many_places
    gate = Polyphony::Semaphore.new(1000)
    1000.times { assert gate.try_acquire }
    assert_equal [false, 1000], [gate.try_acquire, gate.holders.size]
    1000.times { gate.release }
    assert_equal 1000, gate.available
  end

  # --- errors of use -----------------------------------------------------------------------------------

  def test_a_limit_must_be_positive
    [0, -1].each do |limit|
      error = assert_raises(ArgumentError) { Polyphony::Semaphore.new(limit) }
      assert_equal "limit must be positive, got #{limit}", error.message
    end
    assert_raises(TypeError) { Polyphony::Semaphore.new('2') }
    assert_raises(ArgumentError) { Polyphony::Semaphore.new }
  end

  def test_giving_back_more_than_was_taken_is_an_error
    @gate.acquire
    @gate.release
    error = assert_raises(ThreadError) { @gate.release }
    assert_match(/all 2 places/, error.message)
    assert_equal 2, @gate.available
  end

  def test_wrong_arguments_are_refused
    assert_raises(ArgumentError) { @gate.acquire(1) }
    assert_raises(ArgumentError) { @gate.acquire(time: 1) }
    assert_raises(TypeError) { @gate.acquire(timeout: '1') }
    assert_raises(ArgumentError) { @gate.synchronize }
    assert_equal 2, @gate.available
  end

  # --- cancelling --------------------------------------------------------------------------------------

  def test_a_fiber_that_is_cancelled_when_its_turn_has_come_leaves_the_place_to_the_next
    2.times { @gate.acquire }
    fibers = Array.new(3) { waiting { @gate.acquire } }
    @gate.release
    fibers[0].stop
    fibers[1].stop
    assert_equal true, fibers[2].await
    2.times { @gate.release }
    assert_equal 2, @gate.available
  end

  # --- threads -----------------------------------------------------------------------------------------

  def test_threads_share_the_places
    inside = most = done = 0
    threads = Array.new(4) do |i|
      Thread.new do
        fibers = Array.new(3) do
          spin do
            40.times do
              move_on_after(i.zero? ? 0.0002 : nil) do
                @gate.synchronize do
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
    assert_equal [0, 2], [inside, @gate.available]
    assert_operator most, :<=, 2
    assert_operator done, :>=, 3 * 3 * 40
    assert_equal [], @gate.holders
  end

  def test_a_thread_that_waits_is_woken_by_another
    2.times { @gate.acquire }
    fiber = nil
    thread = Thread.new { fiber = Fiber.current; @gate.acquire }
    sleep 0.001 until fiber&.__wait_reason
    @gate.release
    assert_equal true, thread.value
  end

  def test_a_semaphore_that_nobody_leaves_is_a_deadlock
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      gate = Polyphony::Semaphore.new(1)
      gate.acquire
      begin
        gate.acquire
      rescue Polyphony::Deadlock => e
        puts e.message[/waits for a place in a semaphore/]
      end
    RUBY
    assert status.success?, err
    assert_equal "waits for a place in a semaphore\n", out
  end
end
