# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

class TestWaitpid < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  # A child that ends when told.
  Child = Struct.new(:pid, :gate) do
    def finish
      gate.close unless gate.closed?
    end
  end

  def child(status = 0, **options)
    reader, writer = pipe_pair
    pid = Process.spawn("read line; exit #{status}", in: reader, **options)
    reader.close
    Child.new(pid, writer)
  end

  def waitpid(pid)
    Polyphony.backend_waitpid(pid)
  end

  def waiting(&block)
    fiber = spin(&block)
    snooze until %i[waiting dead].include?(fiber.state)
    assert_equal :waiting, fiber.state
    fiber
  end

  def threads
    File.directory?('/proc/self/task') ? Dir.children('/proc/self/task').size : 0
  end

  def test_the_raw_status_comes_with_the_pid
    { 'exit 3' => 3 << 8, 'kill -9 $$' => 9, 'true' => 0 }.each do |command, status|
      pid = Process.spawn(command)
      assert_equal [pid, status], waitpid(pid)
    end
  end

  def test_others_run_meanwhile
    one = child
    waiter = waiting { waitpid(one.pid) }
    3.times { snooze }
    assert_equal :waiting, waiter.state
    one.finish
    assert_equal [one.pid, 0], waiter.await
  end

  def test_a_child_that_has_ended_is_a_switchpoint
    pid = Process.spawn('true')
    turns = 0
    spin { turns += 1 }
    waitpid(pid)
    assert_equal 1, turns
  end

  def test_each_waits_for_its_own
    children = Array.new(5) { |i| child(i) }
    waiters = children.map { |one| spin { waitpid(one.pid) } }
    children.reverse_each(&:finish)
    assert_equal children.each_with_index.map { |one, i| [one.pid, i << 8] }, waiters.map(&:await)
  end

  def test_any_child_will_do
    one = child(4)
    waiter = waiting { waitpid(-1) }
    one.finish
    assert_equal [one.pid, 4 << 8], waiter.await
  end

  def test_many_wait_for_any_child_and_each_gets_one
    children = Array.new(5) { child }
    waiters = Array.new(5) { waiting { waitpid(-1) } }
    children.each(&:finish)
    assert_equal children.map(&:pid).sort, waiters.map { |fiber| fiber.await.first }.sort
  end

  def test_a_child_of_the_group
    other = child
    one = child(1, pgroup: true)
    waiter = waiting { waitpid(-one.pid) }
    same = waiting { waitpid(0) }
    one.finish
    assert_equal [one.pid, 1 << 8], waiter.await
    other.finish
    assert_equal [other.pid, 0], same.await
  end

  def test_without_such_a_child_it_is_echild
    assert_raises(Errno::ECHILD) { waitpid(-1) }
    assert_raises(Errno::ECHILD) { waitpid(1) }
    assert_raises(Errno::ECHILD) { waitpid(-1_000_000) }
  end

  def test_a_child_that_another_has_reaped_is_echild
    one = child
    waiters = Array.new(2) do
      spin do
        waitpid(one.pid)
      rescue Errno::ECHILD
        :echild
      end
    end
    2.times { snooze }
    one.finish
    results = waiters.map(&:await)
    assert_includes results, :echild
    assert_includes results, [one.pid, 0]
  end

  def test_a_cancelled_wait_reaps_nothing
    [->(one) { one.pid }, ->(_) { -1 }, ->(_) { 0 }].each do |which|
      cancel_everywhere do |run|
        one = child(7)
        got = nil
        run.scenario { got = waitpid(which.(one)) }
        run.beside { 2.times { snooze }; one.finish }
        run.check do
          assert_equal [one.pid, 7 << 8], got || waitpid(one.pid)
          assert_equal 0, Thread.current.backend.stats[:pending_ops]
        end
      end
    end
  end

  # There is no calling off waitid(2); but the next who waits finds the thread of the last one.
  def test_cancelled_waits_for_any_child_share_one_thread
    one = child
    before = threads
    30.times { waiting { waitpid(-1) }.tap(&:stop).await }
    assert_operator threads, :<=, before + 1
    one.finish
    assert_equal [one.pid, 0], waitpid(-1)
  end

  def test_an_interjection_does_not_end_the_wait
    one = child
    ran = []
    [one.pid, -1].each do |which|
      waiter = waiting { waitpid(which) }
      waiter.interject { ran << which }
      snooze until ran.include?(which)
      waiter.stop if which == one.pid
      next waiter.await if which == one.pid

      one.finish
      assert_equal [one.pid, 0], waiter.await
    end
  end

  def test_the_wait_of_a_killed_thread_reaps_nothing
    one = child(2)
    [one.pid, -1].each do |which|
      ready = Queue.new
      thread = Thread.new { ready << true; waitpid(which) }
      ready.pop
      thread.kill
      thread.join
    end
    one.finish
    assert_equal [one.pid, 2 << 8], waitpid(one.pid)
  end

  def test_threads_wait_for_children_of_the_process
    one = child(3)
    thread = Thread.new { waitpid(one.pid) }
    one.finish
    assert_equal [one.pid, 3 << 8], thread.value
  end

  # The thread that waits is the parent's; the pipe by which it tells is inherited.
  def test_a_fork_disturbs_neither_the_parents_wait_nor_the_childs
    one = child
    waiter = waiting { waitpid(-1) }
    forked = fork do
      grandchild = Process.spawn('exit 5')
      exit!(waitpid(-1) == [grandchild, 5 << 8] ? 0 : 1)
    end
    first = waiter.await
    assert_equal [forked, 0], first
    one.finish
    assert_equal [one.pid, 0], waitpid(-1)
  end

  def test_a_stopped_child_is_not_reaped
    one = child
    Process.kill(:STOP, one.pid)
    waiter = waiting { waitpid(one.pid) }
    3.times { snooze }
    assert_equal :waiting, waiter.state
    Process.kill(:CONT, one.pid)
    one.finish
    assert_equal [one.pid, 0], waiter.await
  end
end
