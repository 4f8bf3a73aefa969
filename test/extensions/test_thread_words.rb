# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/beside'
require_relative '../support/thread_helpers'

# What Thread has besides join and interrupts, in a thread that has fibers.
class TestThreadWords < Polyphony::TestCase
  include Polyphony::Beside
  include Polyphony::ThreadHelpers

  on_every_driver

  WHERE = Polyphony::Beside::WHERE

  # --- pass ---------------------------------------------------------------------------------------------------------

  WHERE.each do |where, run|
    define_method("test_pass_lets_other_fibers_run_#{where}") do
      ran = []
      other = spin { 3.times { |i| ran << i; snooze } }
      assert_equal [nil], instance_exec(-> { Array.new(10) { Thread.pass }.uniq }, &run)
      other.await
      assert_equal [0, 1, 2], ran
    end

    # Many programs wait like that.
    define_method("test_pass_until_another_fiber_has_done_it_#{where}") do
      done = false
      spin { sleep 0.001; done = true }
      instance_exec(-> { Thread.pass until done }, &run)
      assert done
    end

    define_method("test_pass_lets_other_threads_run_#{where}") do
      done = false
      thread = Thread.new { done = true }
      instance_exec(-> { Thread.pass until done }, &run)
      thread.join
    end

    define_method("test_pass_may_be_cancelled_#{where}") do
      assert_equal :late, instance_exec(-> { move_on_after(0.001, with_value: :late) { loop { Thread.pass } } }, &run)
    end
  end

  def test_pass_in_a_signal_handler
    passed = false
    old = trap(:HUP) { passed = Thread.pass.nil? }
    Process.kill(:HUP, Process.pid)
    sleep 0.001 until passed
  ensure
    trap(:HUP, old)
  end

  # --- stop, wakeup, run --------------------------------------------------------------------------------------------

  WHERE.each do |where, run|
    %i[wakeup run].each do |word|
      define_method("test_stop_blocks_one_fiber_and_#{word}_ends_it_#{where}") do
        thread = Thread.current
        assert_nil(beside(-> { thread.public_send(word) }) { instance_exec(-> { Thread.stop }, &run) })
      end

      define_method("test_#{word}_from_another_thread_ends_a_stop_#{where}") do
        thread = Thread.current
        stopped = false
        other = Thread.new { Thread.pass until stopped; thread.public_send(word) }
        spin { snooze; stopped = true }
        assert_nil(instance_exec(-> { Thread.stop }, &run))
        other.join
      end
    end

    define_method("test_stop_may_be_cancelled_and_is_forgotten_then_#{where}") do
      assert_equal :late, instance_exec(-> { move_on_after(0.001, with_value: :late) { Thread.stop } }, &run)
      thread = Thread.current
      assert_nil(beside(-> { thread.wakeup }) { instance_exec(-> { Thread.stop }, &run) })
    end
  end

  def test_wakeup_ends_the_stop_of_each_fiber_and_no_sleep
    log = []
    stopped = Array.new(3) { |i| spin { Thread.stop; log << i } }
    sleeper = spin { sleep; log << :sleeper }
    snooze until (stopped + [sleeper]).all? { |fiber| fiber.state == :waiting }
    Thread.current.wakeup
    stopped.each(&:await)
    assert_equal [0, 1, 2], log
    assert_equal :waiting, sleeper.state
  end

  def test_stop_where_nobody_is_left_is_refused_as_in_stock_ruby
    ['', 'sleep 0.001', 'spin { sleep 0.001 }.await'].each do |before|
      out, err, = run_ruby(<<~RUBY)
        require 'polyphony'
        #{before}
        begin
          Thread.stop
        rescue ThreadError => e
          puts e.message.lines.first
        end
      RUBY
      assert_equal ["stopping only thread\n", ''], [out, err]
    end
  end

  # --- status -------------------------------------------------------------------------------------------------------

  def test_status_of_a_thread_with_fibers
    thread = quiet { spin { sleep }; sleep }
    wait_until_waiting(thread)
    assert_equal ['sleep', true, true], [thread.status, thread.stop?, thread.alive?]
    thread.kill.join
    assert_equal [false, true, false], [thread.status, thread.stop?, thread.alive?]
    thread = quiet { sleep 0; raise 'no' }
    assert_raises(RuntimeError) { thread.join }
    assert_equal [nil, true, false], [thread.status, thread.stop?, thread.alive?]
    busy = Thread.new { spin { loop { snooze } }; sleep }
    wait_until('it runs') { busy.status == 'run' }
    busy.kill.join
    assert_equal 'run', Thread.current.status
    assert_equal 'run', spin { Thread.current.status }.await
  end

  def test_status_while_a_thread_is_ended
    seen = nil
    thread = Thread.new do
      sleep
    ensure
      seen = Thread.current.status
    end
    wait_until_waiting(thread)
    thread.kill.join
    assert_equal 'aborting', seen
  end

  # --- backtraces ---------------------------------------------------------------------------------------------------

  def here_it_waits
    sleep
  end

  def test_backtrace_of_a_thread_that_waits_is_that_of_its_fiber
    thread = Thread.new { here_it_waits }
    wait_until_waiting(thread)
    assert(thread.backtrace.any? { |line| line.include?('here_it_waits') })
    locations = thread.backtrace_locations
    assert(locations.all?(Thread::Backtrace::Location))
    place = locations.find { |location| location.label.include?('here_it_waits') }
    assert_equal [__FILE__, method(:here_it_waits).source_location.last + 1], [place.path, place.lineno]
    assert_equal [[], nil], [thread.backtrace(0, 0), thread.backtrace(1000)]
    thread.kill.join
    assert_nil thread.backtrace
  end

  def test_locations_in_a_spun_fiber_are_rubys_own
    locations = spin { [caller_locations(0).first, Thread.current.backtrace_locations(1).first] }.await
    locations.each do |location|
      assert_instance_of Thread::Backtrace::Location, location
      assert_equal [__FILE__, File.expand_path(__FILE__)], [location.path, location.absolute_path]
    end
  end

  # --- locals -------------------------------------------------------------------------------------------------------

  def test_fiber_locals_are_the_fibers_and_thread_variables_the_threads
    Thread.current[:word] = :main
    Thread.current.thread_variable_set(:shared, 1)
    seen = spin do
      before = [Thread.current[:word], Thread.current.key?(:word), Thread.current.thread_variable_get(:shared)]
      Thread.current[:word] = :spun
      Thread.current.thread_variable_set(:shared, 2)
      snooze
      before + [Thread.current[:word], Thread.current.fetch(:word)]
    end.await
    assert_equal [nil, false, 1, :spun, :spun], seen
    assert_equal [:main, 2], [Thread.current[:word], Thread.current.thread_variable_get(:shared)]
    assert Thread.current.thread_variable?(:shared)
  ensure
    Thread.current[:word] = nil
    Thread.current.thread_variable_set(:shared, nil)
  end

  # A stand-in runs the stock method, but no code of the user's.
  def test_locals_of_the_main_fiber_are_there_in_the_block_of_a_stock_method
    reader, writer = pipe_pair
    Thread.current[:word] = :main
    spin { writer << "one\n"; writer.close }
    assert_equal([[:main, "one\n"]], reader.each_line.map { |line| [Thread.current[:word], line] })
    seen = nil
    File.foreach(__FILE__) { seen = Thread.current[:word]; break }
    assert_equal :main, seen
  ensure
    Thread.current[:word] = nil
  end

  # --- errors -------------------------------------------------------------------------------------------------------

  def test_report_on_exception_of_a_thread_that_ends_by_its_fibers_error
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      beats = 0
      spin { loop { beats += 1; snooze } }
      thread = Thread.new { spin { raise 'of a child' }; sleep }
      begin
        thread.join
      rescue => e
        puts e.message
      end
      silent = Thread.new { Thread.current.report_on_exception = false; spin { raise 'unseen' }; sleep }
      puts((silent.join rescue $!.message), beats.positive?)
    RUBY
    assert_equal "of a child\nunseen\ntrue\n", out
    assert_match(/terminated with exception.*of a child/m, err)
    refute_match(/unseen/, err)
  end

  # Name => where the main thread is when another one fails.
  { waits_in_a_spun_fiber: 'spin { sleep }.await', waits_in_its_main_fiber: 'sleep',
    computes: 'loop { nil }', passes: 'loop { Thread.pass }', stops: 'Thread.stop' }.each do |name, job|
    define_method("test_abort_on_exception_ends_a_main_thread_that_#{name}") do
      out, = run_ruby(<<~RUBY)
        require 'polyphony'
        Thread.abort_on_exception = true
        Thread.report_on_exception = false
        spin { loop { sleep 0.001 } }
        sleep 0
        begin
          Thread.new { spin { sleep 0.001; raise 'all end' }; sleep }
          #{job}
        rescue => e
          puts e.message
        end
      RUBY
      assert_equal "all end\n", out
    end
  end

  # --- from every fiber -----------------------------------------------------------------------------------------------

  WHERE.each do |where, run|
    define_method("test_join_with_a_limit_value_raise_and_kill_#{where}") do
      results = beside(-> {}) do
        instance_exec(lambda do
          gate = ::Thread::Queue.new
          thread = silently { Thread.new { spin { loop { sleep 0.001 } }; gate.pop } }
          before = [thread.join(0), thread.join(0.001)]
          gate << :item
          failing = quiet { spin { sleep }; sleep }
          wait_until_waiting(failing)
          failing.raise(IOError, 'from outside')
          killed = Thread.new { spin { sleep }; sleep }
          wait_until_waiting(killed)
          before + [thread.value, outcome { failing.join }.message, killed.kill.value]
        end, &run)
      end
      assert_equal [nil, nil, :item, 'from outside', nil], results
    end
  end
end
