# frozen_string_literal: true

require_relative 'seed_case'

# "How fibers are scheduled". Left out: HTTParty.get under a time limit, which needs the stock sockets
# to be fiber-aware; a sleep stands in for it. The ThreadPool it mentions has tests of its own.
class TestSeed000 < Polyphony::SeedCase
  on_every_driver

  def test_a_generator_works_as_without_polyphony
    assert_prints "1\n1\n2\n3\n5\n8\n13\n21\n34\n55\n", <<~'RUBY'
      fib = Fiber.new do
        x, y = 0, 1
        loop do
          Fiber.yield y
          x, y = y, x + y
        end
      end
      10.times { puts fib.resume }
    RUBY
  end

  # As printed there, pong would be unknown inside ping, and neither would end.
  def test_plain_fibers_transfer_to_each_other
    assert_prints "ping\npong\n" * 3, <<~'RUBY'
      require 'fiber'

      @ping = Fiber.new { 3.times { puts 'ping'; @pong.transfer } }
      @pong = Fiber.new { loop { puts 'pong'; @ping.transfer } }
      @ping.transfer
    RUBY
  end

  def test_plain_fibers_transfer_to_each_other_beside_spun_ones
    assert_prints "spun\nping\npong\nping\npong\n", <<~'RUBY'
      spun = spin { puts 'spun'; sleep }
      snooze
      @ping = Fiber.new { 2.times { puts 'ping'; @pong.transfer } }
      @pong = Fiber.new { loop { puts 'pong'; @ping.transfer } }
      @ping.transfer
      abort 'the spun fiber has run' unless spun.state == :waiting
    RUBY
  end

  # The document calls the third one :wait. The later one says :waiting, and so do we.
  def test_a_fiber_has_one_of_four_states
    states = []
    fiber = spin { states << Fiber.current.state; sleep 0.001; states << Fiber.current.state }
    states << fiber.state
    snooze
    states << fiber.state
    fiber.await
    states << fiber.state << Fiber.current.state
    assert_equal %i[runnable running waiting running dead running], states
  end

  def test_a_waiting_fiber_becomes_runnable_when_its_event_occurs
    fiber = spin { suspend }
    snooze
    assert_equal :waiting, fiber.state
    fiber.schedule
    assert_equal :runnable, fiber.state
    fiber.await
  end

  def test_there_is_a_switchpoint_at_waiting_snoozing_suspending_and_ending
    { waiting: -> { sleep 0.001 }, snoozing: -> { snooze }, suspending: -> { suspend }, ending: -> {} }
      .each do |name, switchpoint|
        log = []
        first = spin { log << :before; switchpoint.call; log << :after }
        spin { log << :other; first.schedule if name == :suspending }
        first.await
        assert_equal name == :ending ? %i[before after other] : %i[before other after], (snooze; log), name
      end
  end

  def test_scheduling_does_not_switch
    log = []
    fiber = spin { suspend; log << :resumed }
    snooze
    fiber.schedule
    log << :scheduled
    snooze
    assert_equal %i[scheduled resumed], log
  end

  def test_the_process_ends_when_the_main_fiber_is_done
    assert_prints "one\ndone\n", <<~'RUBY'
      spin { puts 'one'; sleep }
      snooze
      puts 'done'
    RUBY
  end

  def test_an_exception_as_resume_value_is_raised_where_the_fiber_waits
    fiber = spin do
      sleep
    rescue IOError => e
      "rescued #{e.message}"
    end
    snooze
    fiber.schedule(IOError.new('interrupted'))
    assert_equal 'rescued interrupted', fiber.await
  end

  WITH_TIMEOUT = <<~'RUBY'
    def with_timeout(duration)
      interruptible_fiber = Fiber.current
      timeout_fiber = spin do
        sleep duration
        interruptible_fiber.raise 'timeout'
      end

      yield
    ensure
      timeout_fiber.terminate
    end
  RUBY

  def test_a_time_limit_made_by_hand_interrupts_what_takes_too_long
    assert_prints "RuntimeError: timeout\n0 fibers left\n", <<~RUBY
      #{WITH_TIMEOUT}
      begin
        with_timeout(0.02) { sleep 10 }
      rescue => e
        puts "\#{e.class}: \#{e.message}"
      end
      snooze
      puts "\#{Fiber.current.children.size} fibers left"
    RUBY
  end

  def test_a_time_limit_made_by_hand_leaves_alone_what_is_in_time
    assert_prints ":fetched\nstill fine\n", <<~RUBY
      #{WITH_TIMEOUT}
      p with_timeout(0.03) { sleep 0.001; :fetched }
      sleep 0.05
      puts 'still fine'
    RUBY
  end

  def test_each_thread_schedules_its_own_fibers
    assert_prints "[[\"a runs\", \"b says hello\"], [\"b runs\", \"a says hello\"]]\n", <<~'RUBY'
      queues = { 'a' => Polyphony::Queue.new, 'b' => Polyphony::Queue.new }
      threads = [%w[a b], %w[b a]].map do |me, other|
        Thread.new do
          log = []
          waits = spin { log << queues[me].shift } # while the other fiber of its thread runs
          runs = spin { log << "#{me} runs"; queues[other] << "#{me} says hello" }
          Fiber.await(waits, runs)
          log
        end
      end
      p threads.map(&:value)
    RUBY
  end

  # Events are looked at although there is always somebody to run.
  def test_fibers_that_always_run_do_not_keep_a_timer_from_firing
    @one = spin { loop { @two.schedule; suspend } }
    @two = spin { loop { @one.schedule; suspend } }
    fired = false
    after(0.002) { fired = true }
    cancel_after(patient(20)) { snooze until fired }
    assert_equal [false, false], [@one, @two].map(&:dead?)
  end

  # With nothing to run and nothing to wait for, switching returns nil.
  def test_a_lone_switch_returns
    assert_prints "nil\nnil\n", 'p suspend, Thread.current.switch_fiber'
  end
end
