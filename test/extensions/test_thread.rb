# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require_relative '../support/thread_helpers'

# What Thread gains, and what of stock Ruby's stays as it is.
class TestThread < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  include Polyphony::ThreadHelpers

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  # What another fiber does after a few turns: if join stopped it, the thread would not end.
  def meanwhile
    spin { 3.times { sleep 0.0005 }; yield }
  end

  # --- join ---------------------------------------------------------------------------------------

  def test_join_returns_the_thread_and_others_run_meanwhile
    { join: nil, value: :value, await: :value }.each do |word, result|
      gate = Polyphony::Queue.new
      thread = Thread.new { gate.shift }
      meanwhile { gate << :value }
      assert_same result || thread, thread.public_send(word)
    end
  end

  def test_others_run_while_a_thread_without_a_backend_is_joined
    gate = ::Queue.new
    thread = Thread.new { gate.pop }
    meanwhile { gate << :item }
    assert_equal :item, thread.value
    assert_nil thread.backend
  end

  def test_a_thread_that_has_ended_is_joined_as_often_as_one_likes
    thread = Thread.new { :value }
    3.times do
      assert_same thread, thread.join
      assert_equal [:value, :value, :value], [thread.value, thread.await, thread.result]
    end
    assert_same thread, thread.join(0)
  end

  def test_any_number_of_fibers_join_one_thread
    thread = Thread.new { sleep 0.005; :value }
    fibers = Array.new(10) { |i| spin { i.even? ? thread.join : thread.value } }
    assert_equal [thread, :value] * 5, Fiber.await(fibers)
  end

  def test_fibers_of_several_threads_join_one
    target = Thread.new { sleep 0.01; :value }
    others = Array.new(3) { Thread.new { [spin { target.value }, spin { target.join.value }].map(&:await) } }
    assert_equal [%i[value value]] * 3, others.map(&:value)
  end

  def test_a_limit_that_is_over_gives_nil
    thread = Thread.new { sleep }
    wait_until_waiting(thread)
    start = clock
    ran = false
    meanwhile { ran = true }
    assert_nil thread.join(0.02)
    assert_operator clock - start, :>=, 0.02
    assert ran
    assert_nil thread.join(0)
    assert_nil thread.join(-1)
    assert_nil thread.await(0.001)
    assert thread.alive?
    thread.main_fiber.schedule
    assert_same thread, thread.join(Float::INFINITY)
  end

  def test_a_limit_may_be_any_number
    assert_equal Thread, Thread.new { sleep 0.001 }.join(100r).class
    assert_equal Thread, Thread.new { sleep 0.001 }.join(100).class
    assert_equal Thread, Thread.new { sleep 0.001 }.join(1e300).class
  end

  def test_a_limit_that_is_no_number_is_refused_as_by_stock_ruby
    thread = Thread.new { sleep }
    wait_until_waiting(thread)
    assert_raises(TypeError) { thread.join('1') }
    thread.kill
    thread.join
    assert_raises(TypeError) { thread.join('1') }
  end

  def test_the_current_and_the_main_thread_cannot_be_joined
    assert_match(/current thread/, assert_raises(ThreadError) { Thread.current.join }.message)
    assert_match(/current thread/, assert_raises(ThreadError) { Thread.current.value }.message)
    errors = Array.new(2) do |i|
      quiet do
        sleep 0 if i == 1 # with and without a backend
        Thread.main.join
      end
    end
    errors.each { |t| assert_match(/main thread/, assert_raises(ThreadError) { t.join }.message) }
    child = spin { Thread.current.join }
    assert_match(/current thread/, assert_raises(ThreadError) { child.await }.message)
  end

  # Nobody would be served by a backend: no fibers are there that could run.
  def test_a_thread_without_fibers_joins_in_rubys_own_way
    opened = Thread.new { Thread.new { nil }.join; Thread.current.__polyphony_backend? }.value
    refute opened
  end

  def test_stock_ruby_finds_a_deadlock_of_threads_without_fibers
    _out, err, status = run_ruby("require 'polyphony'; Thread.new { Thread.stop }.join")
    refute status.success?
    assert_match(/No live threads left. Deadlock\?/, err)
  end

  def test_a_signal_handler_may_join
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      thread = Thread.new { :value }
      trap(:USR1) { p thread.value }
      spin { sleep 0.02; Process.kill(:USR1, $$) }
      sleep 0.1
    RUBY
    assert_equal ":value\n", out, err
  end

  # --- cancelling -----------------------------------------------------------------------------------

  def test_join_may_be_cancelled_at_every_point
    cancel_everywhere do |run|
      gate = Polyphony::Queue.new
      thread = Thread.new { gate.shift }
      joined = nil
      run.scenario { joined = thread.join }
      run.beside { 4.times { snooze }; gate << :value }
      run.check do |finished|
        assert_same thread, joined if finished
        assert_equal :value, thread.value
      end
    end
  end

  def test_value_with_others_that_wait_may_be_cancelled_at_every_point
    cancel_everywhere do |run|
      gate = Polyphony::Queue.new
      thread = Thread.new { gate.shift }
      values = []
      run.scenario { values << thread.value }
      run.beside { values << thread.value }
      run.beside { 4.times { snooze }; gate << :value }
      run.check { |finished| assert_equal [:value] * (finished ? 2 : 1), values.first(finished ? 2 : 1) }
    end
  end

  def test_join_with_a_limit_may_be_cancelled_at_every_point
    cancel_everywhere do |run|
      thread = Thread.new { sleep }
      wait_until_waiting(thread)
      run.scenario { thread.join(0.0005); thread.join(0.0005) }
      run.check do
        assert_equal 0, Thread.current.backend.stats[:pending_timers]
        thread.kill.join
      end
    end
  end

  def test_join_of_a_thread_that_is_not_ours_may_be_cancelled_at_every_point
    heavy
    cancel_everywhere do |run|
      pid = Process.spawn('sleep 0.003')
      thread = Process.detach(pid)
      run.scenario { thread.join(0.002); thread.join }
      run.check { assert_predicate thread.value, :success? }
    end
  end

  def test_a_time_limit_ends_a_join
    thread = Thread.new { sleep }
    wait_until_waiting(thread)
    assert_equal :late, move_on_after(0.005, with_value: :late) { thread.join }
    assert_raises(Boom) { cancel_after(0.005, with_exception: Boom) { thread.value } }
    thread.kill
    assert_nil thread.value
  end

  # --- threads that do not tell -------------------------------------------------------------------------

  def test_a_thread_that_is_killed_before_it_begins_is_joined
    20.times do
      ran = false
      thread = Thread.new { ran = true }
      thread.kill
      assert_same thread, thread.join
      assert_nil thread.value unless ran
    end
  end

  def test_a_thread_that_is_raised_in_before_it_begins_ends_with_that
    20.times do
      thread = Thread.new { sleep }
      thread.report_on_exception = false
      thread.raise(Boom, 'early')
      assert_equal 'early', assert_raises(Boom) { thread.join }.message
    end
  end

  # The thread cannot begin before this fiber waits.
  def test_a_fiber_that_joins_before_the_thread_begins_sees_it_killed
    thread = Thread.new { :never }
    joiner = spin { thread.join }
    spin { thread.kill }
    assert_same thread, joiner.await
  end

  # Process.detach makes a thread in C.
  def test_a_thread_that_is_not_ours_is_joined_while_others_run
    { join: nil, value: 3 }.each do |word, status|
      reader, writer = pipe_pair
      thread = Process.detach(Process.spawn('read line; exit 3', in: reader))
      meanwhile { writer.puts 'go' }
      result = thread.public_send(word)
      status ? assert_equal(status, result.exitstatus) : assert_same(thread, result)
      assert_equal '(unknown)', thread.location
    end
  end

  def test_a_thread_that_is_older_than_the_gem
    out, err, = run_ruby(<<~RUBY)
      queue = Queue.new
      value = Thread.new { queue.pop }
      error = Thread.new { Thread.current.report_on_exception = false; queue.pop; raise 'old' }
      require 'polyphony'
      ticks = 0
      spin { loop { sleep 0.001; ticks += 1 } }
      spin { sleep 0.03; 2.times { queue << :item } }
      p value.join(0.005), value.value, ticks > 3
      begin
        error.join
      rescue RuntimeError => e
        p e.message, error.result.equal?(e)
      end
    RUBY
    assert_equal "nil\n:item\ntrue\n\"old\"\ntrue\n", out, err
  end

  # --- errors ---------------------------------------------------------------------------------------------

  def test_join_and_value_raise_what_the_thread_ended_with_each_time
    thread = quiet { sleep 0.001; raise Boom, 'there' }
    errors = %i[join value await].map { |word| assert_raises(Boom) { thread.public_send(word) } }
    assert_equal 1, errors.uniq(&:object_id).size
    assert_equal 'there', errors.first.message
    assert_same errors.first, thread.result
  end

  def test_a_backtrace_begins_where_it_was_raised_and_has_no_lines_of_ours
    line = __LINE__ + 1
    thread = quiet { raise Boom }
    error = assert_raises(Boom) { thread.join }
    assert_equal "#{__FILE__}:#{line}", error.backtrace.first[/\A.*?:\d+/]
    assert_empty(error.backtrace.select { |text| text.start_with?(POLYPHONY_LIB) })
  end

  def test_the_error_of_a_child_that_nobody_waits_for_is_the_threads
    thread = quiet { spin { raise Boom }; sleep }
    assert_raises(Boom) { thread.join }
    thread = quiet { spin { raise Boom }; snooze }
    assert_raises(Boom) { thread.join }
  end

  # Two at once: the second is on its way to the main fiber when that one ends.
  def test_the_error_of_a_child_that_comes_too_late_is_not_lost
    thread = quiet do
      main = Fiber.current
      spin { main.raise(IOError); raise Boom, 'late' }
      begin
        sleep
      rescue IOError
        :rescued
      end
    end
    assert_equal 'late', assert_raises(Boom) { thread.join }.message
  end

  def test_an_error_in_an_ensure_block_of_a_child_is_the_threads
    thread = quiet do
      spin do
        sleep
      ensure
        raise Boom, 'tidying'
      end
      snooze
      :done
    end
    assert_equal 'tidying', assert_raises(Boom) { thread.join }.message
  end

  REPORT = <<~'RUBY'
    require 'polyphony'
    thread = Thread.new do
      Thread.current.report_on_exception = ARGV.empty?
      raise IOError, 'lost'
    end
    begin
      sleep 0.01 while thread.alive?
      thread.join
    rescue IOError => e
      puts e.message
    end
  RUBY

  def test_report_on_exception_is_rubys_own
    out, err, = run_ruby(REPORT)
    assert_equal "lost\n", out
    assert_match(/\A#<Thread:0x\h+ .*run> terminated with exception \(report_on_exception is true\):\n/, err)
    assert_match(/^-e:4:in .*: lost \(IOError\)$/, err)
    out, err, = run_ruby(REPORT, 'quiet')
    assert_equal ["lost\n", ''], [out, err]
  end

  def test_abort_on_exception_is_rubys_own
    ['Thread.abort_on_exception = true', 'Thread.new { sleep }.abort_on_exception = false'].zip([1, 0]) do |code, status|
      out, _err, ended = run_ruby(<<~RUBY)
        require 'polyphony'
        #{code}
        Thread.report_on_exception = false
        thread = Thread.new { raise IOError, 'lost' }
        sleep 0.001 while thread.alive?
        sleep 0.001
        puts 'went on'
      RUBY
      assert_equal status, ended.exitstatus
      assert_equal status.zero? ? "went on\n" : '', out
    end
  end

  def test_abort_on_exception_reaches_a_main_fiber_that_joins
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { sleep }
      Thread.report_on_exception = false
      Thread.new { sleep 0.01; raise IOError, 'lost' }.abort_on_exception = true
      begin
        Thread.new { sleep }.join
      rescue IOError => e
        p e.message, Fiber.current.main?
      end
    RUBY
    assert_equal "\"lost\"\ntrue\n", out, err
  end

  def test_exit_in_a_thread_ends_the_program
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin do
        sleep
      ensure
        puts 'tidied up'
      end
      Thread.new { sleep 0.01; exit 7 }.join
    RUBY
    assert_equal 7, status.exitstatus, err
    assert_equal "tidied up\n", out
  end

  # --- how the main fiber ends --------------------------------------------------------------------------------

  def test_move_on_and_terminate_are_the_value_and_no_error
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      Thread.abort_on_exception = true
      p Thread.new { raise Polyphony::MoveOn.new(:moved) }.value
      p Thread.new { raise Polyphony::Terminate }.value
      thread = Thread.new { sleep }
      sleep 0.001 until thread.main_fiber&.state == :waiting
      thread.main_fiber.stop(:stopped)
      p thread.value
      thread = Thread.new { sleep }
      sleep 0.001 until thread.main_fiber&.state == :waiting
      thread.raise(Polyphony::MoveOn.new(:raised))
      p thread.value
    RUBY
    assert_equal [":moved\nnil\n:stopped\n:raised\n", ''], [out, err]
    assert_predicate status, :success?
  end

  def test_a_cancel_is_an_error
    thread = quiet { raise Polyphony::Cancel }
    assert_raises(Polyphony::Cancel) { thread.join }
  end

  def test_the_main_fiber_of_a_thread_may_be_awaited
    thread = Thread.new { sleep; :value }
    wait_until_waiting(thread)
    main = thread.main_fiber
    waiter = spin { main.await }
    snooze
    main.schedule
    assert_equal :value, waiter.await
    assert_predicate main, :dead?
    assert_equal :value, main.result
    thread.join
  end

  def test_the_main_fiber_of_a_thread_that_fails_has_its_error
    thread = quiet { sleep; raise Boom }
    wait_until_waiting(thread)
    main = thread.main_fiber
    main.schedule
    assert_raises(Boom) { main.await }
    assert_raises(Boom) { thread.join }
  end

  def test_what_has_ended_is_done
    thread = Thread.new { sleep; :value }
    wait_until_waiting(thread)
    assert_equal [false, nil], [thread.done?, thread.result]
    thread.wakeup
    assert_equal :value, thread.value
    assert_equal [true, :value], [thread.done?, thread.result]
  end

  # --- the block ------------------------------------------------------------------------------------------------

  def test_arguments_are_passed_as_by_stock_ruby
    assert_equal [1, 2, { key: 3 }], Thread.new(1, 2, key: 3) { |a, b, key:| [a, b, { key: key }] }.value
    assert_equal [{ key: 3 }], Thread.new({ key: 3 }) { |*args| args }.value
    assert_equal [[1, 2]], Thread.new([1, 2]) { |*args| args }.value
    assert_equal 1, Thread.new([1, 2]) { |a, _b| a }.value
    assert_equal 5, Thread.start(5, &:itself).value
    assert_equal 6, Thread.fork(6) { |n| n }.value
    assert_equal 7, Thread.new(7, &->(n) { n }).value
    thread = quiet(1, &->(a, b) { [a, b] })
    assert_raises(ArgumentError) { thread.value }
  end

  def test_leaving_the_block_in_odd_ways_is_as_in_stock_ruby
    assert_raises(ThreadError) { Thread.new }
    assert_raises(ArgumentError, ThreadError) { Thread.start }
    assert_raises(ArgumentError, ThreadError) { Thread.fork }
    assert_equal 3, Thread.new { next 3 }.value
    assert_raises(LocalJumpError) { silently { Thread.new { break 3 } }.value }
    assert_raises(LocalJumpError) { silently { return_from_thread }.value }
    assert_raises(UncaughtThrowError) { silently { Thread.new { throw :nobody } }.value }
    assert_nil Thread.new { Thread.exit; 3 }.value
  end

  def return_from_thread
    Thread.new { return 3 }
  end

  def test_a_class_of_ones_own
    klass = Class.new(Thread) do
      def initialize(factor)
        @factor = factor
        super() { sleep 0.001; @factor * 2 }
      end
    end
    assert_equal 42, klass.new(21).value
  end

  def test_locals_are_those_of_stock_ruby
    thread = Thread.new do
      Thread.current[:fiber] = 1
      Thread.current.thread_variable_set(:thread, 2)
      spin { [Thread.current[:fiber], Thread.current.thread_variable_get(:thread)] }.await
    end
    assert_equal [nil, 2], thread.value
    assert_equal 1, thread[:fiber]
  end

  # --- how it looks -----------------------------------------------------------------------------------------------

  def test_inspect_is_rubys_own_with_the_line_of_the_users_block
    thread = Thread.new { sleep }
    place = "#{__FILE__}:#{__LINE__ - 1}"
    wait_until_waiting(thread)
    assert_equal place, thread.location
    assert_match(/\A#<Thread:0x\h+ #{Regexp.escape(place)} sleep\w*>\z/, thread.inspect)
    assert_equal thread.inspect, thread.to_s
    thread.name = 'worker'
    assert_match(/\A#<Thread:0x\h+@worker #{Regexp.escape(place)} sleep\w*>\z/, thread.to_s)
    thread.kill.join
    assert_match(/#{Regexp.escape(place)} dead>\z/, thread.inspect)
  end

  def test_threads_without_a_block_of_ruby
    assert_equal '(root)', Thread.main.location
    assert_match(/\A#<Thread:0x\h+ run>\z/, Thread.main.inspect)
    thread = Thread.new(1, &:succ)
    assert_equal '(unknown)', thread.location
    assert_match(/\A#<Thread:0x\h+ \w+>\z/, thread.inspect)
    assert_equal 2, thread.value
  end

  # --- messages ---------------------------------------------------------------------------------------------------

  def test_a_message_goes_to_the_main_fiber
    thread = Thread.new { Array.new(3) { receive } }
    wait_until_waiting(thread)
    assert_same thread, thread << 1
    assert_same thread, thread.send(2)
    thread.main_fiber << 3
    assert_equal [1, 2, 3], thread.value
  end

  def test_messages_to_a_thread_that_has_not_begun_are_not_lost
    20.times do
      thread = Thread.new { Array.new(3) { receive } }
      thread << 1 << 2
      sleep 0
      thread << 3
      assert_equal [1, 2, 3], thread.value
    end
  end

  def test_messages_to_a_thread_that_has_no_backend_are_not_lost
    gate = ::Queue.new
    thread = Thread.new { gate.pop; receive_all_pending + [receive] }
    wait_until_stopped(thread)
    thread << 1 << 2
    assert_nil thread.backend
    gate << :go
    wait_until_waiting(thread)
    thread << 3
    assert_equal [1, 2, 3], thread.value
  end

  def test_messages_to_a_thread_that_is_older_than_the_gem_are_not_lost
    out, err, = run_ruby(<<~RUBY)
      queue = Queue.new
      old = Thread.new { queue.pop; [receive, receive, Thread.current.main_fiber.main?] }
      require 'polyphony'
      old << 1
      queue << :go
      old << 2
      p old.value
    RUBY
    assert_equal "[1, 2, true]\n", out, err
  end

  def test_send_with_more_than_a_message_calls_a_method
    thread = Thread.new { Thread.stop; receive_all_pending }
    thread.send(:[]=, :key, :value)
    assert_equal :value, thread.send(:fetch, :key)
    assert_equal(:none, thread.send(:fetch, :other) { :none })
    assert_equal thread.status, thread.__send__(:status)
    assert_equal thread.status, thread.public_send(:status)
    wait_until_stopped(thread)
    thread.send(:status)
    thread.run
    assert_equal [:status], thread.value
    assert_raises(ArgumentError) { thread.send }
  end

  # --- backends ---------------------------------------------------------------------------------------------------

  def test_a_backend_can_be_set_by_the_thread_that_opened_it
    same = Thread.new do
      Thread.current.backend.finalize
      Thread.current.backend = fresh = Polyphony::Backend.new
      sleep 0.001
      fresh.equal?(Thread.current.backend)
    end.value
    assert same
    assert_same Thread.backend, (Thread.current.backend = Thread.backend)
  end

  def test_a_backend_of_another_thread_or_none_is_refused
    thread = Thread.new { sleep }
    wait_until_waiting(thread)
    error = assert_raises(ThreadError) { Thread.current.backend = thread.backend }
    assert_match(/was not opened by #<Thread/, error.message)
    assert_raises(TypeError) { Thread.current.backend = :libev }
    assert_raises(TypeError) { Thread.current.backend = nil }
    thread.kill.join
  end

  def test_words_that_need_a_backend_say_so
    gate = ::Queue.new
    thread = Thread.new { gate.pop }
    assert_raises(ThreadError) { thread.idle_gc_period = 1 }
    assert_raises(ThreadError) { thread.on_idle { nil } }
    assert_nil thread.main_fiber
    gate << :go
    thread.join
  end

  def test_switch_fiber_is_the_switchpoint_itself
    main = Fiber.current
    spin { main.schedule(:turn) }
    assert_equal :turn, Thread.current.switch_fiber
  end

  # --- fork -------------------------------------------------------------------------------------------------------

  def test_threads_and_forks_within_each_other
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      $stdout.sync = true
      def status(pid) = Polyphony.backend_waitpid(pid).last >> 8
      thread = Thread.new { sleep 0.001; status(fork { Thread.new { sleep 0.001; exit!(spin { 3 }.await) }.join }) }
      p thread.value
      # Without a block the thread goes on in the child, as its main one; its end is the child's.
      p Thread.new { sleep 0; (pid = fork) ? status(pid) : :child }.value
      p Thread.new { sleep 0; (pid = fork) ? status(pid) : ($stderr.reopen(File::NULL); raise 'in the child') }.value
      p Thread.new { spin { (pid = fork) ? status(pid) : exit!(4) }.await }.value
      # A thread that is joined in the parent is gone in the child.
      other = Thread.new { sleep }
      joiner = spin { other.join }
      sleep 0.01
      p status(fork { exit!(other.join(1).equal?(other) && !other.alive? ? 5 : 1) })
      p joiner.state
      other.kill
      joiner.await
    RUBY
    assert_equal "3\n0\n1\n4\n5\n:waiting\n", out, err
  end

  # It had begun, but did not tell of its end yet.
  def test_a_thread_that_is_killed_at_its_very_beginning_is_joined
    heavy
    1500.times do |i|
      thread = Thread.new { sleep }
      (i % 3).times { Thread.__polyphony_stock_pass }
      thread.kill
      assert_same thread, thread.join
    end
  end
end
