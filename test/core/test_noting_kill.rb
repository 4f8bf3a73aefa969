# frozen_string_literal: true

require_relative '../test_helper'

# What no rescue sees is known to those who ask.
class TestNotingKill < Polyphony::TestCase
  on_every_driver

  # @return [Array] what came out, and what was noted
  def noting(&block)
    notes = []
    value = begin
      left = true
      Polyphony.__noting_kill(notes, &block).tap { left = false }
    rescue KeyError => e
      e.message
    ensure
      @notes = [left, notes]
    end
    [value, notes]
  end

  def test_what_the_block_returns
    assert_equal [:value, []], noting { :value }
    assert_equal([3, []], noting { next 3 })
  end

  def test_errors_and_jumps_are_no_kills
    assert_equal(['no', []], noting { raise KeyError, 'no' })
    assert_equal(:thrown, catch(:ball) { noting { throw :ball, :thrown } })
    assert_equal [true, []], @notes
    assert_equal :returned, returning
    assert_equal [true, []], @notes
    assert_equal(:stopped, spin { noting { Fiber.current.stop(:stopped); snooze } }.await)
    assert_equal [true, []], @notes
  end

  def returning
    noting { return :returned }
  end

  def test_break_leaves_the_call
    notes = []
    assert_equal :broken, Polyphony.__noting_kill(notes) { break :broken }
    assert_empty notes
    assert_equal([1, 2, :broken], [1, 2, 3].each_with_object([]) { |n, seen| Polyphony.__noting_kill(notes) { n > 2 ? (break seen << :broken) : seen << n } })
    assert_empty notes
  end

  def test_a_killed_thread_wherever_it_is
    ways = [->(work) { work.call }, ->(work) { spin(&work).await }, ->(work) { Enumerator.new { work.call }.next }]
    ways.each do |way|
      notes = []
      ready = Queue.new
      thread = Thread.new { way.call(-> { Polyphony.__noting_kill(notes) { ready << true; sleep } }) }
      ready.shift
      thread.kill.join
      assert_equal [true], notes
    end
  end

  def test_a_killed_fiber
    skip 'Fiber#kill came with Ruby 3.3' unless Fiber.method_defined?(:kill) && Fiber.instance_method(:kill).super_method
    notes = []
    seen = []
    fiber = Fiber.new do
      Polyphony.__noting_kill(notes) { Fiber.yield }
    rescue Exception => e # rubocop:disable Lint/RescueException -- there must be none
      seen << e
    ensure
      sleep 0.001 # it can wait
      seen << :ensured
    end
    fiber.resume
    fiber.kill
    assert_equal [[true], [:ensured], false], [notes, seen, fiber.alive?]
    notes.clear
    Fiber.new { Polyphony.__noting_kill(notes) { Fiber.current.kill } }.resume
    assert_equal [true], notes
  end

  def test_several_deep
    notes = Array.new(3) { [] }
    ready = Queue.new
    thread = Thread.new { Polyphony.__noting_kill(notes[0]) { Polyphony.__noting_kill(notes[1]) { ready << true; sleep } } }
    ready.shift
    thread.kill.join
    assert_equal [[true], [true], []], notes
  end

  def test_something_else_than_an_array
    assert_raises(TypeError) { Polyphony.__noting_kill(nil) { flunk } }
  end
end
