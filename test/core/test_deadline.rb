# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# deadline { }: one time for a piece of work and all the fibers it spins.
class TestDeadline < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  def test_it_ends_the_block
    error = assert_raises(Polyphony::DeadlineExceeded) { deadline(0.005) { sleep 5 } }
    assert_match(/\Adeadline of 0.005 s is over, set at #{Regexp.escape(__FILE__)}:#{__LINE__ - 1}, while waiting for time to pass\z/,
                 error.message)
    assert_kind_of Polyphony::Cancel, error
    assert_equal 7, deadline(5) { 7 }
  end

  def test_it_may_be_a_time
    assert_raises(Polyphony::DeadlineExceeded) { deadline(Time.now + 0.005) { sleep 5 } }
    assert_raises(Polyphony::DeadlineExceeded) { deadline(Time.now - 1) { sleep 5 } }
  end

  def test_nil_is_none_of_its_own
    assert_nil deadline(nil) { Polyphony.deadline }
    outer = inner = nil
    deadline(5) { outer = Polyphony.deadline; deadline(nil) { inner = Polyphony.deadline } }
    assert_same outer, inner
    assert_raises(ArgumentError) { deadline(nil) }
  end

  def test_a_child_that_goes_on_after_the_block_is_still_bound_by_it
    fiber = nil
    parent = spin do
      deadline(0.005) { fiber = spin { sleep 5 } }
      sleep 5
    end
    assert_raises(Polyphony::DeadlineExceeded) { parent.await }
    assert fiber.dead?
  end

  def test_a_child_spun_after_the_block_is_free
    deadline(5) { snooze }
    assert_nil Polyphony.deadline
    assert_nil spin { Polyphony.deadline }.await
  end

  def test_the_sooner_one_holds
    deadline(5) do
      outer = Polyphony.deadline
      deadline(10) { assert_same outer, Polyphony.deadline }
      deadline(1) { refute_same outer, Polyphony.deadline }
      assert_same outer, Polyphony.deadline
      assert_operator outer.remaining, :<=, 5
      refute outer.expired?
    end
    assert_nil Polyphony.deadline
  end

  def test_only_the_owner_answers_for_it
    result = move_on_after(0.005, with_value: :moved_on) { deadline(5) { sleep 5 } }
    assert_equal :moved_on, result
    assert_raises(Polyphony::DeadlineExceeded) { deadline(0.005) { move_on_after(5) { sleep 5 } } }
  end

  def test_a_cancelled_scope_leaves_no_deadline
    cancel_everywhere do |run|
      left = nil
      run.scenario do
        deadline(5) { spin { snooze }.await; snooze }
      ensure
        left = Polyphony.deadline
      end
      run.check { assert_nil left }
    end
  end

  def test_errors_of_use
    assert_match(/NaN/, assert_raises(ArgumentError) { deadline(Float::NAN) { 1 } }.message)
    assert_match(/got "soon"/, assert_raises(ArgumentError) { deadline('soon') { 1 } }.message)
    assert_match(/block/, assert_raises(ArgumentError) { deadline(1) }.message)
  end
end
