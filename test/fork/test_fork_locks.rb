# frozen_string_literal: true

require_relative '../test_helper'

# Locks in a forked child, where of all fibers only the forking one lives on.
class TestForkLocks < Polyphony::TestCase
  on_every_driver

  # Runs a program that forks; all it prints, parent and child, line by line.
  def lines_of(code)
    out, err, status = run_ruby("require 'polyphony'; $stdout.sync = true\n#{code}")
    assert status.success?, "#{err}\n#{out}"
    assert_empty err
    out.lines(chomp: true)
  end

  def test_everything_works_in_the_child
    assert_equal ['[1, 2]', 'true', '[0, 2]', '[:a, :b]'], lines_of(<<~RUBY)
      Process.wait(fork do
        lock, cond, gate, items = Polyphony::Mutex.new, Polyphony::ConditionVariable.new, Polyphony::Semaphore.new(2), []
        taker = spin { lock.synchronize { cond.wait(lock) while items.size < 2; items } }
        spin { [1, 2].each { |i| lock.synchronize { items << i; cond.signal; snooze } } }
        p taker.await
        p Thread.new { lock.synchronize { true } }.value
        gates = Array.new(3) { spin { gate.synchronize { snooze; gate.available } } }
        p [Fiber.await(gates).min, gate.available]
        channel = Polyphony::Channel.new
        receiver = spin { [].tap { |got| channel.receive_loop { |item| got << item } } }
        channel << :a << :b
        4.times { snooze }
        channel.close
        p receiver.await
      end)
    RUBY
  end

  def test_the_child_takes_over_what_a_fiber_of_the_parent_holds
    assert_equal ['child: nil mine', 'parent: true'], lines_of(<<~'RUBY')
      lock = Polyphony::Mutex.new
      holder = spin { lock.synchronize { Polyphony.backend_wait_event(true) } }
      spin { lock.synchronize { nil } }
      2.times { snooze }
      Process.wait(fork { puts "child: #{lock.locked?.inspect} #{lock.synchronize { :mine }}" })
      puts "parent: #{lock.locked? == holder}"
      holder.schedule
      holder.await
    RUBY
  end

  def test_the_child_takes_over_what_a_thread_of_the_parent_holds
    assert_equal %w[mine mine], lines_of(<<~'RUBY')
      waits, works = Polyphony::Mutex.new, Polyphony::Mutex.new
      stop = false
      threads = [Thread.new { waits.synchronize { sleep } }, Thread.new { works.lock; Thread.pass until stop }]
      Thread.pass until waits.locked? && works.locked?
      Process.wait(fork { [waits, works].each { |lock| puts lock.synchronize { :mine } } })
      stop = true
      threads.each(&:kill)
    RUBY
  end

  def test_what_the_forking_fiber_holds_it_holds_in_the_child_too
    assert_equal ['child: true true', 'child: after', 'parent: true'], lines_of(<<~'RUBY')
      lock = Polyphony::Mutex.new
      pid = nil
      lock.synchronize do
        pid = fork do
          puts "child: #{lock.owned?} #{!spin { lock.try_lock }.await}"
          lock.unlock
          puts "child: #{spin { lock.synchronize { :after } }.await}"
        end
        Process.wait(pid)
        puts "parent: #{lock.owned?}"
      end
    RUBY
  end

  # Those who had been woken in the parent do not run in the child: nobody waits for them.
  def test_who_was_woken_in_the_parent_does_not_block_the_child
    assert_equal ['child: true 1', 'parent: got got'], lines_of(<<~'RUBY')
      lock, gate = Polyphony::Mutex.new, Polyphony::Semaphore.new(1)
      lock.lock
      gate.acquire
      fibers = [spin { lock.synchronize { :got } }, spin { gate.synchronize { :got } }]
      snooze
      lock.unlock
      gate.release
      Process.wait(fork { puts "child: #{lock.try_lock} #{gate.available}" })
      puts "parent: #{Fiber.await(fibers).join(' ')}"
    RUBY
  end
end
