# frozen_string_literal: true

require_relative '../test_helper'

# A turn from one fiber of a scheduler to the next takes a short way. What comes from outside is to be heard all the same, and what
# is uncommon to go the long way.
class TestSchedTurns < Polyphony::TestCase
  on_every_driver

  def setup
    super
    @sched = Polyphony::Sched.new
    @out = []
    @over = false
  end

  # @yield in a fiber, while the scheduler has two fibers that give each other their turn until it is over
  def beside_a_run
    2.times { @sched.push { @sched.resched until @over } }
    beside = spin do
      yield
    ensure
      @over = true
    end
    cancel_after(patient(20)) { @sched.run }
    beside.await
  end

  def test_other_fibers_get_a_turn_in_every_round
    rounds = 0
    @sched.push { (rounds += 1; @sched.resched) until @over }
    beside_a_run do
      before = rounds
      100.times { snooze }
      assert_equal 100, rounds - before
    end
  end

  def test_a_sleep_is_over
    beside_a_run { sleep 0.01; @out << :slept }
    assert_equal [:slept], @out
  end

  def test_bytes_arrive
    reader, writer = pipe_pair
    sender = Thread.new { writer << 'news' }
    beside_a_run { @out << reader.readpartial(10) }
    sender.join
    assert_equal ['news'], @out
  end

  def test_signals_are_heard
    heard = Polyphony::Event.new
    before = trap(:USR1) { heard.signal(:usr1) }
    beside_a_run do
      Process.kill(:USR1, Process.pid)
      @out << heard.await
    end
    assert_equal [:usr1], @out
  ensure
    trap(:USR1, before || 'DEFAULT')
  end

  def test_other_threads_are_heard
    queue = Polyphony::Queue.new
    thread = Thread.new { 3.times { |n| Thread.pass; queue << n } }
    beside_a_run { 3.times { @out << queue.shift } }
    thread.join
    assert_equal [0, 1, 2], @out
  end

  def test_what_is_raised_in_the_thread_comes_out_of_run
    2.times { @sched.push { loop { @sched.resched } } }
    main = Thread.current
    thread = Thread.new { main.raise IOError, 'from outside' }
    assert_equal 'from outside', assert_raises(IOError) { cancel_after(patient(20)) { @sched.run } }.message
    thread.join
    stop_all
  end

  def stop_all
    @over = true
    Fiber.current.children.each(&:stop)
    Fiber.current.children.each(&:await)
  end

  def test_the_order_is_that_of_the_round
    5.times { |n| @sched.push { 40.times { @out << n; @sched.resched } } }
    @sched.run
    assert_equal [0, 1, 2, 3, 4] * 40, @out
  end

  def test_those_who_snooze_are_in_the_same_round
    2.times { |n| @sched.push { 20.times { @out << n; @sched.resched } } }
    other = spin { 20.times { @out << :other; snooze } }
    @sched.run
    other.await
    @out.each_slice(3).first(19).each { |round| assert_equal [0, 1, :other].sort_by(&:to_s), round.sort_by(&:to_s) }
  end

  def test_one_that_is_stopped_at_its_turn_ends
    fiber = nil
    2.times { |n| @sched.push { fiber ||= Fiber.current; loop { @sched.resched; break if @over && n == 1 } } }
    spin { sleep 0.001; fiber.stop; fiber.await; @out << fiber.dead?; @over = true }
    @sched.run
    assert_equal [true], @out
  end

  def test_what_is_raised_in_one_at_its_turn_is_raised_there
    fiber = nil
    @sched.push do
      fiber = Fiber.current
      loop { @sched.resched }
    rescue IOError => e
      @out << e.message
      @sched.resched # and goes on as before
      @over = true
    end
    @sched.push { @sched.resched until @over }
    spin { snooze until fiber; fiber.raise IOError, 'for you' }
    @sched.run
    assert_equal ['for you'], @out
  end

  def test_several_exceptions_come_one_at_a_turn
    fiber = nil
    @sched.push do
      fiber = Fiber.current
      2.times do
        loop { @sched.resched }
      rescue IOError => e
        @out << e.message
      end
      @over = true
    end
    @sched.push { @sched.resched until @over }
    spin { snooze until fiber; fiber.raise(IOError, 'one'); fiber.raise(IOError, 'two') }
    @sched.run
    assert_equal %w[one two], @out
  end

  def test_a_time_limit_ends_the_turns_of_one
    @sched.push { move_on_after(0.005) { loop { @sched.resched } }; @out << :moved_on; @over = true }
    @sched.push { @sched.resched until @over }
    @sched.run
    assert_equal [:moved_on], @out
  end

  def test_as_a_block
    2.times { |n| @sched.push { 3.times(&@sched); @out << n } }
    @sched.push { @out << :first }
    @sched.run
    assert_equal [:first, 0, 1], @out
    assert_raises(FiberError) { 1.times(&@sched) }
    assert_raises(FiberError) { @sched.to_proc.call }
  end

  # Its stack is another one, however deep the call is.
  def test_a_fiber_within_a_fiber_is_not_taken_for_it
    @sched.push do
      50.times { @sched.resched }
      @out << assert_raises(FiberError) { Fiber.new { @sched.resched }.resume }.class
      @out << assert_raises(FiberError) { Enumerator.new { |y| @sched.resched; y << 1 }.next }.class
      50.times { @sched.resched }
      Fiber.new { 3.times { snooze }; @out << :inside }.resume
      @sched.resched
      @over = true
    end
    @sched.push { @sched.resched until @over }
    @sched.run
    assert_equal [FiberError, FiberError, :inside], @out
  end

  def test_an_old_one_is_not_taken_for_a_new_one_on_its_stack
    20.times do
      @sched.push { 5.times(&@sched) }
      @sched.push { 5.times { @sched.resched } }
      @sched.run
      GC.start
      assert_raises(FiberError) { spin { @sched.resched }.await }
      assert_raises(FiberError) { spin { 1.times(&@sched) }.await }
    end
  end

  def test_two_that_are_run_side_by_side
    others = Polyphony::Sched.new
    3.times do |n|
      @sched.push { 30.times { @out << n; @sched.resched } }
      others.push { 30.times { @out << n + 10; others.resched } }
    end
    running = spin { others.run }
    @sched.run
    running.await
    assert_equal [0, 1, 2] * 30, @out.select { |n| n < 10 }
    assert_equal [10, 11, 12] * 30, @out.select { |n| n >= 10 }
  end

  def test_children_have_their_status_for_themselves
    @sched.push { system('exit 3'); 20.times { @sched.resched }; @out << $?.exitstatus }
    @sched.push { system('exit 4'); 20.times { @sched.resched }; @out << $?.exitstatus }
    @sched.run
    assert_equal [3, 4], @out.sort
  end

  def test_in_a_forked_child_a_fiber_at_its_turn_is_alone
    reader, writer = pipe_pair
    2.times do |n|
      @sched.push do
        20.times { @sched.resched }
        if n.zero?
          pid = Process.fork do
            inner = Polyphony::Sched.new
            out = []
            2.times { |m| inner.push { 3.times { out << m; inner.resched } } }
            inner.run
            writer << out.join(',')
            writer.close
          end
          Process.wait(pid)
        end
        20.times { @sched.resched }
      end
    end
    @sched.run
    writer.close
    assert_equal '0,1,0,1,0,1', reader.read
  end

  def test_each_thread_has_its_own
    results = Array.new(3) do |t|
      Thread.new do
        sched = Polyphony::Sched.new
        out = []
        3.times { |n| sched.push { 200.times { out << n; sched.resched } } }
        sched.run
        [t, out]
      end
    end.map(&:value)
    results.each { |_, out| assert_equal [0, 1, 2] * 200, out }
  end

  def test_many_threads_one_after_the_other
    50.times do
      Thread.new do
        sched = Polyphony::Sched.new
        2.times { sched.push { 30.times(&sched) } }
        sched.run
      end.join
    end
    assert_raises(FiberError) { @sched.resched }
  end

  def test_objects_may_move_and_go
    3.times { |n| @sched.push { 30.times { |m| @out << "#{n}.#{m}"; GC.start if (m % 10).zero?; compact if m == 15; @sched.resched } } }
    @sched.run
    assert_equal 90, @out.uniq.size
  end

  def compact
    GC.compact if GC.respond_to?(:compact)
  rescue NotImplementedError
    nil # this platform cannot
  end

  def test_while_a_collection_runs_at_every_allocation
    2.times { |n| @sched.push { 12.times { @out << "#{n}"; @sched.resched } } }
    GC.stress = true
    @sched.run
    GC.stress = false
    assert_equal %w[0 1] * 12, @out
  ensure
    GC.stress = false unless ENV['POLYPHONY_GC'] == 'stress'
  end

  def test_a_trace_and_a_watch_for_stalls_see_every_turn
    events = []
    Thread.current.backend.trace_proc = proc { |event, fiber| events << [event, fiber] }
    fibers = []
    2.times { @sched.push { fibers << Fiber.current; 5.times { @sched.resched } } }
    @sched.run
    Thread.current.backend.trace_proc = nil
    fibers.each { |fiber| assert_operator events.count([:block, fiber]), :>=, 5 }
  ensure
    Thread.current.backend.trace_proc = nil
  end

  def test_a_fiber_at_its_turn_is_runnable
    states = []
    fiber = nil
    @sched.push { fiber = Fiber.current; 30.times { @sched.resched } }
    @sched.push { 30.times { states << fiber.state; @sched.resched } }
    @sched.run
    assert_equal [:runnable], states.uniq
  end

  def test_switches_are_counted
    2.times { @sched.push { 500.times { @sched.resched } } }
    Thread.current.backend.stats
    @sched.run
    assert_operator Thread.current.backend.stats[:switch_count], :>=, 1000
  end
end
