# frozen_string_literal: true

require_relative '../test_helper'

# Schedulers as objects: a queue of fibers of its own, which somebody runs.
class TestSched < Polyphony::TestCase
  on_every_driver

  def setup
    super
    @sched = Polyphony::Sched.new
    @out = []
  end

  def push_steps(*names)
    @sched.push do
      names.each_with_index do |name, index|
        @sched.resched if index.positive?
        @out << name
      end
    end
  end

  # The two programs of the document that schedulers like this come from.
  def test_run_goes_round
    push_steps(1, 2)
    push_steps(3, 4)
    assert_same @sched, @sched.run
    assert_equal [1, 3, 2, 4], @out
    assert_equal 0, @sched.size
  end

  def test_each_runs_one_fiber_a_step
    push_steps('foo', 'bar')
    push_steps('baz')
    assert_same @sched, @sched.each { |active| @out << active }
    assert_equal ['foo', 2, 'baz', 1, 'bar', 0], @out
  end

  def test_without_fibers_it_has_nothing_to_do
    assert_same @sched, @sched.run
    @sched.each { flunk }
    assert_equal 0, @sched.size
  end

  def test_nothing_runs_before_it_is_run
    push_steps(1)
    snooze
    assert_empty @out
    assert_equal 1, @sched.size
  end

  def test_in_a_spun_fiber
    spin { test_run_goes_round }.await
    @out.clear
    spin { test_each_runs_one_fiber_a_step }.await
  end

  def test_nested
    @sched.push do
      inner = Polyphony::Sched.new
      inner.push { @out << :a; inner.resched; @out << :b }
      inner.push { @out << assert_raises(FiberError) { @sched.resched }.class }
      inner.run
      @out << :inner_done
    end
    push_steps(1, 2, 3)
    @sched.run
    assert_equal [:a, FiberError, :b, :inner_done], @out - [1, 2, 3]
    assert_equal [1, 2, 3], @out & [1, 2, 3]
  end

  def test_other_fibers_run_beside_it
    beats = 0
    heart = spin { loop { snooze; beats += 1 } }
    push_steps(*Array.new(20) { |n| n })
    @sched.run
    assert_operator beats, :>=, 19
    heart.stop
  end

  def test_io_inside
    reader, writer = pipe_pair
    @sched.push { @out << reader.readpartial(10) }
    @sched.push { @out << :before; @sched.resched; writer << 'data'; @out << :after }
    @sched.run
    assert_equal [:before, :after, 'data'], @out
  end

  # One fiber a step: who waits for something else keeps its turn, while fibers outside go on.
  def test_io_inside_a_step
    reader, writer = pipe_pair
    @sched.push { @out << reader.readpartial(10); @sched.resched; @out << :end }
    push_steps(:other)
    spin { writer << 'data' }
    @sched.each { |active| @out << active }
    assert_equal ['data', 2, :other, 1, :end, 0], @out
  end

  def test_fibers_may_be_pushed_while_it_runs
    @sched.push { @sched.push { @out << :inner }; @out << :outer }
    @sched.run
    assert_equal %i[outer inner], @out
    @sched.push { @sched.push { @out << :inner }; @out << :outer }
    @sched.each { |active| @out << active }
    assert_equal [:outer, :inner, :outer, 1, :inner, 0], @out
  end

  def test_another_fiber_may_push_while_it_runs
    @sched.push { @sched.resched until @out.include?(:late) }
    spin { @sched.push { @out << :late } }
    @sched.run
    assert_equal [:late], @out
  end

  def test_an_error_comes_out_of_run_and_the_rest_can_be_run_on
    push_steps(1, 2)
    @sched.push { raise IOError, 'broken' }
    push_steps(3, 4)
    assert_equal 'broken', assert_raises(IOError) { @sched.run }.message
    left = @sched.size
    assert_operator left, :>, 0
    @sched.run
    assert_equal [1, 2, 3, 4], @out.sort
    assert_equal 0, @sched.size
  end

  def test_an_error_comes_out_of_each
    @sched.push { raise IOError, 'broken' }
    push_steps(1)
    assert_raises(IOError) { @sched.each { flunk } }
    assert_equal 1, @sched.size
    @sched.each { |active| @out << active }
    assert_equal [1, 0], @out
  end

  def test_two_errors_at_once
    2.times { |n| @sched.push { raise IOError, "broken #{n}" } }
    error = assert_raises(Polyphony::MultipleErrors, IOError) { @sched.run }
    @sched.run if @sched.size.positive?
    assert_match(/broken 0/, error.message)
    assert_match(/broken 1/, error.message)
  end

  def test_break_and_go_on
    push_steps(1, 2, 3)
    @sched.each { break }
    assert_equal [1], @out
    snooze
    assert_equal [1], @out
    @sched.each { break }
    assert_equal [1, 2], @out
    @sched.run
    assert_equal [1, 2, 3], @out
  end

  def test_a_run_that_is_cancelled_stands_still
    count = 0
    @sched.push { loop { @sched.resched; count += 1 } }
    move_on_after(0.01) { @sched.run }
    3.times { snooze }
    stood = count
    3.times { snooze }
    assert_equal stood, count
    assert_operator count, :>, 0
    move_on_after(0.01) { @sched.run }
    assert_operator count, :>, stood
  end

  def test_a_fiber_that_is_stopped_is_done
    @sched.push { Fiber.current.stop }
    push_steps(1)
    @sched.run
    assert_equal [1], @out
    assert_equal 0, @sched.size
  end

  def test_an_external_enumerator
    push_steps(1, 2)
    steps = @sched.each
    assert_equal 1, steps.next
    assert_equal [1], @out
    assert_equal 0, steps.next
    assert_raises(StopIteration) { steps.next }
    assert_equal [1, 2], @out
  end

  def test_only_its_fibers_resched
    error = assert_raises(FiberError) { @sched.resched }
    assert_match(/resched is for fibers pushed to this scheduler/, error.message)
  end

  def test_it_is_run_by_one_fiber_at_a_time
    @sched.push { suspend }
    running = spin { @sched.run }
    snooze
    error = assert_raises(FiberError) { @sched.run }
    assert_match(/is being run by #<Fiber/, error.message)
    running.stop
    running.await
  end

  # What another thread pushes runs in the thread of the scheduler.
  def test_another_thread_pushes_while_it_is_run_or_stepped
    [-> { @sched.run }, -> { @sched.each { nil } }].each do |goes|
      gate = Polyphony::Event.new
      @sched.push { gate.await; @out << Thread.current }
      run = spin(&goes)
      sleep 0.001 until run.state == :waiting
      Thread.new { @sched.push { @out << Thread.current }; gate.signal }.join
      run.await
    end
    assert_equal [Thread.current] * 4, @out
    assert_equal 0, @sched.size
  end

  def test_others_that_are_pushed_by_a_thread_wake_a_run_in_which_all_wait
    gate = Polyphony::Event.new
    @sched.push { gate.await; @out << :first }
    run = spin { @sched.run }
    sleep 0.001 until run.state == :waiting
    Thread.new { @sched.push { @out << :second; gate.signal } }.join
    assert_same run, cancel_after(patient(10)) { run.await; run }
    assert_equal %i[second first], @out
  end

  def without_new_fibers
    owner = Fiber.current
    owner.define_singleton_method(:spin) { |*| Kernel.raise FiberError, 'no memory for another one' }
    yield
  ensure
    owner.singleton_class.remove_method(:spin)
  end

  def test_a_fiber_that_cannot_begin_now_begins_in_another_run
    3.times { |i| @sched.push { @out << i } }
    without_new_fibers { assert_raises(FiberError) { @sched.run } }
    without_new_fibers { assert_raises(FiberError) { @sched.each { nil } } }
    assert_equal 3, @sched.size
    @sched.run
    assert_equal [0, 1, 2], @out
    assert_equal 0, @sched.size
  end

  def test_what_is_wrong_is_said
    assert_match(/push needs a block/, assert_raises(ArgumentError) { @sched.push }.message)
    error = Thread.new { assert_raises(ThreadError) { @sched.run } }.value
    assert_match(/belongs to #<Thread.*make another for #<Thread/, error.message)
  end

  def test_its_fibers_end_with_the_one_that_made_it
    ended = false
    spin do
      inner = Polyphony::Sched.new
      inner.push do
        inner.resched
      ensure
        ended = true
      end
      inner.each { break }
    end.await
    assert ended
  end

  def test_tags_and_inspect
    @sched.push(:worker) { @out << Fiber.current.tag }
    assert_match(/\A#<Polyphony::Sched 1 fiber>\z/, @sched.inspect)
    @sched.run
    assert_equal [:worker], @out
  end
end
