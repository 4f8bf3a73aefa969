# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/alone'

# A scheduler of somebody else's in a thread where fibers are spun: each has the waits of its own.
class TestOtherSchedulers < Polyphony::TestCase
  include Polyphony::Alone

  on_every_driver

  # with_other sets one; the heart beats before, meanwhile and behind.
  PRELUDE = WORDS + <<~RUBY
    require 'polyphony'
    require 'socket'
    require 'timeout'
    require #{File.expand_path('../support/other_scheduler.rb', __dir__).dump}

    def with_other(other = OtherScheduler.new)
      beats = 0
      heart = spin { loop { sleep 0.0005; beats += 1 } }
      before = beats
      Fiber.set_scheduler(other)
      yield other
      sleep 0.001 until beats > before + 5
      before = beats
      Fiber.set_scheduler(nil)
      same(false) { other.seen.include?(heart) }
      sleep 0.001 until beats > before + 5
    ensure
      heart&.stop
    end

    # In the main thread, and in another one.
    def everywhere(&block)
      with_other(&block)
      Thread.new { Thread.current.report_on_exception = false; with_other(&block) }.join
    end
  RUBY

  def assert_beside(code)
    assert_alone(code, prelude: PRELUDE)
  end

  def test_it_has_the_fibers_of_fiber_schedule
    assert_beside <<~'RUBY'
      everywhere do |other|
        log = []
        reader, writer = IO.pipe
        Fiber.schedule { log << reader.gets }
        Fiber.schedule { sleep 0.002; writer.puts 'hello'; log << Fiber.current_scheduler.equal?(other) }
        same(true) { Fiber.scheduler.equal?(other) }
        same(nil) { Fiber.current_scheduler }
        other.run
        same([true, "hello\n"]) { log }
        same(2) { other.seen.uniq.size }
      end
    RUBY
  end

  def test_spun_fibers_go_on_as_before
    assert_beside <<~'RUBY'
      everywhere do |other|
        reader, writer = IO.pipe
        queue = Thread::Queue.new
        waits = {
          -> { reader.gets } => "line\n", -> { reader.wait_readable.equal?(reader) } => true, -> { queue.pop } => 1,
          -> { sleep 0.001; :slept } => :slept, -> { `echo hi` } => "hi\n", -> { Thread.new { sleep 0.001; 5 }.value } => 5,
          -> { outcome { Timeout.timeout(0.002) { sleep } }.first } => Timeout::Error,
          -> { IO.select([reader])[0] == [reader] } => true, -> { Fiber.current_scheduler.is_a?(Polyphony::Scheduler) } => true,
          -> { TCPServer.open('localhost', 0) { |server| TCPSocket.new('localhost', server.addr[1]).close; server.accept.read } } => ''
        }
        Fiber.schedule { sleep 0.002; 2.times { queue << 1 } }
        spun = waits.keys.map { |wait| spin(&wait) }
        spin { sleep 0.001; writer.puts 'line'; writer.puts 'line' }
        Fiber.schedule { sleep 0.003 until spun.all?(&:dead?) }
        other.run
        same(waits.values) { spun.map(&:await) }
        same([]) { other.seen & spun }
      end
    RUBY
  end

  def test_locks_and_queues_between_the_two
    assert_beside <<~'RUBY'
      everywhere do |other|
        mutex = Thread::Mutex.new
        inside = most = turns = 0
        work = lambda do
          10.times do
            mutex.synchronize { inside += 1; most = [most, inside].max; sleep 0.0002; inside -= 1; turns += 1 }
          end
        end
        there, back = Array.new(2) { Thread::Queue.new }
        echo = -> { 10.times { back << there.pop } }
        call = -> { Array.new(10) { |i| there << i; back.pop } }
        2.times { Fiber.schedule(&work) }
        spun = Array.new(2) { spin(&work) }
        Fiber.schedule(&echo)
        calls = spin(&call)
        other.run
        spun.each(&:await)
        same([1, 40, [*0..9]]) { [most, turns, calls.await] }
        heard = nil
        Fiber.schedule { heard = call.call }
        spin(&echo)
        other.run
        same([*0..9]) { heard }
      end
    RUBY
  end

  def test_a_signal_between_the_two
    assert_beside <<~'RUBY'
      everywhere do |other|
        mutex = Thread::Mutex.new
        condition = Thread::ConditionVariable.new
        log = []
        Fiber.schedule { mutex.synchronize { condition.wait(mutex); log << :other } }
        spun = spin { mutex.synchronize { condition.wait(mutex); log << :ours } }
        snooze
        Fiber.schedule { sleep 0.001; mutex.synchronize { condition.broadcast } }
        other.run
        spun.await
        same(%i[other ours]) { log.sort }
      end
    RUBY
  end

  # From a spun fiber it is the other's, too.
  def test_fiber_schedule_in_a_spun_fiber
    assert_beside <<~'RUBY'
      everywhere do |other|
        log = []
        spin { Fiber.schedule { log << Fiber.current_scheduler.equal?(other); sleep 0.001; log << :late }; log << :spun }.await
        same([true, :spun]) { log.dup }
        other.run
        same([true, :spun, :late]) { log }
      end
    RUBY
  end

  def test_whoever_waited_before_is_woken_meanwhile
    assert_beside <<~'RUBY'
      reader, writer = IO.pipe
      queue = Thread::Queue.new
      mutex = Thread::Mutex.new.tap(&:lock)
      spun = [spin { reader.gets }, spin { queue.pop }, spin { mutex.synchronize { :in } }]
      snooze
      with_other do
        writer.puts 'hello'
        queue << 1
        mutex.unlock
        same(["hello\n", 1, :in]) { spun.map(&:await) }
      end
      after = spin { [reader.gets, Fiber.scheduler.class] }
      snooze
      writer.puts 'again'
      same(["again\n", Polyphony::Scheduler]) { after.await }
    RUBY
  end

  def test_the_end_of_a_thread_closes_it
    assert_beside <<~'RUBY'
      log = []
      Thread.new { Fiber.set_scheduler(OtherScheduler.new); Fiber.schedule { sleep 0.001; log << :late } }.join
      same([:late]) { log }
      Fiber.set_scheduler(OtherScheduler.new)
      Fiber.schedule { sleep 0.001; log << :later }
      at_exit { same(%i[late later]) { log } }
    RUBY
  end

  # Its fibers run on when the block of the thread has ended.
  def test_no_loop_is_left_behind_by_a_thread_that_has_one
    assert_beside <<~'RUBY'
      sleep 0
      before = Dir.children('/proc/self/fd').size
      Thread.new do
        Fiber.set_scheduler(OtherScheduler.new)
        Fiber.schedule { Thread.new { sleep 0.001 }.value; Timeout.timeout(10) { sleep 0.001 } }
      end.join
      same(before) { Dir.children('/proc/self/fd').size }
      slow = Class.new(OtherScheduler) { def unblock(...) = super.tap { sleep 0.001 } } # in a thread that has ended
      Thread.new { Fiber.set_scheduler(slow.new); Fiber.schedule { Thread.new { sleep 0.001 }.value } }.join
      same(before) { Dir.children('/proc/self/fd').size }
    RUBY
  end

  def test_what_ruby_refuses_is_refused
    assert_beside <<~'RUBY'
      same([ArgumentError, 'Scheduler must implement #block']) { outcome { Fiber.set_scheduler(Object.new) } }
      same(Polyphony::Scheduler) { Fiber.scheduler.class }
      with_other { |other| same(false) { Fiber.scheduler.respond_to?(:io_read) } }
    RUBY
  end
end
