# frozen_string_literal: true

require_relative '../support/adapter_case'
require 'polyphony/adapters/exclusive'

# One conversation at a time.
class TestExclusive < Polyphony::AdapterCase
  class Line
    include Polyphony::Adapters::Exclusive

    def ask
      __alone { yield }
    end
  end

  def setup
    super
    @line = Line.new
  end

  def test_a_second_fiber_is_told_who_is_at_work
    asking = spin(:asking) { @line.ask { suspend } }
    snooze
    error = assert_raises(Polyphony::Adapters::ConnectionInUse) { @line.ask { flunk } }
    assert_match(/TestExclusive::Line \d+ is in use by .*asking/, error.message)
    assert_match(/ResourcePool/, error.message)
    asking.schedule(:done)
    assert_equal :done, asking.await
    assert_equal 1, @line.ask { 1 }
  end

  def test_the_fiber_itself_comes_in_again
    assert_equal 2, @line.ask { @line.ask { 1 } + 1 }
    assert_equal 3, spin { @line.ask { 3 } }.await
  end

  def test_a_cancelled_fiber_leaves
    asking = spin { @line.ask { suspend } }
    snooze
    asking.stop
    asking.await
    assert_equal 1, @line.ask { 1 }
  end
end
