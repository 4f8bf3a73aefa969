# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/thread_helpers'

# Reaching a thread from outside: raise, kill, kill_safe, wakeup.
class TestThreadInterrupts < Polyphony::TestCase
  include Polyphony::ThreadHelpers

  on_every_driver

  class Boom < StandardError; end

  # --- raise ------------------------------------------------------------------------------------------------------

  def test_raise_reaches_a_thread_that_computes
    thread = quiet { loop { nil } }
    wait_until('the thread runs') { thread.status == 'run' }
    assert_nil thread.raise(Boom, 'stop')
    assert_equal 'stop', assert_raises(Boom) { thread.join }.message
  end

  def test_raise_reaches_a_call_that_stops_the_thread
    thread = quiet { sleep 0; ::Queue.new.pop }
    wait_until_stopped(thread)
    thread.raise(Boom)
    assert_raises(Boom) { thread.join }
  end

  def test_raise_takes_what_stock_raise_takes
    child_busy = -> { spin { snooze while Thread.current[:never].nil? } }
    [-> { sleep }, child_busy >> ->(_) { sleep }].each do |job|
      [[[], RuntimeError, ''], [['text'], RuntimeError, 'text'], [[Boom], Boom, Boom.name],
       [[Boom, 'text'], Boom, 'text'], [[Boom.new('one')], Boom, 'one']].each do |args, klass, message|
        thread = quiet(&job)
        wait_until('it has begun') { thread.main_fiber }
        thread.raise(*args)
        assert_equal message, assert_raises(klass) { thread.join }.message
      end
    end
  end

  def test_raise_on_a_thread_that_has_ended_does_nothing
    thread = Thread.new { sleep 0 }
    thread.join
    assert_nil thread.raise(Boom)
    assert_nil thread.raise(Boom, 'text')
  end

  def test_raise_on_the_current_thread_is_raised_here_and_now
    child = spin { Thread.current.raise(Boom, 'mine') }
    assert_equal 'mine', assert_raises(Boom) { child.await }.message
  end

  # The child rescues everything: were it raised there it would be lost.
  def test_raise_goes_to_the_main_fiber_when_a_child_runs
    running = Polyphony::Event.new
    stop = false
    thread = quiet do
      spin do
        running.signal
        nil until stop
        loop { sleep 0 }
      rescue Boom
        :swallowed
      end
      sleep
    end
    running.await
    thread.raise(Boom, 'for main')
    stop = true
    assert_equal 'for main', assert_raises(Boom) { thread.join }.message
  end

  # Others run between the decision who gets it and the raise.
  class Hesitant < Boom
    def exception(*)
      5.times { Thread.pass }
      super
    end
  end

  def busy_child(hits)
    spin do
      loop { 20.times { nil }; Thread.pass; yield }
    rescue Boom
      hits << :child
    end
  end

  def test_raise_never_hits_a_child
    heavy
    hits = []
    [-> { snooze }, -> { sleep 0 }, -> { sleep 0.0001 }].product([-> { snooze }, -> { sleep }]) do |wait, main_wait|
      5.times do
        thread = quiet do
          2.times { busy_child(hits, &wait) }
          loop { main_wait.call }
        end
        wait_until('it has begun') { thread.main_fiber }
        thread.raise(Hesitant)
        assert_raises(Boom) { thread.join }
      end
    end
    assert_empty hits
  end

  # --- kill -------------------------------------------------------------------------------------------------------

  # Ruby's signal to it is lost when it has not got into the system call yet. In a process of its own:
  # here another thread sleeps, and sends the signal again.
  def test_kill_reaches_a_thread_that_is_about_to_read
    heavy
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { loop { sleep 0.005 } }
      500.times do
        IO.pipe do |reader, _writer|
          begun = ::Queue.new
          thread = Thread.new { begun << true; reader.read(1) }
          begun.pop
          thread.kill.join
        end
      end
      puts 'all ended'
    RUBY
    assert_equal ["all ended\n", ""], [out, err]
    assert_predicate status, :success?
  end

  def self.tidily(log, name)
    yield
  ensure
    log << name
  end

  def tidily(...)
    self.class.tidily(...)
  end

  # Name => what the thread does, and who has tidied up in the end.
  KILLED = {
    main_computes: [lambda do |log|
      spin { tidily(log, :never_begins) { sleep } }
      tidily(log, :main) { loop { nil } }
    end, [:main]],
    main_computes_and_a_child_waits: [lambda do |log|
      spin { tidily(log, :child) { sleep } }
      snooze
      tidily(log, :main) { loop { nil } }
    end, %i[main child]],
    a_child_computes: [lambda do |log|
      spin { tidily(log, :waits) { sleep } }
      spin { tidily(log, :computes) { loop { nil } } }
      tidily(log, :main) { sleep }
    end, %i[computes main waits]],
    a_grandchild_computes: [lambda do |log|
      spin do
        spin { tidily(log, :grandchild) { sleep 0.001; loop { nil } } }
        tidily(log, :child) { sleep }
      end
      tidily(log, :main) { sleep }
    end, %i[grandchild main child]]
  }.freeze

  KILLED.each do |name, (job, tidied)|
    define_method("test_kill_ends_a_thread_in_which_#{name}") do
      log = []
      thread = Thread.new { job.call(log) }
      wait_until('it runs') { thread.status == 'run' && thread.main_fiber }
      sleep 0.01
      assert_same thread, thread.kill
      assert_nil thread.value
      assert_equal tidied, log
      refute thread.alive?
    end
  end

  def test_kill_while_children_are_shut_down_leaves_none_behind
    log = []
    ending = Polyphony::Event.new
    thread = Thread.new do
      spin do
        tidily(log, :slow) { sleep }
      ensure
        ending.signal
        tidily(log, :cut) { sleep }
      end
      spin { tidily(log, :quick) { sleep } }
      snooze
    end
    ending.await
    wait_until_waiting(thread)
    thread.kill
    assert_nil thread.value
    assert_equal %i[quick slow cut], log
    assert_empty thread.main_fiber.children
  end

  def test_kill_safe_ends_a_thread_where_it_waits
    log = []
    thread = Thread.new do
      spin { tidily(log, :child) { sleep } }
      begin
        sleep
      ensure
        sleep 0.001
        log << :main
      end
    end
    wait_until_waiting(thread)
    assert_same thread, thread.kill_safe
    assert_nil thread.value
    assert_equal %i[main child], log
    assert_same thread, thread.kill_safe
  end

  def test_kill_safe_of_a_thread_that_has_not_begun
    20.times do
      ran = false
      thread = Thread.new { ran = true; sleep }
      assert_same thread, thread.kill_safe
      assert_nil thread.value
      refute ran
    end
  end

  def test_kill_safe_of_a_thread_without_a_backend
    log = []
    thread = Thread.new { tidily(log, :main) { ::Queue.new.pop } }
    wait_until_stopped(thread)
    thread.kill_safe
    assert_nil thread.value
    assert_equal [:main], log
  end

  def test_kill_safe_of_a_thread_that_is_not_ours
    pid = Process.spawn('sleep 100')
    thread = Process.detach(pid)
    wait_until_stopped(thread)
    assert_same thread, thread.kill_safe
    assert_nil thread.value
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def test_kill_safe_of_the_main_thread_ends_the_program
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin do
        sleep
      ensure
        puts 'tidied up'
      end
      Thread.new { sleep 0.01; Thread.main.kill_safe }
      sleep
    RUBY
    assert_equal ["tidied up\n", ''], [out, err]
    assert_predicate status, :success?
  end

  # --- wakeup -----------------------------------------------------------------------------------------------------

  def test_wakeup_and_run_end_a_sleep
    %i[wakeup run].each do |word|
      [-> { sleep }, -> { sleep 1000 }, -> { Thread.stop }].each do |wait|
        thread = Thread.new { wait.call; :awake }
        wait_until_stopped(thread)
        assert_same thread, thread.public_send(word)
        assert_equal :awake, thread.value
        assert_raises(ThreadError) { thread.public_send(word) }
      end
    end
  end

  def test_wakeup_does_not_end_a_wait_for_an_item
    queue = Polyphony::Queue.new
    thread = Thread.new { queue.shift }
    wait_until_waiting(thread)
    thread.wakeup
    wait_until('it waits again') { thread.main_fiber.state == :waiting && queue.pending? }
    queue << :item
    assert_equal :item, thread.value
  end
end
