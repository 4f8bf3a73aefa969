# frozen_string_literal: true

require_relative '../test_helper'

# The running fiber is known by the stack it stands on, once it has been seen there.
class TestWhoRuns < Polyphony::TestCase
  on_every_driver

  # What the library takes for the running fiber: a message is received by whoever it is sent to.
  def assert_known(fiber = Fiber.current)
    fiber << fiber
    assert_same fiber, receive
  end

  def at_depth(depth, &block)
    depth.zero? ? block.call : at_depth(depth - 1, &block)
  end

  def test_at_any_depth_a_fiber_is_itself
    fibers = Array.new(3) do
      spin { [0, 30, 3, 60, 1].each { |depth| at_depth(depth) { snooze; assert_known } } }
    end
    [5, 0, 40].each { |depth| at_depth(depth) { snooze; assert_known } }
    Fiber.await(*fibers)
  end

  def test_generators_between_are_themselves
    fiber = spin do
      snooze
      generator = Enumerator.new { |yielder| 3.times { assert_known; snooze; yielder << Fiber.current } }
      inner = Array.new(3) { generator.next.tap { assert_known } }
      assert_equal 1, inner.uniq.size
      refute_same Fiber.current, inner.first
    end
    fiber.await
  end

  # Ruby gives the stacks of fibers that have ended to others.
  def test_on_the_stack_of_one_that_has_ended_another_is_itself
    3.times do
      50.times { spin { at_depth(20) { snooze; assert_known } }.await }
      GC.start
      raw = Array.new(50) { Fiber.new { at_depth(10) { assert_known; snooze; assert_known } } }
      raw.each(&:resume)
      spin { at_depth(5) { snooze; assert_known } }.await
    end
  end

  def test_fibers_of_threads_on_the_native_thread_of_one_that_has_ended_are_themselves
    5.times do
      Thread.new { assert_known; 5.times { snooze }; spin { at_depth(10) { snooze; assert_known } }.await }.join
      Thread.new { Fiber.new { at_depth(10) { assert_known } }.resume; assert_known }.join
    end
  end

  # What was registered before the library ends after it, and gets a backend of its own.
  def test_at_exit_a_new_backend_learns_which_fiber_is_the_main_one
    out, err, status = run_ruby(<<~'RUBY')
      at_exit do
        Polyphony::Event.new.await
      rescue Polyphony::Deadlock
        puts 'told'
      end
      require 'polyphony'
      def deep(depth) = depth.zero? ? snooze : deep(depth - 1)
      spin { 50.times { snooze } }
      [100, 0].each { |depth| deep(depth) }
    RUBY
    assert_equal "told\n", out, err
    assert_predicate status, :success?
  end

  def test_in_a_forked_child_the_fiber_that_forked_is_itself
    spin do
      at_depth(10) { snooze }
      pid = Polyphony.fork { at_depth(12) { snooze; assert_known; spin { assert_known }.await }; exit!(0) }
      assert_predicate ::Process.wait2(pid).last, :success?
      assert_known
    end.await
  end
end
