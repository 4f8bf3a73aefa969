# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/core/debug'

class TestDebug < Polyphony::TestCase
  on_every_driver

  def teardown
    Polyphony::Trace.stop_event_firehose
    super
  end

  def test_events_come_as_hashes
    events = []
    Polyphony::Trace.start_event_firehose { |event| events << event }
    fiber = spin(:guest) { :done }
    fiber.await
    Polyphony::Trace.stop_event_firehose
    ours = events.select { |event| event[:fiber] == fiber }
    assert_equal %i[spin schedule terminate], ours.map { |event| event[:event] }
    assert_equal :done, ours.last[:value]
    assert_equal Fiber.current, ours.first[:source_fiber]
    assert_equal fiber, ours.last[:source_fiber]
    assert_kind_of Time, ours.first[:stamp]
    assert_includes ours.first[:caller].first, 'test_debug.rb'
  end

  def test_lines_are_written_for_events
    file = track(Tempfile.new)
    Polyphony::Trace.start_event_firehose(file)
    spin(:guest) { 6 * 7 }.await
    Polyphony::Trace.stop_event_firehose
    file.flush
    lines = File.readlines(file.path)
    assert_match(/\A\d\d:\d\d:\d\d\.\d{6} spin #<Fiber guest:/, lines.first)
    assert(lines.any? { |line| line.match?(/ terminate #<Fiber guest:.*> 42$/) }, lines.join)
  end

  def test_events_of_the_programs_own_are_shown_too
    events = []
    Polyphony::Trace.start_event_firehose { |event| events << event if event[:event] == :mine }
    Thread.current.backend.trace(:mine, Fiber.current, 1, 2)
    assert_equal [1, 2], events.first[:value]
  end

  def test_a_firehose_without_a_receiver_is_refused
    error = assert_raises(ArgumentError) { Polyphony::Trace.start_event_firehose }
    assert_match(/needs an IO to write to, or a block/, error.message)
  end

  def test_names_of_adapters_that_need_no_code_can_be_required
    names = %w[process open3 irb fs].map { |name| "require 'polyphony/adapters/#{name}'" }
    _, err, status = run_ruby("#{names.join("\n")}\nspin { 1 }.await", options: ['-W2'])
    assert_predicate status, :success?, err
    assert_empty err
  end
end
