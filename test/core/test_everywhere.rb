# frozen_string_literal: true

require_relative '../test_helper'

# The words mean the same in the main thread, in a fiber, in another thread, and in a forked child.
class TestEverywhere < Polyphony::TestCase
  on_every_driver

  SCENARIOS = {
    spin_and_await: [6, -> { spin { 1 + spin { 2 + spin { 3 }.await }.await }.await }],
    an_error_reaches_the_parent: [:heard, lambda {
      spin do
        spin { raise IOError }
        sleep
      rescue IOError
        :heard
      end.await
    }],
    stop_and_restart: [[:over, 2], lambda {
      runs = 0
      fiber = spin { (runs += 1) == 1 ? sleep : :over }
      snooze
      fiber.stop
      fiber.restart
      [fiber.await, runs]
    }],
    select: [2, -> { Fiber.select(spin { sleep }, spin { snooze; 2 }).last }],
    race: [3, -> { Fiber.race(spin { raise IOError }, spin { sleep }, spin { snooze; 3 }) }],
    map: [[2, 3, 4], -> { Fiber.map([1, 2, 3], limit: 2) { |n| snooze; n + 1 } }],
    nested_limits: [:inner, -> { move_on_after(5) { move_on_after(0.001, with_value: :inner) { sleep } } }],
    shield: [[:finished], lambda {
      log = []
      move_on_after(0.001) { shield { sleep 0.003; log << :finished }; log << :never }
      log
    }],
    deadline: [[Polyphony::DeadlineExceeded] * 2, lambda {
      child = nil
      works = [-> { deadline(0.003) { child = spin { sleep }; sleep } }, -> { child.await }]
      works.map do |work|
        work.call
      rescue Polyphony::Cancel => e
        e.class
      end
    }],
    monitor: [IOError, lambda {
      fiber = spin { raise IOError }
      fiber.monitor(Fiber.current)
      Fiber.current.monitor_mailbox.shift.last.class
    }],
    messages: [[:ping, :pong], lambda {
      echo = spin { receive_loop { |sender, text| sender << text } }
      echo << [Fiber.current, :ping]
      asked = spin { receive.reply(:pong) }
      [receive, asked.ask(:ping)]
    }],
    mutex_and_condition: [[1, 2], lambda {
      mutex, ready, log = Polyphony::Mutex.new, Polyphony::ConditionVariable.new, []
      waiter = spin { mutex.synchronize { ready.wait(mutex); log << 2 } }
      snooze
      mutex.synchronize { log << 1; ready.signal }
      waiter.await
      log
    }],
    semaphore: [2, lambda {
      gate, inside, most = Polyphony::Semaphore.new(2), 0, 0
      Fiber.map(1..5) { gate.synchronize { most = [most, inside += 1].max; snooze; inside -= 1 } }
      most
    }],
    pool: [[1, 1, 1], lambda {
      made = 0
      pool = Polyphony::ResourcePool.new(limit: 1) { made += 1 }
      Fiber.map(1..3) { pool.acquire { |resource| snooze; resource } }
    }],
    thread_pool: [42, -> { Polyphony::ThreadPool.new(1).then { |pool| pool.process { 42 }.tap { pool.stop } } }],
    storage: [[:ann, nil], -> { [spin { Fiber[:user] = :ann; spin { Fiber[:user] }.await }.await, Fiber[:user]] }],
    every: [3, lambda {
      ticks = 0
      every(0.001) { break ticks if (ticks += 1) == 3 }
    }],
    backtrace: [true, lambda {
      error = spin { raise IOError }.await rescue $!
      error.backtrace.size >= 2 && error.backtrace.none? { |line| line.start_with?(Exception::POLYPHONY_DIR) }
    }]
  }.freeze

  def self.run_all
    SCENARIOS.transform_values { |_, code| Object.new.instance_exec(&code) }
  end

  def expected
    SCENARIOS.transform_values(&:first)
  end

  def test_in_the_main_fiber
    assert_equal expected, self.class.run_all
  end

  def test_in_a_fiber
    assert_equal expected, spin { self.class.run_all }.await
  end

  def test_in_a_thread
    assert_equal expected, Thread.new { self.class.run_all }.value
  end

  def test_in_a_fiber_of_a_thread
    assert_equal expected, Thread.new { spin { self.class.run_all }.await }.value
  end

  def test_in_a_forked_child
    assert_equal expected, in_a_child { self.class.run_all }
  end

  def test_in_a_child_forked_by_a_fiber_and_in_a_thread_of_it
    results = spin { in_a_child { [self.class.run_all, Thread.new { self.class.run_all }.value] } }.await
    assert_equal [expected] * 2, results
  end

  # @return [Object] what the block returns, through a pipe
  def in_a_child
    reader, writer = track(*IO.pipe)
    pid = fork do
      reader.close
      writer.write(Marshal.dump(yield))
      writer.close
      exit! 0
    rescue Exception => e # rubocop:disable Lint/RescueException -- whatever it is, the parent says it
      writer.write(Marshal.dump(e.full_message(highlight: false)))
      exit! 1
    end
    writer.close
    result = +''
    Polyphony.backend_read_loop(reader, 4096) { |chunk| result << chunk }
    Polyphony.backend_waitpid(pid)
    Marshal.load(result)
  end
end
