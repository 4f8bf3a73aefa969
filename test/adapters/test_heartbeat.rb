# frozen_string_literal: true

require_relative '../support/adapter_case'

# What the rows of docs/compatibility.md are measured with: it fails for a call that stops the thread, and only for that.
class TestHeartbeat < Polyphony::AdapterCase
  on_every_driver

  LIMIT = 60 # times that a call of these tests waits for its release

  def setup
    super
    @released = false
  end

  # @yield one wait of the call
  def call_that_waits
    LIMIT.times { @released ? break : yield }
  end

  # By computing, since Ruby's own waits ask the scheduler in a spun fiber.
  def stop_the_thread(seconds)
    over = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
    nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) > over
  end

  def wait_in_the_thread(seconds)
    Polyphony::Watchdog::STOCK_SLEEP.bind_call(self, seconds)
  end

  test_in_both(:a_call_that_waits_as_fibers_do_is_released) do
    assert_equal 1, assert_yields(-> { @released = true }) { sleep 0.001 until @released; 1 }
  end

  test_in_both(:a_call_that_stops_the_thread_is_found) do
    error = assert_raises(Minitest::Assertion) { assert_yields(-> { @released = true }) { stop_the_thread(0.1) } }
    assert_match(/the call stopped the thread: another fiber ran 0 times/, error.message)
    refute @released
  end

  # As one that asks a socket for ten milliseconds, lets others run, and asks again.
  test_in_both(:a_call_that_stops_the_thread_for_a_moment_again_and_again_is_found) do
    error = assert_raises(Minitest::Assertion) do
      assert_yields(-> { @released = true }) { call_that_waits { stop_the_thread(patient(0.01)); 2.times { sleep 0.001 } } }
    end
    assert_match(/another fiber ran [1-9]\d+ times meanwhile, at most [0-4] times in a row/, error.message)
    refute @released
  end

  # In the main fiber, where Ruby's own sleep asks no scheduler.
  def test_a_call_that_waits_in_the_thread_for_a_moment_again_and_again_is_found
    assert_raises(Minitest::Assertion) do
      assert_yields(-> { @released = true }) { call_that_waits { wait_in_the_thread(patient(0.01)); 2.times { sleep 0.001 } } }
    end
    refute @released
  end
end
