# frozen_string_literal: true

require_relative '../support/adapter_case'
require 'polyphony/testing'

# connection_pool in fibers.
class TestConnectionPool < Polyphony::AdapterCase
  include Polyphony::Testing::CancelEverywhere
  on_every_driver
  gems 'polyphony/adapters/connection_pool'

  def setup
    super
    @made = 0
  end

  def pool(size, timeout = 5)
    ConnectionPool.new(size: size, timeout: timeout) { @made += 1 }
  end

  test_in_both :waiting_for_a_connection_yields do
    mine = pool(1)
    held = Polyphony::Event.new
    holder = spin { mine.with { held.await } }
    snooze
    assert_equal 1, assert_yields(-> { held.signal }) { mine.with { |connection| connection } }
    holder.await
  end

  def test_fibers_are_served_in_order
    heavy
    mine = pool(3)
    order = []
    Fiber.map(1..200) { |i| mine.with { order << i; sleep 0.0001 } }
    assert_equal (1..200).to_a, order
    assert_equal 3, @made
  end

  def test_who_gives_back_and_takes_again_comes_last
    mine = pool(1)
    order = []
    Fiber.map(%i[a b c]) { |name| 3.times { mine.with { order << name; snooze } } }
    assert_equal %i[a b c a b c a b c], order
  end

  def test_a_fiber_has_one_connection_at_a_time
    mine = pool(2)
    mine.with { |outer| mine.with { |inner| assert_same outer, inner } }
    assert_equal [1, 2], mine.with { |one| [one, spin { mine.with { |other| other } }.await] }
  end

  def test_the_limit_is_for_the_whole_wait
    mine = pool(1, 0.05)
    holder = spin { mine.with { sleep } }
    snooze
    errors = Fiber.map(1..3) { mine.with { flunk } rescue $! }
    assert_equal [ConnectionPool::TimeoutError] * 3, errors.map(&:class)
    assert_match(%r{\AWaited 0.05 sec, 0/1 available}, errors.last.message)
    assert_raises(ConnectionPool::TimeoutError) { mine.checkout(timeout: 0.01) }
    holder.stop
    holder.await
    assert_equal 1, mine.with { |connection| connection }
  end

  def test_a_cancelled_fiber_leaves_the_queue_and_its_connection
    mine = pool(1)
    holder = spin { mine.with { sleep } }
    snooze
    waiting = Array.new(3) { spin { mine.with { |connection| connection } } }
    snooze
    assert_nil move_on_after(0.005) { mine.with { flunk } }
    [waiting[1], holder].each(&:stop)
    assert_equal [1, 1], [waiting[0], waiting[2]].map(&:await)
    assert_equal 1, mine.available
  end

  def test_who_waits_and_who_has_one_can_be_cancelled_anywhere
    points = cancel_everywhere do |run|
      mine = pool(1)
      run.beside { mine.with { 2.times { snooze } } }
      run.scenario { 2.times { mine.with { snooze } } }
      run.beside { mine.with { snooze } }
      run.check { assert_equal [1, 1], [mine.available, mine.with { 1 }] }
    end
    assert_operator points, :>=, 4
  end

  def test_threads_and_their_fibers_share_a_pool
    heavy
    mine = pool(2)
    used = Hash.new(0)
    most = 0
    threads = Array.new(3) do
      Thread.new do
        Fiber.map(1..20) { mine.with { |connection| most = [most, used[connection] += 1].max; sleep 0.0002; used[connection] -= 1 } }
      end
    end
    threads.each(&:join)
    assert_equal 1, most
    assert_operator @made, :<=, 2
  end

  def test_a_forked_child_does_not_wait_for_the_turn_of_a_fiber_of_its_parent
    mine = pool(1)
    waiter = nil
    status = mine.with do
      waiter = spin { mine.with { |connection| connection } }
      snooze
      ::Process.wait2(::Process.fork { exit!(mine.with { 7 }) }).last
    end
    assert_equal 7, status.exitstatus
    assert_equal 1, waiter.await
  end

  def test_a_forked_child_has_as_many_as_its_parent_whoever_has_them_there
    mine = pool(2, 0.2)
    holders = Array.new(2) { spin { mine.with { sleep } } }
    snooze
    status = ::Process.wait2(::Process.fork do
      both = mine.with { spin { mine.with { 3 } }.await + 4 } # one each
      exit!(both)
    end).last
    assert_equal 7, status.exitstatus
    holders.each(&:stop).each(&:await)
    assert_equal 1, mine.with { 1 }
  end

  def test_500_fibers_share_two
    mine = pool(2)
    inside = most = 0
    fibers = Array.new(500) { |i| spin { mine.with { most = [most, inside += 1].max; snooze; inside -= 1; i } } }
    assert_equal Array.new(500) { |i| i }, Fiber.await(*fibers)
    assert_equal [2, 2], [most, @made]
  end

  # checkout without checkin: gone with the fiber, as it would be with a thread.
  def test_a_fiber_that_ends_while_it_holds_one
    mine = pool(2)
    spin { mine.checkout }.await
    assert_equal 1, mine.available
    mine.with { |left| assert_equal 2, left }
    mine.checkout
    mine.checkin
    assert_raises(ConnectionPool::Error) { mine.checkin }
  end

  def test_a_wrapper
    wrapped = ConnectionPool.wrap(size: 1) { +'text' }
    assert_equal Array.new(20) { 4 }, Fiber.await(*Array.new(20) { spin { wrapped.size } })
  end
end
