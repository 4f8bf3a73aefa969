# frozen_string_literal: true

require_relative '../test_helper'

# Fiber states, snooze and suspend, fairness, fibers that are not ours, deadlock.
class TestSwitching < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  # --- states -------------------------------------------------------------------------------------

  def test_the_current_fiber_is_running
    assert_equal :running, Fiber.current.state
    assert_equal(:running, spin { Fiber.current.state }.await)
    assert Fiber.current.running?
  end

  def test_a_new_fiber_is_runnable_then_waiting_then_runnable_then_dead
    fiber = spin { wait_for_schedule }
    assert_equal :runnable, fiber.state
    assert_equal false, fiber.running?
    snooze
    assert_equal :waiting, fiber.state
    fiber.schedule
    assert_equal :runnable, fiber.state
    fiber.await
    assert_equal :dead, fiber.state
    assert_nil fiber.running?
    assert fiber.dead?
    refute fiber.alive?
  end

  def test_a_parent_that_awaits_is_waiting
    parent = Fiber.current
    assert_equal(:waiting, spin { parent.state }.await)
  end

  def test_a_fiber_in_an_operation_is_waiting
    reader, = pipe_pair
    fiber = spin { Polyphony.backend_read(reader, +'', 1, false, 0) }
    snooze
    assert_equal :waiting, fiber.state
  end

  def test_inspect_names_tag_place_and_state
    fiber = spin(:worker) { wait_for_schedule }
    assert_match(/\A#<Fiber worker:\d+ .*test_switching\.rb:\d+ \(runnable\)>\z/, fiber.inspect)
    snooze
    assert_match(/\(waiting\)>\z/, fiber.inspect)
    fiber.schedule
    fiber.await
    assert_match(/\(dead\)>\z/, fiber.inspect)
    assert_match(/\A#<Fiber:\d+ \(root\) \(running\)>\z/, Fiber.current.inspect)
  end

  # --- snooze and suspend ---------------------------------------------------------------------------

  def test_snooze_on_a_lone_fiber_returns_nil
    assert_nil snooze
  end

  def test_snooze_lets_every_other_runnable_fiber_run_once
    count = 0
    3.times { spin { loop { count += 1; snooze } } }
    snooze
    assert_equal 3, count
    snooze
    assert_equal 6, count
  end

  def test_snooze_returns_the_value_it_was_scheduled_with
    fiber = spin { snooze }
    snooze
    fiber.schedule(:value)
    assert_equal :value, fiber.await
  end

  def test_suspend_on_a_lone_fiber_returns_nil
    assert_nil suspend
  end

  def test_suspend_of_main_returns_when_all_work_is_done
    log = []
    spin { sleep 0.001; log << :timer }
    spin { snooze; log << :snooze }
    reader, writer = pipe_pair
    spin { log << Polyphony.backend_read(reader, +'', 1, false, 0) }
    spin { sleep 0.002; Polyphony.backend_write(writer, 'x') }
    assert_nil suspend
    assert_equal [:snooze, :timer, 'x'], log
  end

  def test_suspend_of_main_returns_when_the_others_wait_for_ever
    fiber = spin { wait_for_schedule }
    assert_nil suspend
    assert_equal :waiting, fiber.state
  end

  def test_suspend_returns_the_value_it_was_scheduled_with
    main = Fiber.current
    spin { main.schedule(:hello) }
    assert_equal :hello, suspend
  end

  def test_suspend_raises_the_exception_it_was_scheduled_with
    main = Fiber.current
    error = Boom.new('for main')
    spin { main.schedule(error) }
    assert_same error, assert_raises(Boom) { suspend }
  end

  def test_an_exception_is_raised_through_its_invoke
    error = Boom.new
    def error.invoke
      :not_raised
    end
    Fiber.current.schedule(error)
    assert_nil suspend
  end

  def test_wait_event_returns_the_exception_when_told_not_to_raise
    error = Boom.new
    Fiber.current.schedule(error)
    assert_same error, Polyphony.backend_wait_event(false)
    Fiber.current.schedule(error)
    assert_raises(Boom) { Polyphony.backend_wait_event(true) }
  end

  def test_switch_fiber_is_suspend
    Fiber.current.schedule(1)
    assert_equal 1, Thread.current.switch_fiber
    assert_nil Thread.current.switch_fiber
  end

  def test_a_dead_fiber_is_silently_not_scheduled
    fiber = spin { :done }
    fiber.await
    assert_same fiber, fiber.schedule(1)
    assert_same fiber, fiber.schedule(Boom.new)
    assert_same fiber, fiber.schedule_with_priority
    assert_equal 0, Thread.current.backend.stats[:runqueue_length]
    snooze
    assert_equal :done, fiber.await
  end

  def test_idle_proc_runs_once_each_time_the_queue_empties
    calls = 0
    Thread.current.on_idle { calls += 1 }
    snooze
    assert_equal 0, calls
    sleep 0.001
    assert_equal 1, calls
    sleep 0.001
    assert_equal 2, calls
  ensure
    Thread.current.on_idle
  end

  # --- starvation -----------------------------------------------------------------------------------
  # Two fibers schedule each other for ever. The switches they do are counted: whatever else is due
  # must come through within a bounded number of them, once it is due.

  ENOUGH = 5_000

  def test_two_fibers_that_schedule_each_other_do_not_starve_a_timer
    fired_at = nil
    while_two_play do |switches|
      due = clock + 0.001
      spin { sleep 0.001; fired_at = switches.call }
      # the count begins when the timer is due
      snooze until clock > due
      due_at = switches.call
      snooze until fired_at || switches.call > due_at + ENOUGH
      assert fired_at, 'the timer did not fire'
      assert_operator fired_at - due_at, :<, ENOUGH
    end
  end

  def test_two_fibers_that_schedule_each_other_do_not_starve_a_read
    reader, writer = pipe_pair
    bytes = nil
    while_two_play do |switches|
      spin { bytes = Polyphony.backend_read(reader, +'', 5, false, 0) }
      snooze
      writer.syswrite('hello')
      start = switches.call
      snooze until bytes || switches.call > start + ENOUGH
      assert_equal 'hello', bytes
    end
  end

  def test_two_fibers_that_schedule_each_other_do_not_starve_an_offloaded_call
    size = nil
    while_two_play do |switches|
      spin { size = Polyphony.backend_stat(__FILE__)[:size] }
      deadline = clock + patient(10)
      snooze until size || clock > deadline
      assert_equal File.size(__FILE__), size
      assert_operator switches.call, :>, 0
    end
  end

  def test_two_fibers_that_schedule_each_other_do_not_starve_a_signal
    got = false
    previous = trap(:USR1) { got = true }
    while_two_play do |switches|
      Process.kill(:USR1, Process.pid)
      start = switches.call
      snooze until got || switches.call > start + ENOUGH
      assert got, 'the signal handler did not run'
    end
  ensure
    trap(:USR1, previous)
  end

  def test_two_fibers_that_schedule_each_other_do_not_starve_another_thread
    ran = false
    while_two_play do
      thread = Thread.new { ran = true }
      deadline = clock + patient(10)
      snooze until ran || clock > deadline
      assert ran, 'the thread did not run'
      thread.join
    end
  end

  def test_two_fibers_that_schedule_each_other_do_not_starve_a_wake_from_another_thread
    woken = nil
    fiber = spin { woken = wait_for_schedule }
    while_two_play do
      thread = Thread.new { fiber.schedule(:from_outside) }
      deadline = clock + patient(10)
      snooze until woken || clock > deadline
      assert_equal :from_outside, woken
      thread.join
    end
  end

  def test_one_fiber_that_snoozes_for_ever_does_not_starve_a_timer
    fired = false
    spin { sleep 0.001; fired = true }
    deadline = clock + patient(10)
    snooze until fired || clock > deadline
    assert fired
  end

  # With more fibers in the queue than 10, a poll is due after each has had its turn.
  def test_a_hundred_snoozing_fibers_do_not_starve_a_read
    reader, writer = pipe_pair
    bytes = nil
    switches = 0
    100.times { spin { loop { switches += 1; snooze } } }
    spin { bytes = Polyphony.backend_read(reader, +'', 1, false, 0) }
    snooze
    writer.syswrite('x')
    start = switches
    snooze until bytes || switches > start + 100 * 50
    assert_equal 'x', bytes
  end

  # --- before the first run --------------------------------------------------------------------------

  def test_a_fiber_stopped_before_its_first_run_never_runs_its_block
    ran = false
    fiber = spin { ran = true }
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    refute ran
    assert_equal :dead, fiber.state
  end

  def test_a_fiber_cancelled_before_its_first_run_fails_with_the_exception
    ran = false
    fiber = spin { ran = true }
    fiber.raise(Boom, 'early')
    assert_equal 'early', assert_raises(Boom) { fiber.await }.message
    refute ran
  end

  def test_the_block_gets_the_value_of_its_first_scheduling
    fiber = spin { |value| value }
    fiber.schedule(:first)
    assert_equal :first, fiber.await
    assert_nil(spin { |value| value }.await)
  end

  def job_without_arguments
    :bare
  end

  def job_with_argument(value)
    [:argument, value]
  end

  def test_spin_takes_a_method_with_or_without_parameters
    assert_equal :bare, spin(&method(:job_without_arguments)).await
    assert_equal [:argument, nil], spin(&method(:job_with_argument)).await
  end

  def test_spin_takes_lambdas
    assert_equal 1, spin(&-> { 1 }).await
    assert_equal [nil], spin(&->(v) { [v] }).await
  end

  def test_spin_without_a_block_is_an_argument_error
    assert_raises(ArgumentError) { spin }
    assert_raises(ArgumentError) { Fiber.current.spin }
  end

  # --- fibers that are not ours -----------------------------------------------------------------------

  def test_a_raw_fiber_may_sleep
    log = []
    spin { log << :other }
    raw = Fiber.new do
      sleep 0.001
      log << :raw
      :result
    end
    assert_equal :result, raw.resume
    assert_equal %i[other raw], log
  end

  def test_a_fiber_can_be_scheduled_right_after_a_raw_fiber_that_waited_has_ended
    Fiber.new { sleep 0.001 }.resume
    Fiber.current.schedule(:own)
    assert_equal :own, suspend
    numbers = Enumerator.new { |y| 3.times { |i| sleep 0.001; y << i } }
    assert_equal 0, numbers.next
    Fiber.current.schedule(:between)
    assert_equal :between, suspend
    assert_equal 1, numbers.next
  end

  def test_a_raw_fiber_may_read
    reader, writer = pipe_pair
    spin { Polyphony.backend_write(writer, 'hi') }
    raw = Fiber.new { Polyphony.backend_read(reader, +'', 2, true, 0) }
    assert_equal 'hi', raw.resume
  end

  def test_a_raw_fiber_may_spin_and_await
    raw = Fiber.new { spin { snooze; 5 }.await }
    assert_equal 5, raw.resume
  end

  def test_an_enumerator_may_wait_between_its_values
    ticks = 0
    ticker = spin { loop { ticks += 1; snooze } }
    numbers = Enumerator.new do |y|
      3.times do |i|
        sleep 0.001
        y << i
      end
    end
    assert_equal [0, 1, 2], [numbers.next, numbers.next, numbers.next]
    assert_raises(StopIteration) { numbers.next }
    assert_operator ticks, :>=, 3
    ticker.stop
  end

  def test_an_enumerator_in_a_spun_fiber_may_wait
    result = spin do
      numbers = Enumerator.new { |y| 3.times { |i| snooze; y << i } }
      [numbers.next, numbers.next, numbers.next]
    end
    other = spin { 3.times.map { |i| snooze; i } }
    assert_equal [[0, 1, 2], [0, 1, 2]], [result.await, other.await]
  end

  def test_the_main_fiber_is_known_even_if_an_enumerator_is_the_first_to_wait
    code = <<~RUBY
      first = Enumerator.new { |y| sleep 0.001; y << Fiber.current }.next
      p [Fiber.current.main?, first.main?, Thread.current.main_fiber == Fiber.current]
      p spin { Fiber.current.parent == Thread.current.main_fiber }.await
    RUBY
    ["require 'polyphony'\n#{code}", "require 'polyphony'\nThread.new { #{code} }.join"].each do |program|
      out, err, = run_ruby(program)
      assert_equal "[true, nil, true]\ntrue\n", out, err
    end
  end

  def test_many_enumerators_wait_at_the_same_time
    fibers = Array.new(20) do |i|
      spin do
        numbers = Enumerator.new { |y| loop { sleep 0.0005; y << i } }
        [numbers.next, numbers.next]
      end
    end
    assert_equal Array.new(20) { |i| [i, i] }, Fiber.await(fibers)
  end

  def test_a_timeout_around_a_generator_that_waits_reaches_its_consumer
    endless = Enumerator.new { |y| sleep; y << 1 }
    assert_equal(:late, spin { move_on_after(0.005, with_value: :late) { endless.next } }.await)
  end

  def test_scheduling_a_raw_fiber_that_has_yielded_is_an_error_in_main
    raw = Fiber.new { Fiber.yield :yielded; :end }
    assert_equal :yielded, raw.resume
    raw.schedule
    assert_raises(FiberError) { suspend }
    assert_equal :end, raw.resume
  end

  def test_scheduling_a_raw_fiber_that_has_yielded_is_an_error_in_main_from_a_spun_fiber
    raw = Fiber.new { Fiber.yield :yielded; :end }
    raw.resume
    spin { raw.schedule; snooze }
    assert_raises(FiberError) { Fiber.current.await_all_children }
  end

  def test_scheduling_a_dead_raw_fiber_does_not_hang
    raw = Fiber.new { :end }
    raw.resume
    raw.schedule
    begin
      suspend
    rescue FiberError
      nil
    end
    assert_nil snooze
  end

  def test_a_fiber_of_an_other_kind_is_refused
    assert_raises(TypeError) { Fiber.instance_method(:state).bind_call(Object.new) }
  end

  # --- deadlock -----------------------------------------------------------------------------------------

  DEADLOCK = <<~'RUBY'
    require 'polyphony'
    begin
      fiber = spin(:stuck) { Polyphony.backend_wait_event(true) }
      fiber.await
    rescue Polyphony::Deadlock => e
      puts e.message
    end
  RUBY

  def test_a_deadlock_is_an_error_that_says_who_waits_for_what
    out, err, status = run_ruby(DEADLOCK)
    assert status.success?, err
    assert_match(/stuck/, out)
    assert_match(/\(root\)> waits for a fiber to end/, out)
  end

  def test_a_deadlock_in_a_queue_ends_the_program
    _out, err, status = run_ruby("require 'polyphony'; Polyphony::Queue.new.shift")
    refute status.success?
    assert_match(/Polyphony::Deadlock/, err)
    assert_match(/an item in a queue/, err)
  end

  def test_a_sleep_without_end_is_a_deadlock_only_if_nobody_can_end_it
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      main = Fiber.current
      Thread.new { sleep 0.01; main.schedule(:woken) }
      p sleep
    RUBY
    assert_equal ":woken\n", out, err
  end

  def test_threads_that_wait_for_work_do_not_hide_a_deadlock
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      work = Polyphony::Queue.new
      thread = Thread.new { work.shift }
      Thread.pass until work.pending?
      begin
        Polyphony::Queue.new.shift
      rescue Polyphony::Deadlock
        puts 'told while another thread waits'
      end
      work << :done
      p thread.value
    RUBY
    assert_equal "told while another thread waits\n:done\n", out, err
  end

  def test_the_main_thread_is_told_of_a_deadlock_when_another_thread_comes_to_rest_last
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      work = Polyphony::Queue.new
      thread = Thread.new { sleep 0.02; work.shift }
      begin
        Polyphony::Queue.new.shift
      rescue Polyphony::Deadlock => e
        puts e.message.scan(/\\(root\\)> waits for an item in a queue/).size, thread.alive?
      end
      work << :done
      p thread.value
    RUBY
    assert_equal "2\ntrue\n:done\n", out, err
  end

  def test_a_thread_that_is_about_to_be_raised_in_may_still_help
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      answer = Polyphony::Queue.new
      20.times do
        started = Polyphony::Queue.new
        thread = Thread.new do
          Polyphony::Queue.new.tap { |queue| started << queue }.shift
        rescue ArgumentError
          answer << :rescued
        end
        queue = started.shift
        sleep 0.001 until queue.pending?
        thread.raise(ArgumentError)
        answer.shift
        thread.join
      end
      puts 'helped'
    RUBY
    assert_equal "helped\n", out, err
  end

  def test_a_crowd_that_answers_for_ever_keeps_no_timer_and_no_newcomer_waiting
    pairs = Array.new(150) { socket_pair }
    busy = pairs.flatten.map do |socket|
      spin { Polyphony.backend_recv_loop(socket, 10) { |text| Polyphony.backend_send(socket, text, 0) } }
    end
    pairs.each { |socket, _other| Polyphony.backend_send(socket, 'x', 0) }
    3.times { sleep 0.001 }
    reader, writer = pipe_pair
    late = spin { reader.readpartial(1) }
    sleep 0.001
    writer.syswrite('y')
    assert_equal 'y', late.await
  ensure
    busy&.each(&:stop)
  end

  private

  def wait_for_schedule
    Polyphony.backend_wait_event(true)
  end

  # Runs the block while two fibers schedule each other. Yields what tells how often they switched.
  def while_two_play
    switches = 0
    a = b = nil
    a = spin { loop { switches += 1; b.schedule; wait_for_schedule } }
    b = spin { loop { switches += 1; a.schedule; wait_for_schedule } }
    yield -> { switches }
  ensure
    [a, b].each(&:stop)
    [a, b].each(&:await)
  end
end
