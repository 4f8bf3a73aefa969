# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/beside'
require_relative '../support/heartbeat'
require_relative '../support/thread_helpers'
require 'concurrent'

# concurrent-ruby, unchanged: its locks, its thread pools and what is built on them block one fiber.
class TestConcurrentRuby < Polyphony::TestCase
  include Polyphony::Heartbeat
  include Polyphony::ThreadHelpers

  on_every_driver

  WHERE = Polyphony::Beside::WHERE

  def setup
    @pools = []
  end

  def teardown
    @pools.each(&:shutdown)
    @pools.each { |pool| assert pool.wait_for_termination(patient(20)), 'the pool has not ended' }
    # The pool says so a little before its threads have ended.
    wait_until('the threads of the pools have ended') { Thread.list.none? { |thread| thread.name&.start_with?('under test') } }
  end

  def pool(size = 2)
    Concurrent::FixedThreadPool.new(size, name: 'under test').tap { |pool| @pools << pool }
  end

  # Name => what prepares [wait, satisfy, expected]: the wait ends only after satisfy was called.
  WAITS = {
    future: lambda do
      gate = Concurrent::Event.new
      future = Concurrent::Future.execute(executor: pool) { gate.wait; 42 }
      [-> { future.value }, -> { gate.set }, 42]
    end,
    future_with_a_limit: lambda do
      gate = Concurrent::Event.new
      future = Concurrent::Future.execute(executor: pool) { gate.wait; 42 }
      [-> { future.value(patient(20)) }, -> { gate.set }, 42]
    end,
    future_that_fails: lambda do
      gate = Concurrent::Event.new
      future = Concurrent::Future.execute(executor: pool) { gate.wait; raise IOError, 'failed' }
      [-> { outcome { future.value! }.message }, -> { gate.set }, 'failed']
    end,
    promise: lambda do
      gate = Concurrent::Event.new
      promise = Concurrent::Promise.execute(executor: pool) { gate.wait; 20 }.then { |n| n + 1 }.then { |n| n * 2 }
      [-> { promise.value }, -> { gate.set }, 42]
    end,
    promises_future: lambda do
      gate = Concurrent::Event.new
      future = Concurrent::Promises.future_on(pool, 20) { |n| gate.wait; n + 1 }.then { |n| n * 2 }
      [-> { future.value! }, -> { gate.set }, 42]
    end,
    promises_zip: lambda do
      gate = Concurrent::Event.new
      jobs = Array.new(3) { |i| Concurrent::Promises.future_on(on = pool) { gate.wait; i }.then_on(on) { |n| n * 2 } }
      [-> { Concurrent::Promises.zip(*jobs).value! }, -> { gate.set }, [0, 2, 4]]
    end,
    promises_any: lambda do
      first, other = Array.new(2) { Concurrent::Promises.resolvable_future }
      [-> { Concurrent::Promises.any(other, first).value }, -> { first.fulfill(:first) }, :first]
    end,
    promises_rescue: lambda do
      future = Concurrent::Promises.resolvable_future
      saved = future.rescue_on(pool) { |error| error.message }
      [-> { saved.value }, -> { future.reject(IOError.new('rejected')) }, 'rejected']
    end,
    promises_event: lambda do
      event = Concurrent::Promises.resolvable_event
      [-> { event.wait.equal?(event) }, -> { event.resolve }, true]
    end,
    promises_limit: lambda do
      future = Concurrent::Promises.resolvable_future
      [-> { future.wait(patient(20)) && future.value }, -> { future.fulfill(1) }, 1]
    end,
    delay: lambda do
      gate = Concurrent::Event.new
      delay = Concurrent::Delay.new(executor: pool) { gate.wait; :late }
      [-> { delay.value(patient(20)) }, -> { gate.set }, :late]
    end,
    event: lambda do
      event = Concurrent::Event.new
      [-> { event.wait }, -> { event.set }, true]
    end,
    count_down_latch: lambda do
      latch = Concurrent::CountDownLatch.new(2)
      [-> { latch.wait(patient(20)) }, -> { 2.times { latch.count_down } }, true]
    end,
    semaphore: lambda do
      semaphore = Concurrent::Semaphore.new(1)
      semaphore.acquire
      [-> { semaphore.acquire { semaphore.available_permits } }, -> { semaphore.release }, 0]
    end,
    read_write_lock: lambda do
      lock = Concurrent::ReadWriteLock.new
      lock.acquire_read_lock
      [-> { lock.with_write_lock { :written } }, -> { lock.release_read_lock }, :written]
    end,
    ivar: lambda do
      ivar = Concurrent::IVar.new
      [-> { ivar.value }, -> { ivar.set(7) }, 7]
    end,
    mvar_take: lambda do
      mvar = Concurrent::MVar.new
      [-> { mvar.take }, -> { mvar.put(:item) }, :item]
    end,
    mvar_put: lambda do
      mvar = Concurrent::MVar.new(:first)
      [-> { mvar.put(:second) }, -> { mvar.take }, :second]
    end,
    dataflow: lambda do
      gate = Concurrent::Event.new
      on = pool
      one = Concurrent.dataflow_with(on) { gate.wait; 1 }
      [-> { Concurrent.dataflow_with(on, one) { |n| n + 1 }.value }, -> { gate.set }, 2]
    end,
    agent: lambda do
      gate = Concurrent::Event.new
      agent = Concurrent::Agent.new(1)
      agent.send_via(pool) { |n| gate.wait; n + 1 }
      [-> { agent.await_for(patient(20)) && agent.value }, -> { gate.set }, 2]
    end,
    caller_runs: lambda do
      gate = Concurrent::Event.new
      full = Concurrent::ThreadPoolExecutor.new(name: 'under test', min_threads: 1, max_threads: 1, max_queue: 1,
                                                fallback_policy: :caller_runs)
      @pools << full
      2.times { full.post { gate.wait } }
      here = Thread.current
      ran = nil
      [-> { full.post { gate.wait; ran = Thread.current }; ran.equal?(here) }, -> { gate.set }, true]
    end,
    wait_for_termination: lambda do
      gate = Concurrent::Event.new
      ending = pool
      ending.post { gate.wait }
      [-> { ending.shutdown; ending.wait_for_termination(patient(20)) }, -> { gate.set }, true]
    end,
    tvar: lambda do
      tvar = Concurrent::TVar.new(0)
      gate = Concurrent::Event.new
      [-> { gate.wait; Concurrent.atomically { tvar.value += 1 } }, -> { Concurrent.atomically { tvar.value += 1 }; gate.set }, 2]
    end
  }.freeze

  WAITS.each do |name, prepare|
    WHERE.each do |where, run|
      define_method("test_#{name}_blocks_one_fiber_#{where}") do
        wait, satisfy, expected = instance_exec(&prepare)
        assert_equal [expected], [assert_yields(satisfy) { instance_exec(wait, &run) }]
      end
    end

    # What it waited for is there for the next who asks.
    define_method("test_#{name}_may_be_cancelled") do
      wait, satisfy, expected = instance_exec(&prepare)
      WHERE.each_value do |run|
        assert_equal :late, move_on_after(0.002, with_value: :late) { instance_exec(wait, &run) }
      end
      stopped = waiting(&wait)
      stopped.stop
      stopped.await
      satisfy.call
      assert_equal [expected], [wait.call]
    end
  end

  # --- locks that know their owner ----------------------------------------------------------------------------------

  # The owner is the fiber: two fibers of one thread keep each other out, and one may enter twice.
  WHERE.each do |where, run|
    define_method("test_a_reentrant_lock_is_held_by_a_fiber_#{where}") do
      lock = Concurrent::ReentrantReadWriteLock.new
      inside = Polyphony::Event.new
      gate = Polyphony::Event.new
      holder = spin { lock.with_write_lock { lock.with_write_lock { inside.signal; gate.await } } }
      inside.await
      refute lock.try_read_lock
      assert_equal(:read, assert_yields(-> { gate.signal }) { instance_exec(-> { lock.with_read_lock { :read } }, &run) })
      holder.await
    end
  end

  def test_a_fiber_that_gives_up_waiting_for_a_reentrant_lock_leaves_it_usable
    lock = Concurrent::ReentrantReadWriteLock.new
    inside = Polyphony::Event.new
    gate = Polyphony::Event.new
    holder = spin { lock.with_read_lock { inside.signal; gate.await } }
    inside.await
    assert_equal :late, move_on_after(0.002, with_value: :late) { lock.with_write_lock { flunk } }
    gate.signal
    holder.await
    assert_equal :written, spin { lock.with_write_lock { :written } }.await
  end

  def test_readers_are_in_together_and_a_writer_alone
    lock = Concurrent::ReadWriteLock.new
    inside = most = 0
    readers = Array.new(5) do
      spin { lock.with_read_lock { inside += 1; most = [most, inside].max; sleep 0.001; inside -= 1 } }
    end
    writer = spin { lock.with_write_lock { inside } }
    readers.each(&:await)
    assert_equal [5, 0], [most, writer.await]
  end

  # --- many fibers ----------------------------------------------------------------------------------------------------

  def test_many_fibers_wait_for_the_jobs_of_one_pool
    on = pool(3)
    beats = 0
    spin { loop { beats += 1; snooze } }
    fibers = Array.new(50) { |i| spin { Concurrent::Promises.future_on(on) { Thread.pass; i * i }.value! } }
    assert_equal Array.new(50) { |i| i * i }, fibers.map(&:await)
    assert_operator beats, :>, 0
  end

  # A job may use fibers itself: its thread has a loop of its own, which ends with it.
  def test_jobs_may_spin
    on = pool(2)
    jobs = Array.new(4) do |i|
      Concurrent::Future.execute(executor: on) { Array.new(3) { |j| spin { sleep 0.001; i * 10 + j } }.map(&:await) }
    end
    assert_equal [[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32]], jobs.map(&:value)
  end

  # The block waits, and is called once all the same.
  def test_compute_if_absent_from_many_fibers_and_threads
    map = Concurrent::Map.new
    calls = Concurrent::AtomicFixnum.new
    ask = -> { map.compute_if_absent(:key) { calls.increment; sleep 0.001; :made } }
    fibers = Array.new(20) { spin(&ask) }
    threads = Array.new(3) { Thread.new { Array.new(5) { spin(&ask) }.map(&:await) } }
    assert_equal [:made], (fibers.map(&:await) + threads.flat_map(&:value)).uniq
    assert_equal 1, calls.value
  end

  def test_a_fiber_that_is_stopped_while_it_computes_leaves_the_map_usable
    map = Concurrent::Map.new
    fiber = waiting { map.compute_if_absent(:key) { sleep } }
    other = spin { map.compute_if_absent(:key) { :other } }
    snooze
    fiber.stop
    assert_equal [nil, :other], [fiber.await, other.await]
  end

  def test_what_changes_in_one_step_changes_in_one_step
    atom = Concurrent::Atom.new(0)
    reference = Concurrent::AtomicReference.new(0)
    array = Concurrent::Array.new
    tvar = Concurrent::TVar.new(0)
    Array.new(20) do |i|
      spin do
        atom.swap { |n| snooze; n + 1 }
        reference.update { |n| snooze; n + 1 }
        Concurrent.atomically { n = tvar.value; snooze; tvar.value = n + 1 }
        array << i
      end
    end.each(&:await)
    assert_equal [20, 20, 20, 20], [atom.value, reference.value, tvar.value, array.size]
  end

  # --- meeting --------------------------------------------------------------------------------------------------------

  def test_fibers_and_threads_meet_at_a_barrier
    beats = 0
    spin { loop { beats += 1; snooze } }
    done = 0
    barrier = Concurrent::CyclicBarrier.new(4) { done += 1 }
    2.times do
      fibers = Array.new(2) { spin { barrier.wait } }
      thread = Thread.new { barrier.wait }
      assert barrier.wait
      assert_equal [true, true, true], fibers.map(&:await) + [thread.value]
    end
    assert_equal 2, done
    assert_operator beats, :>, 0
  end

  # Who has given up counts as one who waits, as in stock Ruby (Timeout): reset begins anew.
  def test_a_fiber_that_gives_up_at_a_barrier
    barrier = Concurrent::CyclicBarrier.new(2)
    assert_equal :late, move_on_after(0.001, with_value: :late) { barrier.wait }
    barrier.reset
    other = spin { barrier.wait }
    assert barrier.wait
    assert other.await
  end

  def test_two_fibers_exchange
    WHERE.each_value do |run|
      exchanger = Concurrent::Exchanger.new
      other = nil
      mine = assert_yields(-> { other = exchanger.exchange(:theirs) }) { instance_exec(-> { exchanger.exchange(:mine) }, &run) }
      assert_equal %i[theirs mine], [mine, other]
    end
  end

  # Who is interrupted leaves its offer behind, as in stock Ruby (Timeout); who gives up by the exchanger's own
  # limit takes it back.
  def test_a_fiber_that_gives_up_an_exchange
    exchanger = Concurrent::Exchanger.new
    assert_nil spin { exchanger.exchange(:too_early, 0.001) }.await
    assert_nil exchanger.exchange(:too_early, 0.001)
    other = spin { exchanger.exchange(:theirs) }
    assert_equal %i[theirs mine], [exchanger.exchange(:mine), other.await]
    assert_equal :late, move_on_after(0.001, with_value: :late) { exchanger.exchange(:left) }
    assert_equal :left, exchanger.exchange(:mine)
  end

  # --- later ----------------------------------------------------------------------------------------------------------

  WHERE.each do |where, run|
    define_method("test_a_scheduled_task_#{where}") do
      task = Concurrent::ScheduledTask.execute(0.001, executor: pool) { :done }
      beats = 0
      spin { loop { beats += 1; snooze } }
      assert_equal :done, instance_exec(-> { task.value }, &run)
      assert_operator beats, :>, 0
    end

    define_method("test_a_timer_task_ticks_while_fibers_run_#{where}") do
      ticks = Concurrent::CountDownLatch.new(3)
      timer = Concurrent::TimerTask.execute(execution_interval: 0.001, executor: pool) { ticks.count_down }
      assert instance_exec(-> { ticks.wait }, &run)
    ensure
      timer&.shutdown
      timer&.wait_for_termination
    end

    define_method("test_promises_schedule_#{where}") do
      later = Concurrent::Promises.schedule_on(pool, 0.001) { :later }
      assert_equal :later, instance_exec(-> { later.value! }, &run)
    end
  end

  # --- objects that answer later ------------------------------------------------------------------------------------

  class Echo
    include Concurrent::Async

    def echo(message)
      Thread.pass
      raise IOError, 'nothing to say' unless message

      message
    end
  end

  def test_async_objects
    beats = 0
    spin { loop { beats += 1; snooze } }
    echo = Echo.new
    answers = Array.new(3) { |i| spin { echo.async.echo(i).value } }
    assert_equal [0, 1, 2], answers.map(&:await)
    assert_equal 'nothing to say', echo.await.echo(nil).reason.message
    assert_operator beats, :>, 0
  end

  # --- locals ---------------------------------------------------------------------------------------------------------

  def test_locals_of_threads_and_of_fibers
    thread_local = Concurrent::ThreadLocalVar.new(:none)
    fiber_local = Concurrent::FiberLocalVar.new(:none)
    thread_local.value = fiber_local.value = :main
    seen = spin do
      before = [thread_local.value, fiber_local.value]
      fiber_local.value = :spun
      snooze
      before + [fiber_local.value]
    end.await
    assert_equal %i[main none spun], seen
    assert_equal %i[main main], [thread_local.value, fiber_local.value]
    assert_equal %i[none none], Thread.new { [thread_local.value, fiber_local.value] }.value
    assert_equal(:bound, fiber_local.bind(:bound) { snooze; fiber_local.value })
  end

  # --- the end of a pool ----------------------------------------------------------------------------------------------

  def test_a_pool_is_killed_by_a_fiber_while_its_jobs_wait
    doomed = pool
    began = Concurrent::CountDownLatch.new(2)
    2.times { doomed.post { began.count_down; sleep } }
    spin { began.wait; doomed.kill }
    assert doomed.wait_for_termination(patient(20))
    assert_predicate doomed, :shutdown?
  end

  def test_jobs_that_are_refused
    ended = pool
    ended.shutdown
    assert_raises(Concurrent::RejectedExecutionError) { spin { ended.post { nil } }.await }
  end

  # In a process of its own: everything that is global, and the end of the program.
  def test_a_program_with_the_global_pools
    gem = Gem.loaded_specs['concurrent-ruby'].full_require_paths.first
    ["spin { JOB.call }.await", 'JOB.call'].each do |run|
      out, err, status = run_ruby(<<~RUBY, options: ["-I#{gem}"])
        require 'polyphony'
        require 'concurrent'
        beats = 0
        spin { loop { beats += 1; sleep 0.001 } }
        JOB = lambda do
          futures = Array.new(5) { |i| Concurrent::Promises.future(i) { |n| sleep 0.01; n } }
          p Concurrent::Promises.zip(*futures).then { |*all| all.sum }.value!
          p Concurrent::Future.execute { sleep 0.001; :done }.value
          p Concurrent::ScheduledTask.execute(0.001) { sleep 0.001; :later }.value
          agent = Concurrent::Agent.new(1)
          agent.send_off { |n| sleep 0.001; n + 1 }
          agent.await
          p agent.value
        end
        #{run}
        puts beats.positive?
      RUBY
      assert_equal ["10\n:done\n:later\n2\ntrue\n", ''], [out, err]
      assert_predicate status, :success?
    end
  end
end
