# frozen_string_literal: true

require_relative '../test_helper'
require 'objspace'

# Locks, conditions, semaphores and channels while the garbage collector is at its worst.
class TestGCLocks < Polyphony::TestCase
  on_every_driver
  time_limit 120

  SCENARIOS = {
    mutex: lambda { |test|
      lock = Polyphony::Mutex.new
      log = []
      fibers = Array.new(3) { |i| test.spin { lock.synchronize { log << "fiber #{i}"; test.snooze } } }
      Fiber.await(fibers)
      test.assert_equal ['fiber 0', 'fiber 1', 'fiber 2'], log
    },
    dead_holder: lambda { |test|
      lock = Polyphony::Mutex.new
      test.spin { lock.lock; test.snooze }
      test.assert_equal 'mine', test.spin { lock.synchronize { +'mine' } }.await
    },
    monitor: lambda { |test|
      monitor = Polyphony::Monitor.new
      cond = monitor.new_cond
      fiber = test.spin { monitor.synchronize { monitor.synchronize { cond.wait } } }
      test.snooze
      monitor.synchronize { cond.signal }
      test.assert_equal true, fiber.await
    },
    condition: lambda { |test|
      lock = Polyphony::Mutex.new
      cond = Polyphony::ConditionVariable.new
      fiber = test.spin { lock.synchronize { [cond.wait(lock), cond.wait(lock, 0.0005)] } }
      test.snooze
      cond.signal
      test.assert_equal [true, false], fiber.await
    },
    cancelled_condition: lambda { |test|
      lock = Polyphony::Mutex.new
      cond = Polyphony::ConditionVariable.new
      fiber = test.spin { lock.synchronize { cond.wait(lock) } }
      test.snooze
      lock.lock
      3.times { |i| fiber.stop("stop #{i}"); test.snooze }
      lock.unlock
      test.assert_equal 'stop 0', fiber.await
      test.assert_nil lock.locked?
    },
    semaphore: lambda { |test|
      gate = Polyphony::Semaphore.new(2)
      fibers = Array.new(4) { |i| test.spin { gate.synchronize { test.snooze; "fiber #{i}" } } }
      test.assert_equal (0...4).map { |i| "fiber #{i}" }, Fiber.await(fibers)
      test.assert_equal 2, gate.available
    },
    channel: lambda { |test|
      channel = Polyphony::Channel.new
      fiber = test.spin { [].tap { |got| channel.receive_loop { |item| got << item } } }
      channel << +'one' << +'two'
      4.times { test.snooze }
      channel.close
      test.assert_equal %w[one two], fiber.await
    },
    threads: lambda { |test|
      lock = Polyphony::Mutex.new
      count = 0
      threads = Array.new(2) { Thread.new { 3.times { lock.synchronize { count += 1; Thread.pass } } } }
      threads.each(&:join)
      test.assert_equal 6, count
    }
  }.freeze

  public :spin, :snooze # for the lambdas above

  SCENARIOS.each do |name, scenario|
    define_method("test_#{name}_under_gc_stress") do
      scenario.call(self)
      begin
        GC.stress = true
        scenario.call(self)
      ensure
        GC.stress = false
      end
    end
  end

  def compact
    GC.compact
  rescue NotImplementedError
    skip 'this Ruby does not compact'
  end

  def verify_references
    options = RUBY_VERSION < '3.2' ? { double_heap: true } : { expand_heap: true }
    GC.verify_compaction_references(toward: :empty, **options)
  rescue NotImplementedError
    skip 'this Ruby does not compact'
  end

  # Everybody waits for something while all objects move.
  def crowd
    lock, cond = Polyphony::Mutex.new, Polyphony::ConditionVariable.new
    gate, channel = Polyphony::Semaphore.new(1), Polyphony::Channel.new
    holder = spin { lock.synchronize { gate.synchronize { Polyphony.backend_wait_event(true); +'holder' } } }
    fibers = [
      spin { lock.synchronize { +'lock' } },
      spin { gate.synchronize { +'gate' } },
      spin { own = Polyphony::Mutex.new; own.synchronize { cond.wait(own); +'cond' } },
      spin { channel.receive }
    ]
    3.times { snooze }
    yield
    assert_equal holder, lock.locked?
    assert_equal [holder], gate.holders.map(&:first)
    cond.signal
    channel << +'channel'
    holder.schedule
    assert_equal %w[holder lock gate cond channel], Fiber.await(holder, *fibers)
  end

  def test_objects_move_while_fibers_wait
    crowd { 3.times { compact; snooze } }
  end

  def test_references_are_verified_while_fibers_wait
    skip 'this Ruby cannot verify references' unless GC.respond_to?(:verify_compaction_references)
    crowd { verify_references }
  end

  def test_every_type_tells_its_size
    slot = ObjectSpace.memsize_of(Object.new)
    gate = Polyphony::Semaphore.new(100)
    [Polyphony::Mutex.new, Polyphony::Monitor.new, Polyphony::ConditionVariable.new, gate].each do |object|
      assert_operator ObjectSpace.memsize_of(object), :>, slot, object.class.to_s
    end
    empty = ObjectSpace.memsize_of(gate)
    100.times { gate.acquire }
    assert_operator ObjectSpace.memsize_of(gate), :>=, empty + 100 * 16
  end

  # Somebody has waited for them, so it is looked whether their holders live.
  def test_locks_nobody_refers_to_are_collected_with_those_who_hold_them
    heavy
    make = lambda do
      lock = Polyphony::Mutex.new
      Fiber.new { lock.lock; Fiber.yield }.resume
      move_on_after(0) { lock.lock }
      lock.__id__
    end
    ids = spin { Array.new(300) { spin(&make).await } }.await
    3.times { spin { Array.new(100) { +'' } }.await; GC.start }
    left = ids.count do |id|
      ObjectSpace._id2ref(id)
    rescue RangeError
      false
    end
    assert_operator left, :<, 150
  end

  # Whether their holders live is looked at while one waits; what the collector has found must not be touched.
  def test_locks_and_holders_that_wait_to_be_swept_are_left_alone
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      abandon = lambda do
        lock = Polyphony::Mutex.new
        Fiber.new { lock.lock; Fiber.yield }.resume
        move_on_after(0) { lock.lock }
      end
      10.times do
        spin { 300.times { spin(&abandon).await } }.await
        GC.start(full_mark: true, immediate_mark: true, immediate_sweep: false)
        20.times { sleep 0.0001 }
        Array.new(2000) { +'' }
        5.times { sleep 0.0001 }
      end
      puts 'ok', GC.enable
    RUBY
    assert_predicate status, :success?, err
    assert_equal "ok\nfalse\n", out
  end

  def test_memory_does_not_grow_with_the_number_of_locks_taken
    heavy
    lock, gate = Polyphony::Mutex.new, Polyphony::Semaphore.new(2)
    round = lambda do
      2000.times do
        fibers = Array.new(2) { spin { lock.synchronize { gate.synchronize { snooze } } } }
        Fiber.await(fibers)
      end
      GC.start
      [ObjectSpace.memsize_of(lock), ObjectSpace.memsize_of(gate), ObjectSpace.count_objects[:T_DATA]]
    end
    before = round.call
    after = round.call
    assert_equal before.first(2), after.first(2)
    assert_operator after.last, :<, before.last + 2000
  end
end
