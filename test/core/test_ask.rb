# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Fiber#ask and Polyphony::Request: a question, and exactly one outcome of it.
class TestAsk < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  Unanswered = Polyphony::Request::Unanswered
  Timeout = Polyphony::Request::Timeout

  class Boom < StandardError; end

  def server(tag = :server, &block)
    spin(tag) { receive_loop(&block) }
  end

  def squares
    server { |request| request.reply(request.message**2) }
  end

  # Receives and forgets.
  def silent
    server(:silent) { |_request| }
  end

  # Not a child of the test: its error goes to nobody else than who asks.
  def apart(tag = :server, &block)
    result = nil
    spin do
      result = spin(tag, &block)
      Fiber.current.await_all_children
    rescue Boom
      nil
    end
    snooze until result
    result
  end

  def assert_no_trace(fiber)
    assert_nil fiber.__monitors
    assert_empty fiber.mailbox.shift_all
  end

  # --- answers --------------------------------------------------------------------------------------

  def test_ask_returns_the_reply
    fiber = squares
    assert_equal [4, 9, 16], [2, 3, 4].map { |n| fiber.ask(n) }
    assert_no_trace fiber
  end

  def test_a_reply_may_be_nil_false_or_an_exception
    fiber = server { |request| request.reply(request.message) }
    error = Boom.new
    assert_nil fiber.ask(nil)
    assert_equal false, fiber.ask(false)
    assert_same error, fiber.ask(error)
    quiet = server { |request| request.reply }
    assert_nil quiet.ask(:anything)
  end

  def test_a_rejection_is_raised_in_the_asker
    fiber = server do |request|
      request.reject(*request.message)
    end
    assert_equal 'no', assert_raises(Boom) { fiber.ask([Boom, 'no']) }.message
    assert_equal 'text', assert_raises(RuntimeError) { fiber.ask(['text']) }.message
    assert_raises(Boom) { fiber.ask([Boom]) }
    error = Boom.new('mine')
    assert_same error, assert_raises(Boom) { fiber.ask([error]) }
    assert_raises(RuntimeError) { fiber.ask([]) }
    assert_no_trace fiber
  end

  def test_a_rejection_with_what_is_no_exception_is_an_error_of_the_answering_fiber
    error = nil
    fiber = server do |request|
      request.reject(42)
    rescue TypeError => e
      error = e
      request.reply(:anyway)
    end
    assert_equal :anyway, fiber.ask(1)
    assert_match(/42/, error.message)
  end

  def test_the_first_answer_counts
    log = []
    fiber = server do |request|
      log << request.pending? << request.reply(1) << request.pending? << request.reply(2) << request.reject(Boom)
    end
    assert_equal 1, fiber.ask(nil)
    assert_equal [true, true, false, false, false], log
  end

  def test_answers_may_come_later_and_in_another_order
    held = []
    fiber = server { |request| held << request }
    results = {}
    askers = Array.new(3) { |i| spin { results[i] = fiber.ask(i) } }
    snooze until held.size == 3
    held.reverse_each { |request| request.reply(request.message * 10) }
    Fiber.await(askers)
    assert_equal({ 0 => 0, 1 => 10, 2 => 20 }, results)
    assert_no_trace fiber
  end

  def test_another_fiber_may_answer
    fiber = server { |request| spin { snooze; request.reply(:delegated) } }
    assert_equal :delegated, fiber.ask(1)
  end

  def test_a_fiber_that_answers_may_ask_others
    inner = squares
    outer = server { |request| request.reply(inner.ask(request.message) + 1) }
    assert_equal 10, outer.ask(3)
  end

  def test_a_request_is_matched_by_its_keys_and_not_by_a_pattern_for_plain_messages
    log = []
    fiber = server do |message|
      case message
      in [:stop] | { message: [:never] } then flunk 'a question was taken for a plain message'
      in Polyphony::Request(message: [:add, a, b]) => request then request.reply(a + b)
      in Polyphony::Request(message:, sender:) => request then request.reply([message, sender])
      in Symbol then log << message
      end
    end
    fiber << :plain
    assert_equal 3, fiber.ask([:add, 1, 2])
    assert_equal [[:stop], Fiber.current], fiber.ask([:stop])
    assert_equal [:plain], log
  end

  def test_a_request_shows_what_is_asked_and_who_asks
    request = Polyphony::Request.new(spin(:asked) { sleep }, [:get, 1])
    assert_equal "#<Polyphony::Request [:get, 1] from #{Fiber.current.inspect}>", request.inspect
    assert_equal [:get, 1], request.message
    assert_same Fiber.current, request.sender
    long = Polyphony::Request.new(Fiber.current, 'x' * 1000)
    assert_operator long.inspect.size, :<, 400
  end

  def test_a_report_of_who_waits_can_name_who_has_to_answer
    before = clock
    fiber = silent
    asker = spin { fiber.ask(1) }
    snooze until asker.__wait_reason
    snooze until asker.__wait_reason == 'an answer'
    (holder, since), = fiber.__monitors.first.holders
    assert_same fiber, holder
    assert_includes before..clock, since
  end

  # --- the end of the asked fiber -----------------------------------------------------------------------

  def test_a_fiber_that_ends_without_an_answer_is_reported_at_once
    fiber = apart { receive }
    error = assert_raises(Unanswered) { fiber.ask([:get, 1]) }
    assert_equal "#{fiber.inspect} ended without answering [:get, 1]", error.message
    assert_includes error.message, 'server'
    assert_equal [:get, 1], error.request.message
    assert_nil error.cause
    assert_kind_of StandardError, error
  end

  def test_the_error_of_the_asked_fiber_is_the_cause
    fiber = apart { receive; raise Boom, 'broken' }
    error = assert_raises(Unanswered) { fiber.ask(1) }
    assert_equal [Boom, 'broken'], [error.cause.class, error.cause.message]
    snooze # its parent has to deal with it
  end

  # It is the parent's to deal with, as ever, and nothing else is raised then.
  def test_a_parent_that_asks_gets_the_error_of_its_child
    fiber = spin { receive; raise Boom }
    assert_raises(Boom) { fiber.ask(1) }
    snooze
  end

  def test_a_fiber_that_has_ended_is_not_waited_for
    fiber = spin { :done }
    fiber.await
    assert_raises(Unanswered) { fiber.ask(1) }
    assert_no_trace fiber
    failed = apart { raise Boom }
    snooze until failed.dead?
    assert_instance_of Boom, assert_raises(Unanswered) { failed.ask(1) }.cause
    snooze
    raw = Fiber.new {}
    raw.resume
    assert_raises(Unanswered) { raw.ask(1) }
  end

  def test_all_who_wait_are_told
    fiber = apart { 3.times { receive } }
    askers = Array.new(3) do |i|
      spin do
        fiber.ask(i)
      rescue Unanswered => e
        e.request.message
      end
    end
    assert_equal [0, 1, 2], Fiber.await(askers)
    assert_no_trace fiber
  end

  def test_a_question_that_was_not_received_is_told_of_the_end_too
    fiber = apart { sleep }
    asker = spin do
      fiber.ask(1)
    rescue Unanswered => e
      e.message
    end
    snooze until fiber.mailbox.size == 1
    fiber.stop
    assert_match(/ended without answering 1/, asker.await)
  end

  def test_a_fiber_that_answers_and_ends_has_answered
    fiber = apart { receive.reply(:last_words) }
    assert_equal :last_words, fiber.ask(1)
  end

  def test_a_fiber_cannot_ask_itself
    assert_raises(FiberError) { Fiber.current.ask(1) }
    assert_empty Fiber.current.mailbox.shift_all
  end

  # --- time limits ----------------------------------------------------------------------------------

  def test_a_timeout_says_what_was_asked_whom_and_how_long
    fiber = silent
    started = clock
    error = assert_raises(Timeout) { fiber.ask([:get, 1], timeout: 0.01) }
    assert_operator clock - started, :>=, 0.01
    assert_equal "#{fiber.inspect} did not answer [:get, 1] within 0.01 seconds", error.message
    assert_kind_of Unanswered, error
    assert_no_trace fiber
  end

  def test_an_answer_in_time_leaves_no_timer
    fiber = squares
    assert_equal 4, fiber.ask(2, timeout: 100)
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_a_question_that_nobody_waits_for_any_more_is_taken_out_of_the_mailbox
    fiber = spin { sleep }
    assert_raises(Timeout) { fiber.ask(1, timeout: 0.001) }
    assert_empty fiber.mailbox.shift_all
  end

  def test_an_answer_that_comes_too_late_is_dropped
    held = []
    fiber = server { |request| held << request }
    assert_raises(Timeout) { fiber.ask(1, timeout: 0.001) }
    refute_predicate held.first, :pending?
    assert_equal [false, false], [held.first.reply(:late), held.first.reject(Boom)]
    snooze
    assert_empty Fiber.current.mailbox.shift_all
  end

  def test_an_answer_that_came_before_the_timer_was_looked_at_counts
    held = nil
    fiber = server { |request| held = request }
    asker = spin { fiber.ask(1, timeout: 0.001) }
    snooze until held
    deadline = clock + 0.003
    nil until clock > deadline
    held.reply(:in_time)
    Thread.current.backend.poll(false)
    assert_equal :in_time, asker.await
  end

  def test_time_limits_of_zero_and_less_are_over_when_the_asker_waits
    fiber = silent
    assert_raises(Timeout) { fiber.ask(1, timeout: 0) }
    assert_raises(Timeout) { fiber.ask(1, timeout: -1) }
    assert_raises(TypeError) { fiber.ask(1, timeout: 'soon') }
    assert_no_trace fiber
  end

  def test_a_limit_around_ask_is_not_taken_for_its_own
    fiber = silent
    assert_equal(:outer, move_on_after(0.001, with_value: :outer) { fiber.ask(1, timeout: 100) })
    assert_raises(Boom) { cancel_after(0.001, with_exception: Boom) { fiber.ask(1) } }
    assert_raises(Timeout) { cancel_after(100) { fiber.ask(1, timeout: 0.001) } }
    assert_no_trace fiber
  end

  # --- capped mailboxes -------------------------------------------------------------------------------

  def test_waiting_for_room_counts_towards_the_limit
    fiber = spin { sleep }
    fiber.mailbox.cap(1)
    fiber << :full
    assert_raises(Timeout) { fiber.ask(1, timeout: 0.005) }
    assert_equal [:full], fiber.mailbox.shift_all
  end

  def test_a_fiber_that_ends_while_a_question_waits_for_room
    fiber = apart { sleep }
    fiber.mailbox.cap(1)
    fiber << :full
    asker = spin do
      fiber.ask(1)
    rescue Unanswered => e
      e.message
    end
    snooze until fiber.mailbox.num_waiting == 1
    fiber.stop
    assert_match(/ended without answering 1/, asker.await)
  end

  def test_a_question_to_a_full_mailbox_is_refused_or_dropped_by_its_policy
    fiber = spin { sleep }
    fiber.mailbox.cap(1, policy: :error)
    fiber << :full
    assert_raises(Polyphony::Queue::Full) { fiber.ask(1) }
    fiber.mailbox.cap(1, policy: :drop_newest)
    error = assert_raises(Unanswered) { fiber.ask(2) }
    assert_equal "2 was dropped from the mailbox of #{fiber.inspect}", error.message
    assert_equal [:full], fiber.mailbox.shift_all
    assert_nil fiber.__monitors
  end

  def test_a_question_that_makes_room_for_another_message_is_reported_at_once
    fiber = spin { sleep }
    fiber.mailbox.cap(1, policy: :drop_oldest)
    asker = spin do
      fiber.ask(1)
    rescue Unanswered => e
      e.message
    end
    snooze until fiber.mailbox.size == 1
    fiber << :newer
    assert_match(/1 was dropped/, asker.await)
    assert_equal [:newer], fiber.mailbox.shift_all
  end

  def test_a_question_in_a_mailbox_that_is_cleared_is_reported_at_once
    fiber = spin { sleep }
    asker = spin do
      fiber.ask(1)
    rescue Unanswered => e
      e.message
    end
    snooze until fiber.mailbox.size == 1
    fiber.mailbox.clear
    assert_match(/1 was dropped/, asker.await)
    assert_equal 0, fiber.mailbox.dropped, 'it was not the queue that dropped it'
  end

  # --- cancelling -----------------------------------------------------------------------------------

  def test_an_asker_may_be_ended_anywhere
    fiber = squares
    cancel_everywhere do |run|
      results = []
      run.scenario { 2.times { |i| results << fiber.ask(i + 2) } }
      run.beside { results << fiber.ask(9) }
      run.check do |finished|
        assert_includes results, 81
        assert_equal [4, 9, 81], results.sort if finished
        snooze until fiber.mailbox.pending? # it may have taken a question that nobody waits for
        assert_no_trace fiber
      end
    end
  end

  def test_an_asker_with_a_limit_and_a_capped_mailbox_may_be_ended_anywhere
    fiber = squares
    fiber.mailbox.cap(1)
    cancel_everywhere do |run|
      run.scenario { 2.times { fiber.ask(2, timeout: 100) } }
      run.beside { 2.times { assert_equal 9, fiber.ask(3, timeout: 100) } }
      run.check do
        snooze until fiber.mailbox.pending?
        assert_no_trace fiber
        assert_equal [0, 0], Thread.current.backend.stats.values_at(:pending_ops, :pending_timers)
      end
    end
  end

  def test_the_answering_fiber_may_be_ended_anywhere
    cancel_everywhere do |run|
      fiber = nil
      outcomes = []
      run.scenario do
        fiber = Fiber.current
        2.times { request = receive; snooze; request.reply(request.message) }
      end
      run.beside do
        3.times { snooze } # by then it has begun, or never will
        2.times do |i|
          outcomes << fiber.ask(i) if fiber
        rescue Unanswered
          outcomes << :unanswered
        end
      end
      run.check do |finished|
        next unless fiber

        assert_equal 2, outcomes.size
        assert_equal [0, 1], outcomes if finished
        assert_nil fiber.__monitors
      end
    end
  end

  # --- threads, processes, memory ---------------------------------------------------------------------

  def test_fibers_of_other_threads_ask_and_answer
    fiber = squares
    threads = Array.new(3) { |i| Thread.new { Array.new(20) { |j| fiber.ask(i * 20 + j, timeout: patient(30)) } } }
    sleep 0.001 while threads.any?(&:alive?)
    assert_equal Array.new(60) { |i| i * i }, threads.flat_map(&:value)
    assert_no_trace fiber
  end

  def test_a_thread_answers
    thread = Thread.new { receive_loop { |request| request.reply(Thread.current) } }
    sleep 0.001 until thread.main_fiber
    assert_same thread, thread.main_fiber.ask(1)
    thread.kill
    thread.join
    assert_raises(Unanswered) { thread.main_fiber.ask(1) }
  end

  def test_a_thread_that_ends_without_an_answer_is_reported_at_once
    thread = Thread.new { receive }
    sleep 0.001 until thread.main_fiber
    error = assert_raises(Unanswered) { thread.main_fiber.ask(1) }
    assert_match(/ended without answering 1/, error.message)
    thread.join
  end

  def test_a_fiber_that_ends_with_its_thread_is_reported_at_once
    fiber = nil
    thread = Thread.new { fiber = spin { receive; sleep }; sleep 0.01 }
    sleep 0.001 until fiber
    assert_raises(Unanswered) { fiber.ask(1) }
    thread.join
  end

  def test_one_of_many_threads_that_answer_at_once_wins
    50.times do
      threads = nil
      fiber = server do |request|
        threads = Array.new(4) { |i| Thread.new { [i, request.reply(i)] } }
      end
      answer = fiber.ask(1)
      winners = threads.map(&:value).select(&:last)
      assert_equal [[answer, true]], winners
      fiber.stop
    end
  end

  def test_asking_in_a_forked_child
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      squares = -> { spin { receive_loop { |request| request.reply(request.message**2) } } }
      old = squares.call
      p old.ask(2)
      Process.wait(fork do
        p squares.call.ask(3)
        begin
          old.ask(4)
        rescue Polyphony::Request::Unanswered => e
          p e.class
        end
      end)
      p old.ask(5)
    RUBY
    assert_predicate status, :success?, err
    assert_equal %w[4 9 Polyphony::Request::Unanswered 25], out.lines(chomp: true)
  end

  def test_a_fiber_that_is_asked_often_does_not_grow
    heavy
    fiber = squares
    2000.times { |i| assert_equal i * i, fiber.ask(i, timeout: 10) }
    GC.start
    assert_nil fiber.__monitors
    assert_operator ObjectSpace.each_object(Polyphony::Request).count, :<, 200
  end
end
