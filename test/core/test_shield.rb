# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# shield { }: what comes from outside waits for the end of the block.
class TestShield < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  def test_a_stop_takes_effect_at_the_end
    log = []
    fiber = spin do
      shield { 3.times { snooze }; log << :finished }
      log << :never
    end
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_equal [:finished], log
  end

  def test_a_second_stop_that_has_come_already_waits_for_its_end
    log = []
    fiber = spin do
      sleep
    ensure
      shield { 3.times { snooze }; log << :finished }
      log << :not_reached
    end
    snooze
    fiber.stop(:first)
    fiber.stop(:second)
    assert_equal [:second, [:finished]], [fiber.await, log]
  end

  def test_an_exit_that_has_come_already_does_not_wait
    log = []
    fiber = spin do
      sleep
    rescue IOError
      shield { snooze; log << :finished }
    end
    snooze
    fiber.raise(IOError)
    fiber.raise(SystemExit)
    assert_raises(SystemExit) { fiber.await }
    assert_empty log
  end

  def test_a_generator_may_shield_itself_and_whoever_resumes_it
    log = []
    fiber = spin do
      generator = Enumerator.new { |out| shield { 3.times { snooze }; log << :finished }; out << 1 }
      log << generator.next
      sleep
    end
    snooze
    fiber.stop(:stopped)
    assert_equal [:stopped, [:finished]], [fiber.await, log]
  end

  def test_what_a_generator_held_back_is_raised_where_it_yields_to
    fiber = spin { Enumerator.new { |out| shield { 3.times { snooze }; out << 1 } }.next; sleep }
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def test_a_limit_of_a_generator_that_was_held_back_stays_its_own
    log = []
    generator = Enumerator.new do |out|
      out << move_on_after(0.001, with_value: :late) do
        shield { sleep 0.005; out << :held; sleep 0.001; log << :finished }
        log << :never
      end
    end
    assert_equal [:held, :late, [:finished]], [generator.next, generator.next, log]
  end

  def test_it_returns_what_the_block_returns
    assert_equal 5, shield { 5 }
    assert_equal 6, [1].each { break shield { 6 } }
    assert_raises(IOError) { shield { raise IOError } }
  end

  def test_a_time_limit_around_it_waits
    log = []
    result = move_on_after(0.002, with_value: :late) do
      shield { sleep 0.01; log << :finished }
      log << :never
    end
    assert_equal [:late, [:finished]], [result, log]
  end

  def test_of_two_time_limits_around_it_the_outer_one_counts_if_it_came_first
    result = move_on_after(0.001, with_value: :outer) do
      cancel_after(0.003) do
        shield { sleep 0.01 }
      ensure
        sleep 0.001
      end
    end
    assert_equal :outer, result
  end

  def test_time_limits_within_it_work
    result = move_on_after(0.001, with_value: :outer) do
      shield { [move_on_after(0.004, with_value: :inner) { sleep 5 }, sleep(0.001)] }
      :never
    end
    assert_equal :outer, result
    inner = nil
    move_on_after(0.001) { shield { inner = move_on_after(0.004, with_value: :inner) { sleep 5 } } }
    assert_equal :inner, inner
  end

  def test_a_timeout_around_it_does_not_strike_a_computation_in_it
    log = []
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.01) do
        shield do
          over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.5 # more than a turn of a thread
          nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < over
          log << :finished
        end
        log << :never
      end
    end
    assert_equal [:finished], log
  end

  def test_every_exception_is_delivered_after_it_in_order
    seen = []
    fiber = spin do
      begin
        shield { snooze; snooze }
      rescue IOError => e
        seen << e.message
      end
      snooze
    rescue IOError => e
      seen << e.message
    end
    snooze
    fiber.raise(IOError, 'first')
    fiber.raise(IOError, 'second')
    fiber.await
    assert_equal %w[first second], seen
  end

  def test_shields_may_be_nested
    log = []
    fiber = spin do
      shield do
        shield { snooze; log << :inner }
        snooze
        log << :outer
      end
      log << :never
    end
    snooze
    fiber.stop
    fiber.await
    assert_equal %i[inner outer], log
  end

  def test_an_error_in_the_block_does_not_lose_what_was_held_back
    fiber = spin do
      begin
        shield { snooze; raise IOError }
      rescue IOError
        nil
      end
      sleep
    end
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def test_an_error_of_a_child_waits
    log = []
    fiber = spin do
      shield { spin { raise IOError }; 3.times { snooze }; log << :finished }
      log << :never
    end
    assert_raises(IOError) { fiber.await }
    assert_equal [:finished], log
  end

  def test_a_child_that_is_awaited_within_raises_there
    fiber = spin { shield { spin { raise IOError }.await } }
    assert_raises(IOError) { fiber.await }
  end

  def test_an_ensure_block_can_finish
    cancel_everywhere do |run|
      opened = closed = 0
      run.scenario do
        opened += 1
        snooze
      ensure
        shield { snooze; snooze; closed += 1 } if opened.positive?
      end
      run.check { assert_equal opened, closed }
    end
  end

  def test_exit_goes_through
    out, _, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { snooze; exit 3 }
      shield { sleep 20 }
      puts :never
    RUBY
    assert_equal ['', 3], [out, status.exitstatus]
  end

  def test_a_deadlock_goes_through
    _, err, = run_ruby("require 'polyphony'; shield { Polyphony::Queue.new.shift }")
    assert_match(/Polyphony::Deadlock/, err)
  end

  def test_it_needs_a_block
    assert_match(/block/, assert_raises(ArgumentError) { shield }.message)
  end
end
