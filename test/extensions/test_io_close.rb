# frozen_string_literal: true

require_relative '../test_helper'

# IO#close wakes those who wait, and is stock Ruby's otherwise.
class TestIOClose < Polyphony::TestCase
  on_every_driver

  def test_a_frozen_io_may_be_closed
    reader, writer = pipe_pair
    assert_nil reader.freeze.close
    assert_predicate reader, :closed?
    assert_nil writer.freeze.close
  end

  def test_a_frozen_io_with_two_halves_may_be_closed
    both = track(IO.popen('cat', 'r+'))
    both.freeze.close
    assert_predicate both, :closed?
    assert_predicate $?, :success?
  end

  def test_both_halves_wake_who_waits_on_them
    both = track(IO.popen('cat', 'r+'))
    reading = waiting { Polyphony.backend_read(both, +'', 1, false, 0) }
    both.close
    assert_kind_of IOError, reading.await
  end

  # What stock Ruby's own close reports.
  def test_an_error_of_the_last_flush_is_raised_by_close
    reader, writer = pipe_pair
    writer.sync = false
    writer << 'lost'
    reader.close
    assert_raises(Errno::EPIPE) { writer.close }
  end
end
