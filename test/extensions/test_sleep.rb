# frozen_string_literal: true

require_relative '../test_helper'

# Kernel#sleep lets others run; what it takes and refuses is stock Ruby's.
class TestSleep < Polyphony::TestCase
  on_every_driver

  STOCK = Polyphony::KernelExtensions::STOCK_SLEEP

  def refusal
    yield
    nil
  rescue StandardError => e
    [e.class, e.message]
  end

  def test_what_stock_ruby_refuses_is_refused
    values = [-1, -0.5, 'a while', Object.new, []]
    values << nil if RUBY_VERSION.to_f < 3.3
    values.each do |value|
      [-> { sleep(value) }, -> { Kernel.sleep(value) }].each do |sleeping|
        assert_equal refusal { STOCK.bind_call(self, value) }, refusal(&sleeping), value.inspect
        assert_equal refusal { STOCK.bind_call(self, value) }, spin { refusal(&sleeping) }.await, value.inspect
      end
    end
  end

  def test_without_a_duration_it_is_for_ever
    fiber = waiting { sleep }
    fiber.schedule(:woken)
    assert_equal :woken, fiber.await
  end

  # It has the waits of its fibers, and gives what it likes.
  def test_somebody_elses_scheduler_is_asked
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      class Other
        def kernel_sleep(*duration) = p(duration)
        def block(*) = nil
        def unblock(*) = nil
        def io_wait(*) = nil
        def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
      end
      Thread.new do
        Fiber.set_scheduler(Other.new)
        Fiber.schedule { sleep 3; sleep; Kernel.sleep(0.5) }
        Fiber.set_scheduler(nil)
        sleep 0.001
        puts 'ours again'
      end.join
    RUBY
    assert_equal "[3]\n[]\n[0.5]\nours again\n", out, err
  end

  # Each thread that waits has a loop, which needs descriptors. Without fibers of its own it can do without.
  def test_threads_for_whose_loops_there_are_no_descriptors_left
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      require 'timeout'
      Process.setrlimit(:NOFILE, 40)
      threads = Array.new(60) { Thread.new { sleep 0.01; Timeout.timeout(10) { sleep 0.01; :slept } } }
      p threads.map(&:value).uniq
      p((Timeout.timeout(0.01) { sleep } rescue $!.class))
    RUBY
    assert_equal "[:slept]\nTimeout::Error\n", out, err
  end
end
