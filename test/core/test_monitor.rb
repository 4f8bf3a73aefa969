# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Monitor and what is built on it: entered again and again, with conditions, as a mixin.
class TestMonitor < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    super
    @monitor = Polyphony::Monitor.new
  end

  def test_it_is_a_mutex
    assert_kind_of Polyphony::Mutex, @monitor
    @monitor.enter
    assert_same Fiber.current, @monitor.locked?
    assert @monitor.owned?
    @monitor.exit
  end

  # Of each kind, every name there is.
  ENTER = %i[enter mon_enter lock try_enter try_mon_enter mon_try_enter try_lock].freeze
  LEAVE = %i[exit mon_exit unlock].freeze

  def test_it_is_free_when_it_has_been_left_as_often_as_it_was_entered
    ENTER.each { |name| assert @monitor.public_send(name), name }
    (ENTER.size - 1).times { |i| @monitor.public_send(LEAVE[i % 3]) }
    assert @monitor.mon_owned?
    assert_equal false, spin { @monitor.try_enter }.await
    @monitor.exit
    assert_equal false, @monitor.mon_locked?
    assert_equal true, spin { @monitor.try_enter.tap { @monitor.exit } }.await
  end

  def test_try_enter_is_false_when_another_fiber_is_in_it
    fiber = waiting { @monitor.synchronize { Polyphony.backend_wait_event(true) } }
    %i[try_enter try_mon_enter mon_try_enter try_lock].each { |name| assert_equal false, @monitor.public_send(name) }
    assert_equal [true, false], [@monitor.mon_locked?, @monitor.mon_owned?]
    fiber.schedule
    fiber.await
  end

  def test_synchronize_nests_and_counts
    result = @monitor.synchronize do
      @monitor.mon_synchronize { @monitor.enter; :inner }.tap do
        assert @monitor.owned?
        @monitor.exit
      end
    end
    assert_equal :inner, result
    assert_nil @monitor.locked?
  end

  def test_an_exception_leaves_every_level
    assert_raises(Boom) { @monitor.synchronize { @monitor.synchronize { raise Boom } } }
    assert_nil @monitor.locked?
  end

  def test_leaving_what_one_is_not_in_is_an_error
    LEAVE.each { |name| assert_raises(ThreadError) { @monitor.public_send(name) } }
    assert_raises(ThreadError) { @monitor.mon_check_owner }
    assert_nil @monitor.synchronize { @monitor.mon_check_owner }
    fiber = waiting { @monitor.synchronize { Polyphony.backend_wait_event(true) } }
    assert_includes assert_raises(ThreadError) { @monitor.exit }.message, fiber.inspect
    fiber.schedule
    fiber.await
    assert_raises(ArgumentError) { @monitor.synchronize }
  end

  def test_a_holder_that_ends_leaves_all_its_levels
    fiber = waiting { 3.times { @monitor.enter }; Polyphony.backend_wait_event(true) }
    second = waiting { @monitor.synchronize { :mine } }
    fiber.schedule
    assert_equal :mine, second.await
    assert_nil @monitor.locked?
  end

  def test_sleep_gives_up_all_levels_and_takes_them_again
    @monitor.enter
    @monitor.enter
    other = spin { @monitor.try_enter.tap { @monitor.exit } }
    @monitor.sleep(0.001)
    assert_equal true, other.await
    2.times { @monitor.exit }
    assert_nil @monitor.locked?
  end

  def test_conditional_release_tells_how_often_it_was_entered
    3.times { @monitor.enter }
    assert_equal 3, @monitor.conditional_release
    assert_nil @monitor.locked?
    @monitor.conditional_reacquire(3)
    3.times { @monitor.exit }
    assert_nil @monitor.locked?
  end

  # --- conditions --------------------------------------------------------------------------------------

  def test_a_condition_waits_without_the_monitor_however_deep_one_is_in_it
    cond = @monitor.new_cond
    fiber = waiting do
      @monitor.synchronize do
        @monitor.synchronize do
          cond.wait.tap { assert @monitor.owned? }
        end.tap { assert @monitor.owned? }
      end
    end
    assert_nil @monitor.locked?
    assert_same cond, @monitor.synchronize { cond.signal }
    assert_equal true, fiber.await
    assert_nil @monitor.locked?
  end

  def test_a_condition_with_a_timeout
    cond = @monitor.new_cond
    assert_equal false, @monitor.synchronize { cond.wait(0.001) }
    assert_nil @monitor.locked?
  end

  def test_wait_while_and_wait_until_ask_again
    cond = @monitor.new_cond
    value = 0
    up_to_two = waiting { @monitor.synchronize { cond.wait_while { value < 2 }; value } }
    up_to_four = waiting { @monitor.synchronize { cond.wait_until { value >= 4 }; value } }
    4.times do
      @monitor.synchronize { value += 1; cond.broadcast }
      4.times { snooze }
    end
    assert_equal [2, 4], [up_to_two.await, up_to_four.await]
  end

  def test_a_signal_wakes_one_and_a_broadcast_all
    cond = @monitor.new_cond
    log = []
    fibers = Array.new(4) { |i| waiting { @monitor.synchronize { cond.wait; log << i } } }
    @monitor.synchronize { cond.signal }
    4.times { snooze }
    assert_equal [0], log
    assert_same cond, @monitor.synchronize { cond.broadcast }
    Fiber.await(fibers)
    assert_equal [0, 1, 2, 3], log
  end

  def test_a_condition_outside_its_monitor_is_an_error
    cond = @monitor.new_cond
    %i[wait signal broadcast].each { |name| assert_raises(ThreadError) { cond.public_send(name) } }
  end

  def test_wait_for_cond_takes_any_condition_variable
    cond = Polyphony::ConditionVariable.new
    fiber = waiting { @monitor.synchronize { @monitor.wait_for_cond(cond, nil) } }
    cond.signal
    assert_equal true, fiber.await
    assert_equal false, @monitor.synchronize { @monitor.wait_for_cond(cond, 0.001) }
  end

  # --- the mixin ---------------------------------------------------------------------------------------

  # A buffer of one, as in the books.
  class Buffer
    include Polyphony::MonitorMixin

    def initialize(first = nil)
      super()
      @item = first
      @changed = new_cond
    end

    def put(item)
      synchronize do
        @changed.wait_until { @item.nil? }
        @item = item
        @changed.broadcast
      end
    end

    def take
      mon_synchronize do
        @changed.wait_while { @item.nil? }
        item, @item = @item, nil
        @changed.broadcast
        item
      end
    end
  end

  def test_the_mixin_makes_an_object_a_monitor
    buffer = Buffer.new(0)
    taken = spin { Array.new(4) { buffer.take } }
    (1..3).each { |i| buffer.put(i) }
    assert_equal [0, 1, 2, 3], taken.await
    assert_equal [false, false], [buffer.mon_locked?, buffer.mon_owned?]
  end

  def test_the_mixin_between_threads
    buffer = Buffer.new
    threads = Array.new(2) { |t| Thread.new { 100.times { |i| buffer.put([t, i]) } } }
    taken = Array.new(200) { buffer.take }
    threads.each(&:join)
    assert_equal [[0, 100], [1, 100]], taken.map(&:first).tally.sort
    2.times { |t| assert_equal (0...100).to_a, taken.select { |a,| a == t }.map(&:last) }
  end

  def test_an_object_may_be_extended
    array = [].extend(Polyphony::MonitorMixin)
    array.mon_enter
    array.mon_enter
    assert_equal false, spin { array.mon_try_enter }.await
    2.times { array.mon_exit }
    assert_equal false, array.mon_locked?
    assert_raises(ThreadError) { array.mon_exit }
    assert_raises(ThreadError) { array.__send__(:mon_initialize) }
  end

  # It may ask for a condition before super.
  class Early
    include Polyphony::MonitorMixin

    attr_reader :cond

    def initialize
      @cond = new_cond
      super
    end
  end

  def test_a_condition_may_be_made_before_the_rest
    early = Early.new
    fiber = waiting { early.synchronize { early.cond.wait } }
    early.synchronize { early.cond.signal }
    assert_equal true, fiber.await
  end

  # Ruby's own mixin asks its @mon_data for everything but conditions.
  class Stock
    include ::MonitorMixin

    def initialize
      super
      @mon_data = Polyphony::Monitor.new
    end

    def new_cond
      @mon_data.new_cond
    end
  end

  def test_rubys_own_mixin_works_with_a_polyphony_monitor
    object = Stock.new
    cond = object.new_cond
    fiber = waiting { object.synchronize { object.mon_enter; cond.wait.tap { object.mon_exit } } }
    assert_equal true, object.mon_try_enter
    cond.signal
    object.mon_exit
    assert_equal true, fiber.await
    assert_equal false, object.mon_locked?
  end

  def test_rubys_own_classes_are_left_alone
    assert_equal false, ::Monitor.new.is_a?(Polyphony::Mutex)
    assert_kind_of ::Monitor, [].extend(::MonitorMixin).instance_variable_get(:@mon_data)
  end
end
