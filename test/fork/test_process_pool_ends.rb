# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/pool_case'
require 'polyphony/testing'

# Tasks that are cancelled, and pools that are stopped.
class TestProcessPoolEnds < Polyphony::PoolCase
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  ProcessPool = Polyphony::ProcessPool

  def file
    track(Tempfile.new('task')).path
  end

  # --- cancelling -----------------------------------------------------------------------------------

  WAYS = {
    stop:          ->(call) { fiber = spin { call.call }; sleep 0.02; fiber.stop; fiber.await },
    move_on_after: ->(call) { move_on_after(0.02) { call.call } },
    cancel_after:  ->(call) { begin; cancel_after(0.02) { call.call }; rescue Polyphony::Cancel; nil; end },
    timeout:       ->(call) { begin; Timeout.timeout(0.02) { call.call }; rescue Timeout::Error; nil; end },
    deadline:      ->(call) { begin; deadline(0.02) { call.call }; rescue Polyphony::DeadlineExceeded; nil; end }
  }.freeze

  WAYS.each do |name, way|
    %i[wait compute].each do |task|
      define_method("test_#{name}_ends_a_task_that_would_#{task}_for_ever") do
        one = pool(1, grace: patient(30))
        pid = one.stats[:pids]
        assert_nil way.call(-> { one.process(task) })
        assert_equal 4, one.process(:square, 2)
        assert_equal [pid, 0, 1], one.stats.values_at(:pids, :died, :cancelled)
      end
    end
  end

  def test_ensure_blocks_of_a_cancelled_task_run
    one = pool(1)
    path = file
    begun(one, :tidy, path).stop
    one.process(:pid)
    assert_equal 'tidy', File.read(path)
  end

  def test_a_shield_in_a_task_holds
    one = pool(1)
    path = file
    begun(one, :shield, path).stop
    one.process(:pid)
    assert_equal 'whole', File.read(path)
  end

  def test_a_shield_around_what_a_task_computes_holds
    one = pool(1, shielded: lambda { |path|
      shield do
        ProcessPool.progress(:begun)
        Polyphony::PoolCase.burn(0.1)
        File.write(path, 'whole')
      end
      sleep
    })
    path = file
    begun(one, :shielded, path).stop
    one.process(:pid)
    assert_equal 'whole', File.read(path)
  end

  def test_a_task_that_rescues_standard_errors_is_ended_all_the_same
    one = pool(1, stubborn: -> { ProcessPool.progress(:begun); loop { begin; 1 + 1; rescue StandardError; nil; end } })
    begun(one, :stubborn).stop
    assert_equal 4, one.process(:square, 2)
    assert_equal 0, one.stats[:died]
  end

  def test_a_task_that_is_stuck_in_c_is_killed_with_its_worker_and_the_caller_does_not_wait_for_that
    one = pool(1, grace: patient(0.5))
    fiber = begun(one, :stuck)
    fiber.stop
    fiber.await
    assert_equal [1, 0], one.stats.values_at(:alive, :died)
    assert_equal 4, one.process(:square, 2)
    assert_equal 1, one.stats[:died]
  end

  def test_one_that_does_not_want_to_end_is_killed
    one = pool(1, grace: 0.05, never: lambda {
      loop { begin; ProcessPool.progress(:begun); sleep; rescue Exception; nil; end }
    })
    begun(one, :never).stop
    assert_equal 4, one.process(:square, 2)
    assert_equal 1, one.stats[:died]
  end

  def test_only_the_cancelled_one_of_several_in_a_worker_is_ended
    one = pool(1, fibers: 3)
    first = begun(one, :wait)
    second = begun(one, :wait)
    first.stop
    eventually { one.stats[:running] == 1 }
    assert_equal :waiting, second.state
    second.stop
  end

  def test_tasks_that_have_not_begun_never_begin
    path = file
    one = pool(1, mark: -> { File.write(path, 'begun') })
    busy = begun(one, :compute)
    waiting = Array.new(20) { spin { one.process(:mark) } }
    eventually { one.stats[:waiting] == 20 }
    waiting.each(&:stop)
    Fiber.await(waiting)
    busy.stop
    one.process(:pid)
    assert_equal '', File.read(path)
    assert_equal 21, one.stats[:cancelled]
  end

  # Hundreds of cancels at all moments: nobody gets the answer of another, nothing is left.
  def test_answers_never_go_to_another_task
    one = pool(2, fibers: 2)
    random = Random.new(7)
    fibers = Array.new(300) do |i|
      spin do
        limit = random.rand(0.03)
        result = move_on_after(limit, with_value: :late) { one.process(:echo, i, 'x' * random.rand(20_000)).first }
        [i, :late].include?(result)
      end
    end
    assert_equal [true], Fiber.await(fibers).uniq
    eventually { one.stats[:running].zero? }
    assert_equal [0, 0], one.stats.values_at(:waiting, :died)
    assert_equal 300, one.stats.values_at(:done, :cancelled).sum
  end

  def test_a_cancelled_large_payload_tears_no_frame
    heavy
    one = pool(1)
    busy = begun(one, :compute) # it reads nothing
    bytes = 'z' * 5_000_000
    3.times { move_on_after(0.01) { one.process(:size, bytes) } }
    busy.stop
    assert_equal [:ok], one.process(:echo, :ok)
    3.times { move_on_after(0.005) { one.process(:bytes, 5_000_000) } }
    assert_equal [:ok], one.process(:echo, :ok)
    assert_equal 0, one.stats[:died]
  end

  def test_process_may_be_ended_anywhere
    heavy
    one = pool(1)
    cancel_everywhere do |run|
      answer = nil
      run.scenario { answer = one.process(:square, 5) }
      run.check do |finished|
        assert_equal 25, answer if finished
        eventually { !one.busy? }
      end
    end
    eventually { one.stats[:running].zero? }
    assert_equal [16, 0], [one.process(:square, 4), one.stats[:died]]
  end

  def test_map_may_be_ended_anywhere
    heavy
    one = pool(1)
    cancel_everywhere do |run|
      answer = nil
      run.scenario { answer = one.map([1, 2], :square) }
      run.check do |finished|
        assert_equal [1, 4], answer if finished
        eventually { !one.busy? }
      end
    end
    assert_equal [16, 0], [one.process(:square, 4), one.stats[:died]]
  end

  def test_making_and_stopping_a_pool_may_be_ended_anywhere
    heavy
    cancel_everywhere do |run|
      run.scenario { ProcessPool.open(1, warmup: false, **TASKS) { |one| one.process(:square, 2) } }
      run.check { assert_empty Fiber.current.children }
    end
  end

  # --- stopping -------------------------------------------------------------------------------------

  def test_stop_waits_for_all_tasks
    one = pool
    fibers = Array.new(20) { |i| spin { one.process(:square, i) } }
    snooze
    one.stop
    assert_equal Array.new(20) { |i| i * i }, Fiber.await(fibers)
    assert_predicate one, :stopped?
    [-> { one.process(:square, 1) }, -> { one.cast(:square, 1) }, -> { one.map([1], :square) }].each do |call|
      assert_match(/has been stopped/, error_of(ProcessPool::Stopped, &call).message)
    end
    assert_same one, one.stop
  end

  def test_stop_with_a_limit_ends_what_is_left
    one = pool
    fibers = [:wait, :compute].map { |task| spin { error_of(ProcessPool::Stopped) { one.process(task) }.message } }
    eventually { one.stats[:running] == 2 }
    one.stop(timeout: 0.02)
    assert_match(/before the end of task :wait/, fibers[0].await)
    assert_match(/before the end of task :compute/, fibers[1].await)
  end

  def test_a_cancelled_stop_goes_on_by_itself
    one = pool
    fiber = begun(one, :wait)
    move_on_after(0.01) { one.stop }
    assert_raises(ProcessPool::Stopped) { one.process(:square, 1) }
    fiber.stop
    one.stop
    assert_equal 0, one.stats[:alive]
  end

  def test_the_block_of_open_is_waited_for_or_broken_off
    heard = nil
    made = nil
    assert_equal :value, ProcessPool.open(1, warmup: false, **TASKS) { |one| made = one; heard = spin { one.process(:nap, 0.01) }; snooze; :value }
    assert_equal :rested, heard.await
    assert_predicate made, :stopped?
    assert_raises(IOError) { ProcessPool.open(1, warmup: false, **TASKS) { |one| one.cast(:wait); raise IOError } }
    assert_equal 3, ProcessPool.open(1, warmup: false, **TASKS) { |one| one.cast(:compute); break 3 }
  end

  def test_a_pool_ends_with_the_fiber_that_made_it
    one = nil
    owner = spin { one = ProcessPool.new(2, warmup: false, **TASKS); sleep }
    eventually { one }
    pids = one.stats[:pids]
    waiter = spin { error_of(ProcessPool::Stopped) { one.process(:wait) } }
    eventually { one.stats[:running] == 1 }
    owner.stop
    owner.await
    until_gone(*pids)
    assert_match(/stopped before the end of task :wait/, waiter.await.message)
    spin { one = ProcessPool.new(1, warmup: false, **TASKS) }.await # it never gets to do anything
    assert_equal 0, one.stats[:alive]
  end

  def test_a_graceful_end_of_the_owner_lets_tasks_finish
    one = nil
    owner = spin { one = ProcessPool.new(1, warmup: false, **TASKS); sleep }
    eventually { one }
    task = spin { one.process(:nap, 0.05) }
    eventually { one.stats[:running] == 1 }
    owner.terminate(graceful: true)
    owner.await
    assert_equal :rested, task.await
  end

  def test_a_pool_outlives_the_limits_it_was_made_in
    one = cancel_after(0.05) { deadline(0.05) { pool(1) } }
    sleep 0.06
    assert_equal 4, one.process(:square, 2)
    assert_nil pool(1, limit: -> { Polyphony.deadline }).process(:limit)
  end

  def test_nothing_is_left_behind
    2.times { ProcessPool.open(2, warmup: false, **TASKS) { |one| one.process(:square, 1) } }
    before = Dir.children('/proc/self/fd').size
    5.times do
      ProcessPool.open(2, warmup: false, **TASKS) do |one|
        one.map(1..10, :square)
        move_on_after(0.001) { one.process(:wait) }
        error_of(ProcessPool::WorkerDied) { one.process(:kill, :KILL) }
      end
    end
    assert_equal before, Dir.children('/proc/self/fd').size
    assert_empty zombies
    assert_empty Fiber.current.children
  end
end
