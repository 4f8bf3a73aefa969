# frozen_string_literal: true

require_relative '../test_helper'
require 'json'

# Polyphony.report_deadlocks: fibers that wait for each other while others go on.
class TestDeadlocks < Polyphony::TestCase
  on_every_driver

  LIMIT = 0.03

  def setup
    super
    @cycles = Thread::Queue.new
    @clock = spin(:clock) { loop { sleep 0.01 } } # the program goes on
  end

  def teardown
    Polyphony.report_deadlocks(nil)
    super
  end

  def watch
    Polyphony.report_deadlocks(LIMIT) { |cycle| @cycles << cycle }
  end

  def crossed(one, other)
    a = Polyphony::Mutex.new
    b = Polyphony::Mutex.new
    [spin(one) { a.synchronize { snooze; b.synchronize { one } } }, spin(other) { b.synchronize { snooze; a.synchronize { other } } }]
  end

  def test_two_locks_taken_in_different_order
    watch
    ann, bob = crossed(:ann, :bob)
    third = spin(:third) { ann.await }
    cycle = @cycles.pop
    assert_equal %i[ann bob], cycle.fibers.map(&:tag).sort
    assert_equal [third], cycle.behind
    assert_operator cycle.seconds, :>=, LIMIT
    assert_match(/\Apolyphony: 2 fibers wait for each other, for 0\.\d s so far/, cycle.to_s)
    assert_match(/^  #<Fiber ann:.*> waits for a lock .*\n    held by #<Fiber bob:/, cycle.to_s)
    assert_match(/^  behind them: #<Fiber third:/, cycle.to_s)
    bob.stop
    assert_equal :ann, ann.await
    third.await
    assert_equal 0, @cycles.size, 'each is told once'
  end

  def test_fibers_that_await_each_other
    watch
    fibers = []
    3.times { |n| fibers << spin(:"f#{n}") { snooze until fibers.size == 3; fibers[(n + 1) % 3].await } }
    cycle = @cycles.pop
    assert_equal %i[f0 f1 f2], cycle.fibers.map(&:tag).sort
    cycle.fibers.each_with_index { |fiber, n| assert_same cycle.fibers[(n + 1) % 3], fiber.__wait[1] }
    fibers.first.stop
    fibers.each(&:await)
  end

  def test_a_lock_and_an_end
    watch
    lock = Polyphony::Mutex.new
    child = nil
    parent = spin(:parent) { lock.synchronize { child = spin(:child) { lock.lock }; child.await } }
    assert_equal %i[child parent], @cycles.pop.fibers.map(&:tag).sort
    child.stop
    parent.await
  end

  # Ruby does not tell who has them.
  [Mutex, Monitor].each do |kind|
    define_method("test_a_#{kind.name.downcase}_of_rubys_own") do
      watch
      a = kind.new
      b = kind.new
      ann = spin(:ann) { a.synchronize { snooze; b.synchronize { :ann } } }
      bob = spin(:bob) { b.synchronize { snooze; a.synchronize { :bob } } }
      cycle = @cycles.pop
      assert_equal %i[ann bob], cycle.fibers.map(&:tag).sort
      assert_match(/ann:.* waits for a lock \(#<(Thread::Mutex|Monitor):.*\n    held by #<Fiber bob:/, cycle.to_s)
      bob.stop
      assert_equal :ann, ann.await
    end
  end

  # Whoever has given it up, in whatever way, does not have it.
  def test_owners_of_rubys_locks_are_kept_up_to_date
    watch
    lock = Mutex.new
    ready = ConditionVariable.new
    monitor = Monitor.new
    sleeper = spin(:sleeper) { lock.synchronize { ready.wait(lock) } }
    snooze until sleeper.state == :waiting
    monitor.enter
    monitor.synchronize { nil }
    waiter = spin(:waiter) { monitor.enter; monitor.exit }
    snooze until waiter.state == :waiting
    assert_equal [Fiber.current], waiter.__wait[1].holders.map(&:first)
    monitor.exit
    waiter.await
    lock.lock
    other = spin(:other) { lock.synchronize { nil } }
    snooze until other.state == :waiting
    assert_equal [Fiber.current], other.__wait[1].holders.map(&:first)
    subject = other.__wait[1]
    ready.signal
    lock.unlock
    Fiber.await(sleeper, other)
    assert_empty subject.holders
    Polyphony.report_deadlocks(nil)
    assert_empty subject.holders
  end

  def test_across_threads
    watch
    a = Polyphony::Mutex.new
    b = Polyphony::Mutex.new
    ready = Thread::Queue.new
    far = nil
    thread = Thread.new { far = spin(:far) { b.synchronize { ready << 1; sleep 0.01; a.lock; a.unlock } }; far.await }
    near = spin(:near) { a.synchronize { ready.pop; b.synchronize { :done } } }
    assert_equal %i[far near], @cycles.pop.fibers.map(&:tag).sort
    far.stop
    assert_equal :done, near.await
    thread.join
  end

  # A place may come free as long as one of those who have one goes on.
  def test_no_cycle_where_somebody_can_go_on
    finder = Polyphony.const_get(:WaitCycles)
    gate = Polyphony::Semaphore.new(2)
    lock = Polyphony::Mutex.new
    one = spin(:one) { gate.synchronize { lock.synchronize { snooze; gate.synchronize { nil } } } }
    two = spin(:two) { gate.synchronize { suspend } }
    3.times { snooze }
    assert_empty finder.find([one, two, Fiber.current])
    two.stop
    two.await
    one.await
    long = spin(:long) { lock.synchronize { sleep 60 } }
    waiter = spin(:waiter) { snooze; lock.lock }
    3.times { snooze }
    assert_empty finder.find([long, waiter])
    long.stop
    waiter.await
  end

  def test_all_who_have_a_place_are_stuck
    finder = Polyphony.const_get(:WaitCycles)
    gate = Polyphony::Semaphore.new(2)
    pair = Array.new(2) { |n| spin(:"p#{n}") { gate.synchronize { snooze; gate.synchronize { nil } } } }
    4.times { snooze }
    refute_empty finder.find(pair)
    pair.first.stop
    Fiber.await(*pair)
  end

  def test_what_is_written
    _, err, status = run_ruby(<<~RUBY, env: { 'POLYPHONY_DEADLOCK' => '0.02' })
      require 'polyphony'
      a, b = Polyphony::Mutex.new, Polyphony::Mutex.new
      spin(:ann) { a.synchronize { snooze; b.lock } }
      spin(:bob) { b.synchronize { snooze; a.lock } }
      sleep 0.01 until $stderr.stat.size.positive?
      exit!(true)
    RUBY
    assert_predicate status, :success?, err
    assert_match(/\Apolyphony: 2 fibers wait for each other/, err)
    _, err, = run_ruby("require 'polyphony'", env: { 'POLYPHONY_DEADLOCK' => 'soon' })
    assert_match(/POLYPHONY_DEADLOCK must be a positive number of seconds, got "soon"/, err)
  end

  def test_json
    watch
    ann, bob = crossed(:ann, :bob)
    data = JSON.parse(@cycles.pop.to_json)
    assert_equal %w[ann bob], data['fibers'].map { |fiber| fiber['tag'] }.sort
    assert_equal 'a lock', data['fibers'][0]['reason']
    assert_match(/#<Fiber (ann|bob):/, data['fibers'][0]['held_by'][0]['fiber'])
    assert_match(/test_deadlocks\.rb:\d+\z/, data['fibers'][0]['spun_at'])
    bob.stop
    ann.await
  end

  def test_the_report_of_a_whole_deadlock_as_json
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      require 'json'
      a, b = Polyphony::Mutex.new, Polyphony::Mutex.new
      ann = spin(:ann) { a.synchronize { snooze; b.lock } }
      bob = spin(:bob) { b.synchronize { snooze; a.lock } }
      begin
        Fiber.await(ann, bob)
      rescue Polyphony::Deadlock => e
        puts JSON.generate(e.to_h), e.to_json == JSON.generate(e.to_h)
      end
    RUBY
    data = JSON.parse(out.lines.first || flunk(err))
    assert_equal "true\n", out.lines.last
    assert_equal ['Polyphony::Deadlock', 'no fiber can ever run again'], data.values_at('error', 'message')
    ids = data['fibers'].to_h { |fiber| [fiber['tag'], fiber['id']] }
    assert_equal [ids.values_at('ann', 'bob').sort], data['cycles'].map(&:sort)
    assert_equal 3, data['fibers'].size
  end
end
