# frozen_string_literal: true

require_relative '../test_helper'

# What would take seconds in real time, or depend on them. Not among the tests of core: the virtual clock never goes back, and some of those
# compare times with the real one.
class TestInVirtualTime < Polyphony::TestCase
  on_every_driver

  def test_sleepers_wake_in_the_order_of_their_deadlines
    log = []
    Polyphony::Testing.virtual_clock do
      [5, 1, 4, 2, 3].each { |n| spin { sleep n * 0.002; log << n } }
      Fiber.current.await_all_children
    end
    assert_equal [1, 2, 3, 4, 5], log
  end

  def test_a_thousand_sleepers_wake_in_the_order_of_their_deadlines
    random = Random.new(7)
    durations = Array.new(1000) { random.rand * 0.2 }
    woken = []
    Polyphony::Testing.virtual_clock do
      durations.each { |duration| spin { sleep duration; woken << duration } }
      Fiber.current.await_all_children
    end
    assert_equal durations.sort, woken
  end

  def test_children_and_grandchildren_inherit_a_deadline
    ended = []
    fibers = []
    Polyphony::Testing.virtual_clock do
      assert_raises(Polyphony::DeadlineExceeded) do
        deadline(10) do
          fibers << spin do
            fibers << spin { sleep 5000 }
            sleep 5000
          ensure
            ended << Polyphony.deadline
          end
          sleep 5000
        end
      end
      fibers.each { |fiber| assert_raises(Polyphony::DeadlineExceeded) { fiber.await } }
    end
    assert_equal 1, ended.compact.size
    5.times { snooze } # nothing is left that could be raised here
  end

  def test_reset_starts_the_period_again
    Polyphony::Testing.virtual_clock do |clock|
      move_on_after(4) do |scope|
        5.times { sleep 3; scope.reset }
        sleep
      end
      assert_equal 19, clock.elapsed
    end
  end

  def test_a_limit_that_strikes_while_a_stopped_fiber_cleans_up_does_not_make_it_go_on
    limits = { move_on: ->(&block) { move_on_after(3, &block) },
               nested: ->(&block) { move_on_after(9) { move_on_after(3, &block) } },
               cancel: ->(&block) { cancel_after(3, &block) rescue Polyphony::Cancel } }
    orders = { stop: ->(fiber) { fiber.stop(:told) }, terminate: :terminate.to_proc }
    Polyphony::Testing.virtual_clock do
      limits.to_a.product(orders.to_a).each do |(name, limit), (order, give)|
        fiber = spin do
          limit.call { begin; sleep; ensure; sleep 4; end }
          :went_on
        end
        sleep 2
        give.call(fiber)
        assert_equal [order == :stop ? :told : nil], [fiber.await], "#{name}, #{order}"
      end
    end
  end

  def test_a_limit_that_is_set_in_a_clean_up_strikes_only_there
    Polyphony::Testing.virtual_clock do
      [->(fiber) { fiber.stop(:told) }, :terminate.to_proc].each do |give|
        story = []
        fiber = spin do
          sleep
        ensure
          story << move_on_after(1, with_value: :late) { sleep }
          begin
            cancel_after(1) { sleep }
          rescue Polyphony::Cancel
            story << :cancelled
          end
          begin
            move_on_after(1) { begin; raise IOError; ensure; sleep; end }
          rescue IOError
            story << :not_raised_again
          end
          story << :cleaned_up
        end
        sleep 2
        give.call(fiber)
        sleep 9
        assert_predicate fiber, :dead?
        assert_equal %i[late cancelled cleaned_up], story
      end
    end
  end

  def test_what_a_rescue_deals_with_is_no_order
    Polyphony::Testing.virtual_clock do
      result = spin do
        move_on_after(3, with_value: :late) { begin; raise IOError; rescue IOError; sleep; end }
      end.await
      assert_equal :late, result
      inner = move_on_after(3, with_value: :outer) { begin; move_on_after(1) { begin; sleep; ensure; sleep; end }; end }
      assert_equal :outer, inner
    end
  end
end
