# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'minitest/mock'
require 'stringio'

# What attackers can do to a log.
class TestHostileLog < Polyphony::TestCase
  on_every_driver

  def setup
    @out = StringIO.new
    @log = Polyphony::HTTP::Log.new(@out)
  end

  def test_of_a_reason_a_few_lines_a_second_are_written
    100.times { |i| @log.refuse("192.0.2.1:#{i}", 'no Host') }
    3.times { |i| @log.refuse("192.0.2.1:#{i}", 'two Hosts') }
    assert_equal 5, @out.string.scan('no Host').size
    assert_equal 3, @out.string.scan('two Hosts').size
  end

  def test_what_was_left_out_is_told_with_the_next
    now = 100.0
    Polyphony.const_get(:Clock).stub(:now, -> { now }) do
      8.times { @log.refuse('a', 'no Host') }
      now += 2
      @log.refuse('a', 'no Host')
    end
    assert_equal 1, @out.string.lines.last.scan('(and 3 more like it)').size, @out.string
  end

  def test_bytes_of_a_client_do_not_make_a_line_of_ours
    @log.error(RuntimeError.new("bad \e[2J\n2026-01-01T00:00:00.000+00:00 [1] refused 192.0.2.9:1: forged\r"), 'GET /')
    first, *others = @out.string.lines
    refute_includes first, "\e"
    assert(others.all? { |line| line.start_with?('    ') }, @out.string)
    refute_includes @out.string, "\r"
  end

  def test_a_log_that_nobody_reads_keeps_one_waiting_and_not_for_long
    reader, writer = pipe_pair
    writer.write_nonblock('x' * 1_000_000, exception: false)
    log = Polyphony::HTTP::Log.new(writer)
    ended = []
    fibers = Array.new(50) { |i| spin { log.refuse('a', "reason #{i}"); ended << i } }
    fibers.each(&:await)
    assert_equal [*1..49, 0], ended
    reader.read_nonblock(1_000_000)
    log.refuse('a', 'another reason')
    assert_includes reader.read_nonblock(1_000_000), '(50 lines before this one were lost)'
  end

  def test_a_log_that_cannot_be_written_stops_nobody
    reader, writer = pipe_pair
    reader.close
    Polyphony::HTTP::Log.new(writer).refuse('a', 'no Host')
    writer.close
    Polyphony::HTTP::Log.new(writer).refuse('a', 'no Host')
  end
end
