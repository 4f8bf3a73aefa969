# frozen_string_literal: true

require_relative '../test_helper'

# What adapters and debuggers need of fibers.
class TestFiberOdds < Polyphony::TestCase
  on_every_driver

  class BrokenStop < Polyphony::MoveOn
    def value
      raise IOError, 'no value'
    end
  end

  class BrokenError < StandardError
    def source_fiber
      raise IOError, 'no source'
    end
  end

  def test_a_fiber_ends_whatever_the_methods_of_its_exception_do
    bodies = [proc { Fiber.current.schedule(BrokenStop.new) && snooze },
              proc { Fiber.current.raise(BrokenError) && :over }]
    awaiters = bodies.map { |body| spin { spin(&body).await rescue $!.message } }
    assert_equal ['no value', :over], awaiters.map(&:await)
  end

  def test_an_error_of_a_child_of_a_fiber_that_cannot_be_switched_to_goes_to_main
    ended = Fiber.new { spin { snooze; raise IOError, 'of one that has ended' } }
    yielded = Fiber.new { spin { snooze; raise IOError, 'of one that has yielded' }; Fiber.yield }
    [ended, yielded].each do |fiber|
      fiber.resume
      assert_match(/of one that has/, assert_raises(IOError) { 5.times { snooze } }.message)
    end
  end

  def test_an_out_of_band_fiber_runs_first_and_has_no_parent
    log = []
    spin { log << :other }
    fiber = Fiber.schedule_priority_oob_fiber { log << :oob }
    assert_equal [:oob, true, nil], [fiber.tag, fiber.oob, fiber.parent]
    fiber.await
    snooze
    assert_equal %i[oob other], log
  end

  def test_an_error_out_of_band_goes_to_the_main_fiber
    Fiber.schedule_priority_oob_fiber { raise IOError, 'in a handler' }
    assert_raises(IOError) { sleep 5 }
    assert_match(/block/, assert_raises(ArgumentError) { Fiber.schedule_priority_oob_fiber }.message)
  end

  def test_a_parked_fiber_stays_off_the_queue_and_loses_nothing
    log = []
    fiber = spin { log << suspend; log << suspend }
    snooze
    fiber.schedule(:first)
    fiber.__park__
    assert fiber.__parked__?
    snooze
    assert_equal [], log
    fiber.schedule(:second)
    fiber.__unpark__
    refute fiber.__parked__?
    snooze
    assert_equal [:second], log
    fiber.__park__
    fiber.raise(IOError)
    fiber.schedule(:plain)
    snooze
    assert_equal :waiting, fiber.state
    fiber.__unpark__
    assert_raises(IOError) { fiber.await }
  end

  def test_auto_watcher_is_an_event_of_the_fiber
    fiber = spin { Fiber.current.auto_watcher.await }
    assert_same fiber.auto_watcher, fiber.auto_watcher
    fiber.auto_watcher.signal(:woken)
    assert_equal :woken, fiber.await
  end

  def test_safe_transfer_raises_what_comes_back
    main = Fiber.current
    other = Fiber.new { |value| main.transfer(value == 1 ? :ok : IOError.new('back')) }
    assert_equal :ok, other.safe_transfer(1)
    other = Fiber.new { main.transfer(IOError.new('back')) }
    assert_raises(IOError) { other.safe_transfer }
  end

  def test_a_raw_fiber_can_be_set_up
    raw = Fiber.new { 1 }
    assert_nil raw.thread
    assert_same raw, raw.setup_raw
    assert_equal [Thread.current, nil], [raw.thread, raw.parent]
    assert_match(/is not raw/, assert_raises(FiberError) { spin { 1 }.setup_raw }.message)
  end

  def test_a_fiber_stays_in_its_thread
    raw = Fiber.new { 1 }
    raw.thread = Thread.current
    assert_equal Thread.current, raw.thread
    ready, done = Polyphony::Queue.new, Polyphony::Queue.new
    thread = Thread.new { snooze; ready << 1; done.shift }
    ready.shift
    assert_match(/stays in its thread/, assert_raises(FiberError) { raw.thread = thread }.message)
    assert_match(/Thread, got 5/, assert_raises(TypeError) { raw.thread = 5 }.message)
    done << 1
    thread.join
  end

  def test_setup_main_fiber
    out, = run_ruby(<<~RUBY)
      require 'polyphony'
      Thread.new do
        spin { sleep }
        fiber = Fiber.new { Fiber.current.setup_main_fiber; p Fiber.current.main?, Fiber.current.tag, Fiber.current.children }
        snooze
        fiber.resume
      end.join
    RUBY
    assert_equal "true\n:main\n[]\n", out
  end
end
