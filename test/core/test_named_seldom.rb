# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/core/monitor'
require 'polyphony/testing'

# Public methods that the other tests reach only through others, or not at all, by their names: test/test_surface.rb looks for them.
class TestNamedSeldom < Polyphony::TestCase
  on_every_driver

  # --- fibers and messages -------------------------------------------------------------------------

  def test_flags_of_a_fiber_are_what_they_were_set_to
    fiber = waiting { sleep }
    refute fiber.graceful_shutdown?
    fiber.graceful_shutdown = true
    assert fiber.graceful_shutdown?
    refute fiber.oob
    fiber.oob = true
    assert fiber.oob
    fiber.oob = false
    fiber.stop
  end

  def test_deconstruct_keys_of_a_request_match_a_pattern_for_hashes
    answerer = spin do
      case receive
      in Polyphony::Request(message:, sender:) => request then request.reply([message, sender])
      end
    end
    assert_equal [:hello, Fiber.current], answerer.ask(:hello)
    asked = spin { receive.tap { |request| request.reply(request.deconstruct_keys(nil)) } }
    assert_equal({ message: 1, sender: Fiber.current }, asked.ask(1))
  end

  def test_an_exception_can_be_given_its_fibers
    error = IOError.new('of another fiber')
    fiber = spin { nil }
    fiber.await
    error.source_fiber = fiber
    error.raising_fiber = fiber
    assert_equal [fiber, fiber], [error.source_fiber, error.raising_fiber]
  end

  # What extend_object is for.
  def test_an_object_that_is_extended_has_a_monitor_of_its_own
    one = Object.new.extend(Polyphony::MonitorMixin)
    other = Object.new.extend(Polyphony::MonitorMixin)
    one.mon_enter
    assert other.mon_try_enter
    other.mon_exit
    refute(spin { one.mon_try_enter }.await)
    one.mon_exit
    assert_equal :inside, one.mon_synchronize { :inside }
  end

  # --- the backend ---------------------------------------------------------------------------------

  def test_the_idle_proc_is_called_before_a_wait
    calls = 0
    backend = Thread.current.backend
    backend.idle_proc = -> { calls += 1 }
    snooze
    assert_equal 0, calls
    sleep 0.001
    assert_operator calls, :>=, 1
    assert_raises(TypeError) { backend.idle_proc = 3 }
  ensure
    backend.idle_proc = nil
  end

  def test_backend_recv_at_once_takes_what_is_there_and_is_no_switchpoint
    one, other = socket_pair
    assert_equal false, Polyphony.backend_recv_at_once(one, +'', 10, 0)
    other << 'abc' # may let others run
    ran = false
    spin { ran = true }
    assert_equal 'abc', Polyphony.backend_recv_at_once(one, +'', 10, 0)
    refute ran
    other.close
    assert_nil Polyphony.backend_recv_at_once(one, +'', 10, 0)
  end

  def test_backend_recv_feed_loop_hands_on_what_comes_until_the_end
    one, other = socket_pair
    got = []
    feeder = spin { Polyphony.backend_recv_feed_loop(one, got, :push) }
    other << 'a'
    snooze until got.size == 1
    other << 'b'
    other.close
    assert_same one, feeder.await
    assert_equal %w[a b], got
  end

  # --- testing -------------------------------------------------------------------------------------

  def test_faults_come_from_the_environment
    code = 'require "polyphony"; p Polyphony::Faults.from_environment, Polyphony::Faults.inspect'
    output, = run_ruby(code, env: { 'POLYPHONY_FAULTS' => 'eintr:0.25' })
    assert_match(/\Anil\n.*eintr.*0\.25/, output)
  end

  def test_a_network_in_memory_knows_who_listens
    network = Polyphony::Testing.network(seed: 1)
    refute network.listens?('a.test', 80)
    server = network.listen('a.test', 80)
    assert network.listens?('a.test', 80)
    client = network.connect('a.test', 80)
    refute client.tty?
    client.timeout = 0.001
    assert_equal 0.001, client.timeout
    assert_raises(IO.const_defined?(:TimeoutError) ? IO::TimeoutError : IOError) { client.read(1) }
    client.close
    server.close
    refute network.listens?('a.test', 80)
  end
end
