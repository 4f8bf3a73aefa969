# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/thread_helpers'

# A backend for each thread; waking, raising, killing and awaiting across threads.
class TestThreads < Polyphony::TestCase
  include Polyphony::ThreadHelpers

  on_every_driver

  def test_a_fiber_of_another_thread_that_has_ended_cannot_be_scheduled
    fiber = nil
    thread = Thread.new { fiber = spin { 1 }; fiber.await; Fiber.current }
    main = thread.value
    [fiber, main].each do |dead|
      [:schedule, :schedule_with_priority].each do |word|
        error = assert_raises(FiberError) { dead.__send__(word, 1) }
        assert_match(/#<Fiber.* of another thread cannot be scheduled: it has ended/, error.message)
      end
    end
    assert_nil fiber.stop
    assert_same fiber, fiber.raise(IOError)
    own = spin { 1 }
    own.await
    assert_same own, own.schedule(2)
  end

  class Boom < StandardError; end

  def descriptors
    Dir.children('/proc/self/fd').size
  end

  # Until the thread waits in a poll.
  def wait_until_polling(thread)
    deadline = clock + patient(10)
    sleep 0.001 until thread.status == 'sleep' && thread.main_fiber&.state == :waiting || clock > deadline
    assert_equal 'sleep', thread.status
  end

  # --- backends --------------------------------------------------------------------------------------

  def test_each_thread_has_a_backend_of_its_own
    mine = Thread.current.backend
    theirs = Thread.new { sleep 0; [Thread.current.backend, Thread.backend] }.value
    assert_instance_of Polyphony::Backend, mine
    assert_same mine, Thread.backend
    assert_same theirs[0], theirs[1]
    refute_same mine, theirs[0]
  end

  def test_a_backend_is_made_when_it_is_first_used
    queue = ::Queue.new
    thread = Thread.new { queue.pop }
    assert_nil thread.backend
    queue << :go
    thread.join
  end

  def test_a_thread_that_does_not_wait_opens_no_descriptor
    before = descriptors
    during = nil
    Thread.new { during = descriptors }.join
    assert_equal before, during
  end

  def test_a_thread_that_closes_an_io_opens_no_backend
    opened = Thread.new do
      IO.pipe.each(&:close)
      Thread.current.__polyphony_backend?
    end
    refute opened.value
  end

  def test_the_descriptors_of_a_backend_go_with_its_thread
    Thread.new { sleep 0.001 }.join
    before = descriptors
    20.times { Thread.new { sleep 0.001 }.join }
    assert_equal before, descriptors
  end

  def test_the_descriptors_go_when_the_thread_ends_with_an_error
    before = descriptors
    5.times do
      thread = Thread.new { Thread.current.report_on_exception = false; sleep 0.001; raise Boom }
      assert_raises(Boom) { thread.join }
    end
    assert_equal before, descriptors
  end

  def test_the_descriptors_go_when_the_thread_is_killed_while_it_waits
    reader, = pipe_pair
    before = descriptors
    5.times do
      thread = Thread.new { Polyphony.backend_read(reader, +'', 1, false, 0) }
      wait_until_polling(thread)
      thread.kill
      thread.join
    end
    assert_equal before, descriptors
  end

  # A kill may come in any of the calls that opening takes; one of them is a method that can be replaced here.
  def test_the_descriptors_go_when_the_thread_is_killed_while_it_opens_its_backend
    before = descriptors
    reached = false
    thread = Thread.new do
      Thread.current.define_singleton_method(:__polyphony_stock_pending?) { reached = true; Thread.exit }
      snooze
    end
    thread.join
    assert reached
    assert_equal before, descriptors
  end

  def test_an_opening_that_is_broken_off_is_begun_anew
    before = descriptors
    kind = Thread.new do
      thread = Thread.current
      thread.define_singleton_method(:__polyphony_stock_pending?) { Kernel.raise Boom }
      assert_raises(Boom) { snooze }
      refute thread.__polyphony_backend?
      thread.singleton_class.remove_method(:__polyphony_stock_pending?)
      spin { sleep 0.0001; thread.backend.kind }.await
    end.value
    assert_equal Thread.current.backend.kind, kind
    assert_equal before, descriptors
  end

  # Whoever opens a backend looks for those of threads that ended without a word, and asks each thread: others run
  # meanwhile.
  def test_threads_end_while_another_one_opens_its_backend
    gate = ::Queue.new
    threads = Array.new(3) { Thread.new { snooze; gate.pop } }
    Thread.pass until threads.all?(&:__polyphony_backend?)
    threads.each do |thread|
      thread.define_singleton_method(:alive?) do
        gate.close
        Thread.pass while threads.any?(&:__polyphony_backend?)
        super()
      end
    end
    assert_equal :opened, Thread.new { sleep 0.0001; :opened }.value
  ensure
    threads&.each(&:join)
  end

  def test_kind_is_the_same_in_every_thread
    assert_equal Polyphony.backend_kind, Thread.new { Polyphony.backend_kind }.value
  end

  def test_fibers_know_their_thread_and_its_main_fiber
    thread = Thread.new do
      fiber = spin { [Fiber.current.thread, Fiber.current.main?, Fiber.current.parent] }
      [fiber.await, Fiber.current, Thread.current.main_fiber, Fiber.current.main?]
    end
    (fiber_thread, child_main, parent), main, main_fiber, main_p = thread.value
    assert_same thread, fiber_thread
    assert_nil child_main
    assert_same main, parent
    assert_same main, main_fiber
    assert_equal true, main_p
  end

  def test_a_threads_children_are_shut_down_before_it_ends
    log = []
    Thread.new do
      spin do
        sleep
      ensure
        sleep 0.001
        log << :tidy
      end
      snooze
    end.join
    assert_equal [:tidy], log
  end

  def test_fifty_threads_at_once
    heavy
    threads = Array.new(50) do |i|
      Thread.new do
        reader, writer = IO.pipe
        child = spin { Polyphony.backend_read(reader, +'', 10, false, 0) }
        sleep 0.001
        Polyphony.backend_write(writer, i.to_s)
        child.await
      ensure
        reader&.close
        writer&.close
      end
    end
    assert_equal Array.new(50, &:to_s), threads.map(&:value)
  end

  def test_threads_come_and_go_again_and_again
    heavy
    200.times { |i| assert_equal i, Thread.new { spin { snooze; i }.await }.value }
  end

  # --- waking ---------------------------------------------------------------------------------------

  def test_scheduling_a_fiber_wakes_its_polling_thread
    thread = Thread.new { Polyphony.backend_wait_event(true) }
    wait_until_polling(thread)
    thread.main_fiber.schedule(:woken)
    assert_equal :woken, thread.value
  end

  def test_an_exception_scheduled_from_another_thread_is_raised
    thread = Thread.new do
      sleep
    rescue Boom => e
      e.message
    end
    wait_until_polling(thread)
    thread.main_fiber.raise(Boom, 'over there')
    assert_equal 'over there', thread.value
  end

  def test_a_read_of_another_thread_can_be_stopped
    reader, writer = pipe_pair
    fibers = Polyphony::Queue.new
    thread = Thread.new do
      fiber = spin { Polyphony.backend_read(reader, +'', 1, false, 0) }
      fibers << fiber
      fiber.await
    end
    fiber = fibers.shift
    sleep 0.001 until fiber.state == :waiting
    fiber.stop(:stopped)
    assert_equal :stopped, thread.value
    Polyphony.backend_write(writer, 'x')
    assert_equal 'x', Polyphony.backend_read(reader, +'', 1, false, 0)
  end

  def test_no_wake_is_lost_between_many_schedules
    heavy
    count = 0
    thread = Thread.new { loop { count += Polyphony.backend_wait_event(true) || 0; break if count >= 500 } }
    wait_until_polling(thread)
    fiber = thread.main_fiber
    until fiber.dead? || !thread.alive?
      before = count
      fiber.schedule(1)
      deadline = clock + patient(10)
      Thread.pass while count == before && thread.alive? && clock < deadline
      flunk "a wake was lost after #{count}" if clock >= deadline
    end
    thread.join
    assert_equal 500, count
  end

  def test_break_ends_a_poll_and_is_nil_without_one
    assert_nil Thread.current.backend.break
    thread = Thread.new { sleep }
    wait_until_polling(thread)
    assert thread.backend.break
    thread.main_fiber.schedule
    thread.join
  end

  def test_a_thread_that_computes_does_not_hold_up_another_that_waits
    stop = false
    busy = Thread.new { nil until stop }
    start = clock
    sleep 0.01
    assert_operator clock - start, :<, patient(5)
  ensure
    stop = true
    busy.join
  end

  # --- awaiting -------------------------------------------------------------------------------------

  def test_a_fiber_of_another_thread_is_awaited
    fibers = Polyphony::Queue.new
    thread = Thread.new { fibers << spin { sleep 0.002; :result }; sleep 0.01 }
    assert_equal :result, fibers.shift.await
    thread.join
  end

  def test_the_error_of_a_fiber_of_another_thread_is_raised_in_whoever_awaits_it
    fibers = Polyphony::Queue.new
    thread = Thread.new do
      fibers << spin { sleep 0.002; raise Boom, 'there' }
      sleep
    rescue Boom
      :parent_too
    end
    assert_equal 'there', assert_raises(Boom) { fibers.shift.await }.message
    assert_equal :parent_too, thread.value
  end

  # Ruby ties a fiber to the thread that made it.
  def test_children_cannot_be_spun_from_another_thread
    thread = Thread.new { sleep; :done }
    wait_until_polling(thread)
    error = assert_raises(FiberError) { thread.main_fiber.spin { nil } }
    assert_match(/thread of its parent/, error.message)
    assert_empty thread.main_fiber.children
    thread.main_fiber.schedule
    assert_equal :done, thread.value
  end

  def test_threads_made_by_start_and_fork_give_their_backend_back_too
    before = descriptors
    %i[start fork].each do |word|
      assert_equal [1, 2], Thread.public_send(word, 1, 2) { |*args| sleep 0.001; args }.value
    end
    assert_equal before, descriptors
    assert_raises(ArgumentError, ThreadError) { Thread.start }
  end

  def test_other_fibers_run_while_a_queue_waits_for_a_thread
    ticks = 0
    ticker = spin { loop { sleep 0.001; ticks += 1 } }
    queue = Polyphony::Queue.new
    thread = Thread.new { sleep 0.001 until ticks > 2; queue << :done }
    assert_equal :done, queue.shift
    ticker.stop
    thread.join
  end

  # --- interrupts -----------------------------------------------------------------------------------

  def assert_ended_while_waiting(wait)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      wait.call
    end
    wait_until_polling(thread)
    yield thread
    thread
  end

  WAITS = {
    sleep: -> { sleep },
    timer: -> { sleep 1000 },
    queue: -> { Polyphony::Queue.new.shift },
    read: -> { IO.pipe.then { |reader, writer| Polyphony.backend_read(reader, +'', 1, false, 0) && writer } },
    child: -> { spin { sleep }.await }
  }.freeze

  WAITS.each do |name, wait|
    define_method("test_thread_raise_reaches_a_thread_that_waits_for_a_#{name}") do
      thread = assert_ended_while_waiting(wait) { |t| t.raise(Boom, 'interrupted') }
      assert_equal 'interrupted', assert_raises(Boom) { thread.join }.message
    end

    define_method("test_thread_kill_reaches_a_thread_that_waits_for_a_#{name}") do
      thread = assert_ended_while_waiting(wait, &:kill)
      assert_nil thread.value
      refute thread.alive?
    end
  end

  def test_thread_raise_runs_ensure_blocks_that_wait
    log = []
    thread = Thread.new do
      sleep
    rescue Boom
      sleep 0.001
      log << :rescued
      :ended
    end
    wait_until_polling(thread)
    thread.raise(Boom)
    assert_equal :ended, thread.value
    assert_equal [:rescued], log
  end

  def test_thread_raise_goes_to_the_main_fiber_of_the_thread
    where = nil
    thread = Thread.new do
      spin { sleep }
      begin
        sleep
      rescue Boom
        where = Fiber.current.main?
      end
    end
    wait_until_polling(thread)
    thread.raise(Boom)
    thread.join
    assert_equal true, where
  end

  def test_thread_kill_runs_ensure_blocks
    log = []
    thread = Thread.new do
      sleep
    ensure
      log << :main
    end
    wait_until_polling(thread)
    thread.kill
    thread.join
    assert_equal [:main], log
  end

  INTERRUPTED = <<~'RUBY'
    require 'polyphony'
    spin { sleep 0.05; Process.kill(:INT, $$) }
    reader, = IO.pipe
    begin
      eval(ARGV[0])
    rescue Interrupt
      puts "interrupted, main: #{Fiber.current.main?.inspect}"
    end
  RUBY

  # The main fiber waits in a stand-in, one of two others polls: Ruby goes on with the main fiber when that one has been
  # killed.
  def test_thread_kill_ends_all_fibers_whoever_polls
    log = []
    thread = Thread.new do
      %i[first second].each do |name|
        spin do
          sleep
        ensure
          log << name
        end
      end
      ::Queue.new.pop
    ensure
      log << :main
    end
    wait_until_polling(thread)
    thread.kill
    assert_same thread, thread.join(patient(20))
    assert_equal %i[first main second], log.sort
  end

  # Ruby raises one of several at a time, and the next one in whoever comes to a call that gives up the lock of the VM.
  def test_of_two_exceptions_for_a_thread_none_goes_to_a_child
    [true, false].each do |main_polls|
      got = []
      thread = quiet do
        child = waiting { sleep 0.02; File.lstat('/') }
        spin { sleep } unless main_polls
        2.times do
          sleep
        rescue Boom => e
          got << e.message
        end
        child.await
      end
      wait_until_polling(thread)
      over = clock + 0.022
      nil until clock > over # it is the child's turn now, too
      thread.raise(Boom, 'first')
      thread.raise(Boom, 'second')
      assert_kind_of File::Stat, thread.value
      assert_equal %w[first second], got
    end
  end

  # --- while a time limit strikes ----------------------------------------------------------------------

  # An exception that is made when a limit strikes, by a method that does something else first.
  def made_after(&first)
    Class.new(StandardError) do
      define_method(:initialize) do |*arguments|
        before, first = first, nil
        before&.call
        super(*arguments)
      end
    end
  end

  def test_a_kill_that_comes_when_a_limit_strikes_is_not_lost
    log = []
    error = made_after { log << :made; Thread.exit }
    thread = quiet do
      spin { cancel_after(0.001, with_exception: error) { sleep } }
      sleep
    ensure
      log << :ended
    end
    assert_nil thread.value
    assert_equal %i[made ended], log
  end

  # When its limit is over, the thread has to wait for us, and finds the exception when it comes to look at the time.
  def raise_when_over(thread, limit)
    wait_until_polling(thread)
    over = clock + limit + 0.002
    nil until clock > over
    thread.raise(Boom)
  end

  LIMITS = {
    move_on: -> { move_on_after(0.02, with_value: :over) { sleep } },
    cancel: -> { begin cancel_after(0.02) { sleep }; rescue Polyphony::Cancel then :over end },
    own: -> { cancel_after(0.02, with_exception: [IOError, 'over']) { sleep } rescue :over }
  }.freeze

  def test_an_exception_that_comes_when_a_limit_strikes_is_the_main_fibers
    LIMITS.each do |name, limit|
      [true, false].each do |main_polls|
        thread = quiet do
          limited = spin { instance_exec(&limit) }
          spin { snooze; sleep } unless main_polls
          got = begin
            main_polls ? 5.times { snooze } && sleep : sleep
          rescue Boom
            :boom
          end
          [got, limited.await]
        end
        raise_when_over(thread, 0.02)
        assert_equal %i[boom over], thread.value, name
      end
    end
  end

  # Waits until another thread's exception is there.
  def be_raised_at(thread, error)
    other = Thread.new { thread.raise(error) }
    deadline = clock + patient(20)
    Thread.__polyphony_stock_pass until clock > deadline
  ensure
    other.join
  end

  def test_an_exception_that_comes_when_a_scope_is_cancelled_is_raised_there
    test = self
    thread = quiet do
      me = Thread.current
      error = made_after { test.be_raised_at(me, Boom) }
      scope = nil
      limited = waiting { cancel_after(patient(20), with_exception: error) { |it| scope = it; sleep } }
      assert_raises(Boom) { scope.cancel }
      scope.cancel
      assert_raises(error) { limited.await }.class == error
    end
    assert thread.value
  end

  def test_a_fiber_leaves_the_scope_while_its_exception_is_made
    scope = nil
    leave = Polyphony::Event.new
    limited = nil
    error = made_after { leave.signal; limited.await }
    limited = waiting { cancel_after(patient(20), with_exception: error) { |it| scope = it; leave.await; :left } }
    scope.cancel
    assert_equal :left, limited.await
    refute scope.expired?
    refute scope.active?
  end

  def test_control_c_reaches_the_main_fiber_whatever_it_waits_for
    heavy
    ['sleep', 'sleep 100', 'Polyphony::Queue.new.shift', 'spin { sleep }.await', 'suspend',
     "Polyphony.backend_read(reader, +'', 1, false, 0)", 'loop { snooze }'].each do |code|
      out, err, status = run_ruby(INTERRUPTED, code)
      assert_equal "interrupted, main: true\n", out, "#{code}: #{err}"
      assert status.success?
    end
  end

  def test_control_c_ends_a_program_that_does_not_rescue_it
    out, _err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      spin do
        sleep
      ensure
        puts 'child tidies up'
      end
      spin { sleep 0.05; Process.kill(:INT, $$) }
      sleep
    RUBY
    assert_equal "child tidies up\n", out
    assert_equal Signal.list['INT'], status.termsig
  end

  def test_a_trap_runs_while_main_waits_and_the_wait_goes_on
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      trap(:USR1) { puts 'trapped' }
      spin { sleep 0.02; Process.kill(:USR1, $$) }
      sleep 0.1
      puts 'slept on'
    RUBY
    assert_equal "trapped\nslept on\n", out, err
  end

  def test_a_trap_may_spin
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      main = Fiber.current
      trap(:USR1) { main.spin { sleep 0.001; puts 'spun'; main.schedule } }
      spin { sleep 0.02; Process.kill(:USR1, $$) }
      sleep
    RUBY
    assert_equal "spun\n", out, err
  end

  def test_an_exception_in_a_trap_goes_to_main
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      trap(:USR1) { raise ArgumentError, 'from the trap' }
      child = spin { sleep }
      Thread.new { sleep 0.02; Process.kill(:USR1, $$) }
      begin
        child.await
      rescue ArgumentError => e
        puts e.message, Fiber.current.main?.inspect, child.state
      end
    RUBY
    assert_equal "from the trap\ntrue\nwaiting\n", out, err
  end

  # --- several threads on one descriptor ----------------------------------------------------------------

  def test_two_threads_read_the_same_pipe_and_nothing_is_lost
    heavy
    reader, writer = pipe_pair
    threads = Array.new(2) do
      Thread.new { String.new.tap { |got| Polyphony.backend_read_loop(reader, 10) { |chunk| got << chunk } } }
    end
    data = 'x' * 5_000
    Polyphony.backend_write(writer, data)
    writer.close
    assert_equal 5_000, threads.sum { |thread| thread.value.bytesize }
  end
end
