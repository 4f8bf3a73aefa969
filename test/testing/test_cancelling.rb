# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Testing.cancel_everywhere as users have it. What it finds in Polyphony: test/core/test_cancel_everywhere.rb
class TestCancelling < Polyphony::TestCase
  on_every_driver

  include Polyphony::Testing::CancelEverywhere

  def test_a_block_is_ended_at_each_of_its_waits
    ends = Hash.new(0)
    points = cancel_everywhere do
      step = :first
      snooze
      step = :second
      snooze
      step = :last
    ensure
      ends[step] += 1
    end
    assert_equal 12, points # two waits and the start, in four ways
    assert_equal({ first: 4, second: 4, last: 4 }, ends)
  end

  def test_what_a_block_leaves_behind_is_told_with_the_place
    reader, writer = nil
    _, told = capture_io do
      assert_raises(Polyphony::Testing::Leaks::Left) do
        cancel_everywhere do
          reader, writer = track(*IO.pipe)
          snooze
          [reader, writer].each(&:close)
        end
      end
    end
    assert_equal "polyphony: the scenario was ended at wait point 2, by a stop when it waits\n", told
  end

  def test_time_may_be_virtual
    slept = 0
    Polyphony::Testing.virtual_clock do |clock|
      points = cancel_everywhere do |run|
        began = clock.elapsed
        run.scenario { sleep 1000; sleep 2000 }
        run.check { |finished| slept = clock.elapsed - began if finished }
      end
      assert_equal 12, points
      assert_equal 3000, slept
    end
  end

  def test_a_scenario_without_an_end_is_refused
    capture_io { assert_raises(Polyphony::Testing::CancelEverywhere::Endless) { cancel_everywhere { loop { snooze } } } }
    Fiber.current.shutdown_all_children
  end

  def test_an_assertion_fails_as_ever
    _, told = capture_io do
      assert_raises(Minitest::Assertion) do
        cancel_everywhere { |run| run.scenario { snooze }; run.check { |finished| assert finished } }
      end
    end
    assert_match(/wait point 1, by a stop/, told)
    assert_raises(ArgumentError) { cancel_everywhere }
    assert_equal 4, Polyphony::Testing.cancel_everywhere { nil }
  end
end
