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

  class Other < StandardError; end

  # Each with an IO of its own, which is closed while a fiber waits.
  WAITS = {
    read: ->(io) { io.read(1) }, gets: ->(io) { io.gets }, wait: ->(io) { io.wait_readable }, wait_a_second: ->(io) { io.wait_readable(1) },
    select: ->(io) { IO.select([io]) }, accept: ->(io) { io.accept }, accept_loop: ->(io) { io.accept_loop { nil } },
    write: ->(io) { io.write('-' * 1_000_000) }, flock: ->(io) { io.flock(File::LOCK_EX) }
  }.freeze

  # @yield [IO] to be waited on
  def to_wait_on(kind)
    case kind
    when :write then yield pipe_pair.last
    when :accept, :accept_loop then yield track(TCPServer.new('127.0.0.1', 0))
    when :flock
      Tempfile.create('locked') do |file|
        file.flock(File::LOCK_EX)
        yield track(File.open(file.path))
      end
    else yield pipe_pair.first
    end
  end

  # What the wait ends with, and the next one of the same fiber.
  def ends_of(kind, io)
    spin do
      first = begin
        WAITS[kind].call(io)
      rescue IOError, Other => e
        e.class
      end
      [first, outcome { sleep 0.001; :slept }]
    end
  end

  WAITS.each_key do |kind|
    define_method("test_who_left_a_#{kind}_for_another_reason_does_not_hear_of_the_closing_in_its_next_wait") do
      to_wait_on(kind) do |io|
        ends = ends_of(kind, io)
        snooze until ends.state == :waiting
        sleep 0.01 if kind == :flock # its thread is at it
        ends.raise(Other)
        io.close
        assert_equal [Other, :slept], ends.await
      end
    end

    next if kind == :flock # its call goes on in its thread

    define_method("test_a_#{kind}_in_a_shield_hears_of_the_closing_once") do
      to_wait_on(kind) do |io|
        inside = nil
        ends = spin { shield { inside = outcome { WAITS[kind].call(io) } }; outcome { sleep 0.001; :slept } }
        snooze until ends.state == :waiting
        io.close
        assert_equal :slept, ends.await
        assert_kind_of IOError, inside
      end
    end
  end

  def test_a_select_on_two_that_are_closed_hears_of_it_once
    ios = [pipe_pair.first, pipe_pair.first]
    ends = spin { [outcome { IO.select(ios) }.class, outcome { sleep 0.001; :slept }] }
    snooze until ends.state == :waiting
    ios.each(&:close)
    assert_equal [IOError, :slept], ends.await
  end

  def test_a_fiber_that_is_interjected_when_it_is_told_hears_of_it_afterwards
    io = pipe_pair.first
    ends = ends_of(:read, io)
    snooze until ends.state == :waiting
    said = nil
    ends.interject { said = outcome { sleep 0.001; :slept } }
    io.close
    assert_equal [IOError, :slept], ends.await
    assert_equal :slept, said
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
