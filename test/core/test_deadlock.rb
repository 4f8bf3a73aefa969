# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Deadlock, and the messages of time limits, which use the same words.
class TestDeadlock < Polyphony::TestCase
  on_every_driver

  # What a program says that ends in a deadlock.
  def report(code)
    out, err, status = run_ruby("require 'polyphony'\n#{code}\n")
    assert_equal [1, ''], [status.exitstatus, out], err
    err.lines.map(&:chomp)
  end

  def test_everybody_is_listed_with_what_they_wait_for_since_when_and_where_spun
    lines = report(<<~RUBY)
      queue = Polyphony::Queue.new
      taker = spin(:taker) { queue.shift }
      waiter = spin(:waiter) { taker.await }
      spin(:idle) { spin(:grandchild) { sleep }; sleep }
      waiter.await
    RUBY
    assert_match(/no fiber can ever run again/, lines.shift)
    assert_match(/\A  #<Fiber:\d+ \(root\)> waits for a fiber to end \(#<Fiber waiter:\d+ -e:4>\) for 0\.\d s/, lines[0])
    assert_match(/\A  #<Fiber taker:\d+ -e:3> waits for an item in a queue \(#<Polyphony::Queue:0x\h+>\) for 0\.\d s, spun at -e:3/, lines[1])
    assert_match(/\A  #<Fiber waiter:\d+ -e:4> waits for a fiber to end \(#<Fiber taker:\d+ -e:3>\) .*, spun at -e:4/, lines[2])
    assert_match(/\A  #<Fiber idle:\d+ -e:5> waits for being scheduled .*, spun at -e:5/, lines[3])
    assert_match(/\A  #<Fiber grandchild:\d+ -e:5> waits for being scheduled .*, spun at -e:5/, lines[4])
  end

  def test_who_holds_a_thing_is_named
    lines = report(<<~RUBY)
      class Lock
        def initialize = (@list = Polyphony::WaitList.new(self, 'a lock'); @since = Process.clock_gettime(Process::CLOCK_MONOTONIC))
        def holders = [[$holder, @since]]
        def lock = @list.park
        def inspect = '#<Lock>'
      end
      lock = Lock.new
      $holder = spin(:holder) { sleep }
      lock.lock
    RUBY
    assert_match(/waits for a lock \(#<Lock>\) for 0\.\d s/, lines[1])
    assert_match(/\A    held by #<Fiber holder:\d+ -e:9> for 0\.\d s\z/, lines[2])
  end

  def test_what_cannot_be_shown_does_not_hide_the_others
    lines = report(<<~RUBY)
      class Lock
        def initialize = @list = Polyphony::WaitList.new(self, 'a lock')
        def holders = raise('who knows')
        def lock = @list.park
      end
      spin(BasicObject.new) { Polyphony::WaitList.new(BasicObject.new).park }
      spin(:last) { Lock.new.lock }
      shield { Lock.new.lock }
    RUBY
    assert_match(/Polyphony::Deadlock/, lines[0] + lines.last)
    assert_equal 2, lines.grep(/waits for a lock \(#<Lock/).size
    assert_equal 1, lines.grep(/one that cannot be shown.* waits for being woken \(one that cannot be shown/).size
  end

  def test_an_inspect_that_is_not_written_yet_does_not_hide_a_deadlock
    lines = report(<<~RUBY)
      def (tag = Object.new).to_s = raise(NotImplementedError)
      spin(tag) { Polyphony::Event.new.await }
      shield { Polyphony::Event.new.await }
    RUBY
    assert_match(/no fiber can ever run again \(Polyphony::Deadlock\)/, lines[0])
  end

  def test_a_child_that_never_ends_is_one_for_whoever_shuts_it_down
    lines = report(<<~RUBY)
      spin(:stubborn) do
        sleep
      ensure
        Polyphony::Event.new.await
      end
      snooze
    RUBY
    assert_equal 1, lines.grep(/no fiber can ever run again/).size
    assert_equal 1, lines.grep(/<Fiber stubborn.* waits for an event/).size
  end

  def test_whoever_has_resumed_a_fiber_waits_for_what_that_one_waits_for
    lines = report('Fiber.new { Polyphony::Event.new.await }.resume')
    assert_equal 1, lines.grep(/\A  #<Fiber:\d+ \(root\)> waits for an event \(#<Polyphony::Event/).size
  end

  def test_a_mailbox_is_called_one
    lines = report(<<~RUBY)
      spin(:actor) { receive }
      receive
    RUBY
    assert_match(/\(root\)> waits for a message in a mailbox \(#<Fiber:\d+ \(root\)>\)/, lines[1])
    assert_match(/#<Fiber actor:\d+ -e:2> waits for a message in a mailbox \(#<Fiber actor:\d+ -e:2>\)/, lines[2])
  end

  def test_room_in_a_mailbox_is_called_that
    lines = report(<<~RUBY)
      full = spin(:full) { sleep }
      full.mailbox.cap(1)
      2.times { full << 1 }
    RUBY
    assert_match(/\(root\)> waits for room in a mailbox \(#<Fiber full:\d+ -e:2>\)/, lines[1])
  end

  def test_who_waits_for_several_fibers_names_some_of_them
    lines = report(<<~RUBY)
      Fiber.race(Array.new(7) { |i| spin(:"f\#{i}") { sleep } })
    RUBY
    assert_match(/\(root\)> waits for one of several fibers to end \(#<Fiber f0:\d+ -e:2>, .*#<Fiber f4:\d+ -e:2>, 2 more\)/,
                 lines[1])
  end

  def test_a_fiber_that_has_never_waited_has_no_time
    lines = report(<<~RUBY)
      raw = Fiber.new { }.setup_raw
      receive
    RUBY
    assert_equal 1, lines.grep(/\A  #<Fiber:0x\h+ -e:2> waits for being scheduled\z/).size, lines.join("\n")
  end

  def test_a_main_fiber_that_a_debugger_has_parked_is_told_when_it_is_back
    lines = report(<<~RUBY)
      main = Fiber.current.__park__
      trap(:ALRM) { main.__unpark__ }
      spawn("sleep 0.1; kill -ALRM $PPID")
      Polyphony::Event.new.await
    RUBY
    assert_match(/no fiber can ever run again/, lines.first)
  end

  def test_threads_that_all_wait_are_a_deadlock_too
    lines = report(<<~RUBY)
      queue = Polyphony::Queue.new
      thread = Thread.new { queue.shift }
      queue.shift
    RUBY
    assert_equal 2, lines.grep(/waits for an item in a queue/).size
  end

  def test_whoever_joins_a_thread_that_is_stuck_is_told_which
    lines = report(<<~RUBY)
      queue = Polyphony::Queue.new
      spin { Thread.new { queue.shift }.join }.await
    RUBY
    assert_equal 1, lines.grep(/waits for a thread to end \(#<Thread:.* -e:3/).size, lines
  end

  # What a thread waits for is there, and it has not run since: it waits for the GVL, or for the processor.
  def test_a_thread_whose_operation_has_just_ended_is_waited_for
    _, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      200.times do
        pipes = Array.new(4) { IO.pipe }
        threads = pipes.map { |reader, _| Thread.new { Polyphony.backend_read(reader, nil, 1, false, 0) } }
        sleep 0.0005
        pipes.each { |_, writer| writer.syswrite('.') }
        exit 2 unless threads.map(&:value) == %w[. . . .]
        pipes.flatten.each(&:close)
      end
    RUBY
    assert status.success?, err
  end

  def test_a_thread_that_is_at_work_is_waited_for
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      queue = Polyphony::Queue.new
      Thread.new { x = 0; 3_000_000.times { x += 1 }; queue << :help }
      p queue.shift
    RUBY
    assert_equal [":help\n", '', 0], [out, err, status.exitstatus]
  end

  # Threads are looked at one after the other, and run meanwhile: here the second wakes the first, which has been seen to wait.
  def test_a_thread_that_is_woken_while_the_others_are_looked_at_is_waited_for
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      first, answers, never = Array.new(3) { Polyphony::Queue.new }
      threads = [Thread.new { first.shift; answers << :woken }, Thread.new { never.shift }]
      Thread.pass until threads.all? { |thread| thread.status == 'sleep' }
      threads.last.define_singleton_method(:__polyphony_stock_pending?) { first << 1 if answers.empty?; super() }
      p answers.shift
      never << 1
      threads.each(&:join)
    RUBY
    assert_equal [":woken\n", '', 0], [out, err, status.exitstatus]
  end

  def test_it_can_be_rescued_and_the_program_goes_on
    out, = run_ruby(<<~RUBY)
      require 'polyphony'
      queue = Polyphony::Queue.new
      begin
        queue.shift
      rescue Polyphony::Deadlock
        puts :rescued
      end
      spin { queue << 1 }
      p queue.shift
    RUBY
    assert_equal "rescued\n1\n", out
  end

  def test_suspend_in_the_main_fiber_returns_when_all_work_is_done
    out, = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { puts 'going to sleep'; sleep 0.01; puts 'woke up' }
      suspend
      puts 'done'
    RUBY
    assert_equal "going to sleep\nwoke up\ndone\n", out
  end

  def test_an_object_whose_inspect_fails_does_not_hide_the_deadlock
    lines = report(<<~RUBY)
      class Odd
        def initialize = @list = Polyphony::WaitList.new(self)
        def inspect = raise(IOError, 'no')
        def lock = @list.park
      end
      Odd.new.lock
    RUBY
    assert_match(/no fiber can ever run again/, lines[0])
    assert_match(/waits for being woken \(one that cannot be shown \(IOError\)\)/, lines[1])
  end

  # Waits, with a time limit, for something that does that when it is shown.
  def while_explaining(&inspect)
    Object.new.tap { |object| object.define_singleton_method(:inspect, &inspect) }.then do |object|
      cancel_after(0.001) { Polyphony::WaitList.new(object).park }
    end
  end

  def test_an_exit_while_a_time_limit_is_explained_is_not_lost
    assert_equal 5, assert_raises(SystemExit) { while_explaining { exit 5 } }.status
  end

  def test_a_thread_that_is_killed_while_a_time_limit_is_explained_ends
    thread = Thread.new { while_explaining { Thread.current.kill } }
    assert thread.join(patient(5))
  end

  def test_a_time_limit_says_where_it_was_set_and_what_was_waited_for
    queue = Polyphony::Queue.new
    error = assert_raises(Polyphony::Cancel) { cancel_after(0.002) { queue.shift } }
    assert_match(/\Atime limit of 0.002 s is over, set at #{Regexp.escape(__FILE__)}:#{__LINE__ - 1}, while waiting for an item in a queue \(#<Polyphony::Queue/,
                 error.message)
    assert_includes error.inspect, 'time limit of 0.002 s'
  end

  def test_a_limit_with_an_exception_of_its_own_says_what_it_says
    error = assert_raises(IOError) { cancel_after(0.001, with_exception: [IOError, 'mine']) { sleep } }
    assert_equal 'mine', error.message
    assert_equal 'Polyphony::Cancel', assert_raises(Polyphony::Cancel) { cancel_after(5) { |s| s.cancel; snooze } }.message
  end
end
