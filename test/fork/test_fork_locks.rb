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

  # Ruby's own know nothing of what happens to our fibers. Whoever has one waits in each of the ways there are.
  def test_the_child_takes_over_what_fibers_have_locked_with_ruby_s_own
    holders = { wait: 'spin { lock.synchronize { reader.read(1) } }', sleep: 'spin { lock.synchronize { sleep } }',
                turn: 'spin { lock.synchronize { loop { snooze } } }', ours: 'spin { lock.synchronize { Polyphony::Queue.new.shift } }',
                enumerator: 'spin { lock.synchronize { Enumerator.new { |all| all << sleep(0.1) }.next; sleep } }' }
    holders.each do |name, holder|
      assert_equal ['mine mine true', 'parent: true true true'], lines_of(<<~RUBY), name
        require 'monitor'
        reader, writer = IO.pipe
        locks = [Thread::Mutex.new, Monitor.new]
        fibers = locks.map { |lock| #{holder} }
        waiting = locks.map { |lock| spin { lock.synchronize { :late } } }
        sleep #{name == :enumerator ? 0.2 : 0.002}
        own = Thread::Mutex.new.tap(&:lock)
        Process.wait(fork { puts "\#{locks.map { |lock| lock.synchronize { :mine } }.join(' ')} \#{own.owned?}" })
        puts "parent: \#{locks.map { |lock| !lock.try_enter rescue lock.locked? }.join(' ')} \#{waiting.all? { |fiber| fiber.state == :waiting }}"
        fibers.each(&:stop)
        Fiber.await(fibers)
        exit!(waiting.map(&:await) == %i[late late] ? 0 : 1)
      RUBY
    end
  end

  def test_the_child_of_a_fiber_takes_over_what_the_main_fiber_has_locked
    ['reader.gets', 'sleep 0.1', 'Thread::Queue.new.pop(timeout: 0.1) rescue sleep(0.1)', 'done.await'].each do |wait|
      assert_equal %w[0 mine true], lines_of(<<~RUBY).sort, wait
        reader, writer = IO.pipe
        lock = Thread::Mutex.new
        done = nil
        lock.synchronize do
          done = spin do
            pid = spin { sleep 0.01; fork { puts lock.synchronize { :mine } } }.await
            Process.wait(pid)
            puts $?.exitstatus
            writer.puts
          end
          #{wait}
          puts lock.owned?
        end
        done.await
      RUBY
    end
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
