# frozen_string_literal: true

require_relative 'seed_case'

# The schedulers of Cats Effect. Its `cede` for ever beside a `sleep` is `loop { snooze }` here: what always runs keeps nothing from
# happening that comes from outside. Its blocking pools are in test_blocking_pool.rb, the work-stealing one in test_process_pool.rb.
class TestSeed002 < Polyphony::SeedCase
  on_every_driver

  # The program of the document, which never ends on a scheduler with two queues.
  def test_a_sleep_is_over_beside_a_fiber_that_yields_for_ever
    assert_prints "cancelled\n", <<~'RUBY'
      fiber = spin { loop { snooze } }
      sleep 0.02
      fiber.stop
      fiber.await
      puts 'cancelled'
    RUBY
  end

  # @yield with fibers about which always run
  def beside_the_restless
    restless = Array.new(3) { spin { loop { snooze } } }
    cancel_after(patient(20)) { yield }
  ensure
    restless.each(&:stop)
    restless.each(&:await)
  end

  def test_bytes_arrive
    each_stream do |_name, reader, writer|
      sender = Thread.new { writer << 'news' }
      beside_the_restless { assert_equal 'news', reader.readpartial(10) }
      sender.join
    end
  end

  def test_ticks_are_told
    ticks = 0
    beside_the_restless { every(0.001) { break if (ticks += 1) == 5 } }
    assert_equal 5, ticks
  end

  def test_signals_are_heard
    heard = Polyphony::Event.new
    before = trap(:USR1) { heard.signal(:usr1) }
    beside_the_restless do
      Process.kill(:USR1, Process.pid)
      assert_equal :usr1, heard.await
    end
  ensure
    trap(:USR1, before || 'DEFAULT')
  end

  def test_other_threads_get_their_turn_and_are_heard
    queue = Polyphony::Queue.new
    thread = Thread.new { 3.times { |n| Thread.pass; queue << n } }
    beside_the_restless { assert_equal [0, 1, 2], Array.new(3) { queue.shift } }
    thread.join
  end

  def test_children_are_waited_for
    beside_the_restless { assert_equal "done\n", `echo done` }
  end
end
