# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Testing::Leaks and .no_leaks
class TestLeaks < Polyphony::TestCase
  on_every_driver

  Leaks = Polyphony::Testing::Leaks

  def found
    leaks = Leaks.new
    yield
    leaks.found
  end

  def test_nothing_is_left
    assert_equal :value, Polyphony::Testing.no_leaks { spin { sleep 0.001 }.await; IO.pipe.each(&:close); :value }
  end

  def test_a_fiber_is_found_with_its_name
    assert_match(/\Afiber #<Fiber forgotten:\d+ .*test_leaks\.rb:#{__LINE__}/, found { spin(:forgotten) { suspend } }.first)
  end

  def test_fibers_from_before_do_not_count
    spin { suspend }
    assert_empty(found { nil })
  end

  def test_an_operation_is_found
    reader, = pipe_pair
    left = found { spin { reader.readpartial(1) }; snooze }
    assert_includes left, '1 operation in flight'
  end

  def test_a_timer_is_found
    left = found { @scope = Fiber.new { cancel_after(100) { Fiber.yield } }.tap(&:resume) }
    assert_equal ['1 timer pending'], left
    assert_raises(StopIteration, FiberError) { @scope.resume; @scope.resume }
  end

  def test_a_descriptor_is_found_with_its_file
    left = found { @file = track(File.open(__FILE__)) }
    assert_equal ["descriptor #{@file.fileno}: #{File.realpath(__FILE__)}"], left
    leaks = Leaks.new(ignore: /test_leaks/)
    track(File.open(__FILE__))
    assert_empty leaks.found
  end

  def test_an_error_that_nobody_waited_for_is_found
    left = found { spin { raise IOError, 'unheard' } }
    assert_match(/\Aerror that nobody waited for: IOError: unheard \(.*test_leaks/, left.first)
  end

  def test_an_error_that_was_told_and_not_read_is_found
    left = found do
      2.times { |i| spin(:told) { i.zero? ? :fine : raise(IOError, 'unread') }.monitor(Fiber.current) }
      snooze
    end
    assert_equal 1, left.size
    assert_match(/\Aerror that nobody waited for: IOError: unread \(.*test_leaks/, left.first)
    assert_empty Fiber.current.monitor_mailbox.shift_all # the next test would find it
  end

  def test_an_error_that_was_told_before_is_not_found_again
    Fiber.current.monitor_mailbox << [Fiber.current, IOError.new('before')]
    assert_empty(found { snooze })
    assert_equal 1, Fiber.current.monitor_mailbox.shift_all.size
    assert_empty(found do
      spin { raise IOError, 'read' }.monitor(Fiber.current)
      Fiber.current.monitor_mailbox.shift
    end)
  end

  # One that was counted before it had opened its event loop; any thread's looks the same.
  def test_event_loops_of_the_blocking_pool_do_not_count
    Polyphony.blocking { nil }
    opened, over = Thread::Queue.new, Thread::Queue.new
    thread = nil
    assert_empty(found { thread = Thread.new { opened << Thread.current.backend.kind; over.pop }; opened.pop })
  ensure
    over << nil
    thread&.join
  end

  # Whoever can run has its turns before anybody judges, whatever the order is.
  def test_what_is_found_does_not_depend_on_the_order
    Polyphony::Testing.shuffle(seed: 1, runs: 100) do
      left = found do
        spin { spin { 3.times { snooze } }.await }
        2.times { |i| spin { raise IOError, "unheard #{i}" } }
      end
      assert_equal ['IOError: unheard 0', 'IOError: unheard 1'], left.map { |one| one[/IOError: unheard \d/] }.sort, left.inspect
    end
    stray = nil
    assert_match(/\Afiber .*runnable/, found { stray = spin { loop { snooze } } }.join("\n"))
    stray.stop
  end

  def test_what_is_left_is_raised
    error = assert_raises(Leaks::Left) { Polyphony::Testing.no_leaks { spin { suspend } } }
    assert_equal 1, error.found.size
    assert_match(/\Aleft behind:\n  fiber /, error.message)
    assert_raises(ArgumentError) { Polyphony::Testing.no_leaks }
  end
end
