# frozen_string_literal: true

require 'test_helper'

# Ruby's Fiber::Scheduler in the fibers that are spun, and alone.
class TestScheduler < Polyphony::TestCase
  def test_every_thread_has_one
    assert_instance_of Polyphony::Scheduler, Fiber.scheduler
    assert_instance_of Polyphony::Scheduler, Thread.new { Fiber.scheduler }.value
    assert_instance_of Polyphony::Scheduler, spin { Fiber.current_scheduler }.await
  end

  def test_a_mutex_is_passed_on_between_fibers
    mutex = Thread::Mutex.new
    order = []
    fibers = Array.new(3) { |i| spin { mutex.synchronize { order << i; snooze; order << i } } }
    Fiber.await(*fibers)
    assert_equal [0, 0, 1, 1, 2, 2], order
  end

  def test_who_is_stopped_with_the_lock_in_its_hands_passes_it_on
    mutex = Thread::Mutex.new
    mutex.lock
    got = []
    first, second = Array.new(2) { |i| spin { mutex.synchronize { snooze; got << i } } }
    snooze
    mutex.unlock
    first.stop
    second.await
    assert_equal [1], got
    refute mutex.locked?
  end

  def test_an_item_is_not_lost_with_a_stopped_taker
    queue = Thread::Queue.new
    got = []
    first, second = Array.new(2) { spin { got << queue.pop; snooze; got << :first_goes_on } }
    snooze
    queue << 1
    first.stop
    queue << 2
    second.await
    assert_equal [1, 2, :first_goes_on], got
  end

  def test_a_condition_variable_wakes_and_locks_again
    mutex = Thread::Mutex.new
    condition = Thread::ConditionVariable.new
    waiter = spin { mutex.synchronize { condition.wait(mutex); mutex.owned? } }
    snooze
    mutex.synchronize { condition.signal }
    assert waiter.await
    late = spin { mutex.synchronize { condition.wait(mutex, 0.001); mutex.owned? } }
    assert late.await
  end

  # As clients of databases do: Ruby sees the number alone, and does not see that it is closed and another
  # connection gets it.
  def test_descriptors_that_a_library_opens_and_closes_by_itself
    native_close = native(:close)
    20.times do |i|
      server, client = UNIXSocket.pair
      client.autoclose = false
      fd = client.fileno
      connection = IO.for_fd(fd, autoclose: false)
      assert_nil move_on_after(0.0005) { connection.wait_readable } if i.odd?
      reader = waiting { connection.wait_readable(patient(20)) && client.recv_nonblock(9) }
      server.write(i.to_s)
      assert_equal i.to_s, reader.await
      given_up = waiting { connection.wait_readable } if i % 3 == 0
      given_up&.stop
      native_close.call(fd)
      server.close
    end
  end

  def test_fiber_schedule_runs_at_once_and_is_waited_for
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      Fiber.schedule { print 'a'; sleep 0.001; print 'c' }
      print 'b'
    RUBY
    assert_equal 'abc', out, err
  end

  def test_a_thread_waits_for_what_it_has_scheduled
    log = []
    schedule = -> { Fiber.schedule { sleep 0.001; log << Fiber.current.parent.main? } }
    Thread.new(&schedule).join
    Thread.new { spin(&schedule).await; :value }.tap { |thread| assert_equal :value, thread.value }
    Thread.new { Fiber.set_scheduler(Polyphony::Scheduler.new); schedule.call }.join
    assert_equal [true, true, true], log
  end

  def test_a_thread_that_fails_stops_what_it_has_scheduled
    log = []
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Fiber.schedule { begin; sleep; ensure; log << :ended; end }
      raise IOError, 'mine'
    end
    assert_raises(IOError) { thread.join }
    assert_equal [:ended], log
  end

  def test_an_error_before_the_first_wait_is_raised_where_it_was_scheduled
    fail_at_once = -> { Fiber.schedule { raise IOError, 'mine' } }
    assert_raises(IOError, &fail_at_once)
    assert_kind_of IOError, spin { outcome(&fail_at_once) }.await
    assert_raises(IOError) { spin(&fail_at_once).await }
  end

  def test_a_later_error_is_raised_in_the_main_fiber
    spun = spin { Fiber.schedule { snooze; raise IOError, 'mine' }; suspend }
    assert_raises(IOError) { suspend }
    assert_equal :waiting, spun.state
  end

  def test_alone
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony/core'
      Fiber.set_scheduler(Polyphony::Scheduler.new)
      reader, writer = IO.pipe
      Fiber.schedule { print reader.gets }
      Fiber.schedule { sleep 0.001; writer.puts 'hello' }
      Thread.new { Fiber.set_scheduler(Polyphony::Scheduler.new); Fiber.schedule { sleep 0.001; print 'thread ' } }.join
    RUBY
    assert_equal "thread hello\n", out, err
  end

  def test_in_at_exit
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      at_exit do
        reader, writer = IO.pipe
        other = spin { writer.puts 'late' }
        print spin { reader.gets }.await
        spin { writer.puts 'main' }
        print reader.gets
      end
      snooze
    RUBY
    assert_equal "late\nmain\n", out, err
  end

  private

  # @return [#call] a function of the C library that takes a number
  def native(name)
    require 'fiddle'
    Fiddle::Function.new(Fiddle::Handle::DEFAULT[name.to_s], [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
  rescue LoadError => e
    skip e.message
  end
end
