# frozen_string_literal: true

require_relative '../support/remote_case'

# Full mailboxes, questions and answers, ends of others.
class TestRemoteAnswers < Polyphony::RemoteCase
  on_every_driver
  gems 'polyphony/remote'

  Remote = Polyphony::Remote if defined?(Polyphony::Remote)
  Request = Polyphony::Request

  def setup
    super
    @here = remote
    @there = remote
  end

  # --- full mailboxes ---

  # A receiver that takes one message each time it is told to.
  def slow_receiver(**options)
    gate = Polyphony::Queue.new
    fiber, got = receiver(@here, 'a', **options) { gate.shift }
    [fiber, got, gate]
  end

  def test_senders_wait_for_room_in_order
    _, got, gate = slow_receiver(capacity: 3)
    sent = []
    senders = Array.new(8) { |i| spin { @there['a'] << i; sent << i } }
    eventually { @there.stats[:waiting_for_room] == 5 }
    assert_equal [0, 1, 2], sent
    assert_equal 3, @there['a'].stats[:length]
    8.times { gate << true }
    Fiber.await(senders)
    eventually { got.size == 8 }
    assert_equal [(0...8).to_a] * 2, [got, sent]
    assert_equal 0, @there.stats[:waiting_for_room]
    eventually_length('a', 0)
    assert_equal 0, @there['a'].stats[:waiting_for_room]
  end

  def test_senders_of_other_processes_wait_in_order_too
    _, got, gate = slow_receiver(capacity: 1)
    @there['a'] << 0
    eventually { got.size == 1 }
    others = Array.new(3) { remote }
    senders = others.map.with_index(1) do |one, i|
      spin { one['a'] << i }.tap { eventually { @there['a'].stats[:waiting_for_room] == i } }
    end
    4.times { gate << true }
    Fiber.await(senders)
    eventually { got.size == 4 }
    assert_equal [0, 1, 2, 3], got
  end

  def test_a_sender_that_has_gone_keeps_no_place
    _, got, gate = slow_receiver(capacity: 1)
    @there['a'] << 0
    eventually { got.size == 1 }
    third, fourth = remote, remote
    gone = spin { third['a'] << 1 }
    eventually { @there['a'].stats[:waiting_for_room] == 1 }
    waiting = spin { fourth['a'] << 2 }
    eventually { @there['a'].stats[:waiting_for_room] == 2 }
    gone.stop
    eventually { @there['a'].stats[:waiting_for_room] == 1 }
    2.times { gate << true }
    waiting.await
    eventually { got.size == 2 }
    assert_equal [0, 2], got
  end

  def test_a_lost_sender_keeps_no_place
    _, got, gate = slow_receiver(capacity: 1)
    @there['a'] << 0
    eventually { got.size == 1 }
    @admin.call('ZADD', key('mailbox:a:waiting'), 0, 'feedfeedfeedfeed')
    sender = spin { @there['a'] << 1 }
    eventually { @there.stats[:waiting_for_room] == 1 }
    gate << true
    sender.await
    assert_equal 0, @there['a'].stats[:waiting_for_room]
  end

  def test_a_limit_for_waiting
    slow_receiver(capacity: 1)
    @there['a'] << 0
    error = assert_raises(Remote::Full) { @there['a'].send(1, timeout: 0.02) }
    assert_equal [1, @there['a']], [error.capacity, error.owner]
    assert_match(/the mailbox of #<Polyphony::Remote::Name a at .*> is full: it holds 1/, error.message)
    blocker = spin { @there['a'] << 2 }
    eventually { @there.stats[:waiting_for_room] == 1 }
    assert_raises(Remote::Full) { @there['a'].send(1, timeout: 0.02) }
    assert_nil move_on_after(0.01) { @there['a'] << 1 }
    blocker.stop
    blocker.await
    eventually { @there['a'].stats[:waiting_for_room].zero? }
  end

  def test_the_policy_error
    slow_receiver(capacity: 2, policy: :error)
    2.times { |i| @there['a'] << i }
    assert_kind_of Polyphony::Queue::Full, assert_raises(Remote::Full) { @there['a'] << 3 }
    assert_equal [2, :error, 2], @there['a'].stats.values_at(:capacity, :policy, :length)
  end

  def test_the_policy_drop_newest
    _, got, gate = slow_receiver(capacity: 2, policy: :drop_newest)
    5.times { |i| @there['a'] << i }
    assert_equal [3, 3, 2], [@there['a'].stats[:dropped], @there.stats[:dropped], @there.stats[:sent]]
    2.times { gate << true }
    eventually { got.size == 2 }
    assert_equal [0, 1], got
  end

  def test_the_policy_drop_oldest_leaves_alone_what_was_handed_out
    _, got, gate = slow_receiver(capacity: 3, policy: :drop_oldest, prefetch: 1)
    @there['a'] << 0
    eventually { got.size == 1 }
    @there['a'] << 1
    eventually { @there['a'].stats[:pending] == 2 }
    (2..6).each { |i| @there['a'] << i }
    assert_equal [4, 3], @there['a'].stats.values_at(:dropped, :length)
    7.times { gate << true }
    eventually { got.size == 3 }
    assert_equal [0, 1, 6], got
  end

  def test_who_has_not_been_registered_yet_has_the_capacity_of_the_sender
    careful = remote(capacity: 2, policy: :error)
    2.times { |i| careful['new'] << i }
    assert_raises(Remote::Full) { careful['new'] << 2 }
    @there['new'] << 2
    receiver(@here, 'new', capacity: 0)
    eventually_length('new', 0)
    20.times { |i| careful['new'] << i }
  end

  def test_waiting_for_room_that_is_cancelled_anywhere_leaves_nothing
    heavy
    _, got, gate = slow_receiver(capacity: 1)
    cancel_everywhere(turns: 500_000) do |run|
      got.clear
      @there['a'] << 0
      eventually { got.size == 1 }
      run.scenario { @there['a'] << 1 }
      run.beside do
        snooze until @there.stats[:waiting_for_room] == 1 || Fiber.current.parent.children.none? { |fiber| fiber.tag == :scenario }
        gate << true
      end
      run.check do |finished|
        gate << true
        eventually { @there['a'].stats.values_at(:length, :waiting_for_room).sum.zero? }
        assert_equal [0, 0], @there.stats.values_at(:waiting_for_room, :asking)
        assert_includes finished ? [[0, 1]] : [[0, 1], [0]], got
        gate.clear
      end
    end
  end

  # --- questions ---

  def answering(&block)
    receiver(@here, 'clerk') { |question| block.call(question) }
  end

  test_in_both :a_question_is_answered do
    answering do |question|
      case question
      in Polyphony::Request(message: ['divide', _, 0]) then question.reject(ZeroDivisionError, 'by nothing')
      in Polyphony::Request(message: ['divide', a, b]) then assert(question.reply(a / b))
      end
    end
    assert_equal 2, @there['clerk'].ask([:divide, 6, 3])
    error = assert_raises(Remote::Rejected) { @there['clerk'].ask([:divide, 6, 0], timeout: 5) }
    assert_equal ['ZeroDivisionError', 'by nothing'], [error.error_class, error.error_message]
    assert_match(/clerk rejected the question: ZeroDivisionError: by nothing/, error.message)
  end

  def test_a_hundred_ask_at_once
    heavy
    2.times { receiver(@here, 'clerk', prefetch: 30) { |question| spin { snooze; question.reply(question.message * 2) } } }
    assert_equal (1..100).map { |i| i * 2 }, (Fiber.map(1..100) { |i| @there['clerk'].ask(i) })
    assert_equal [100, 0, 0], @there.stats.values_at(:asked, :asking, :late_replies)
    eventually_length('clerk', 0)
  end

  def test_the_first_answer_counts_and_a_late_one_is_dropped
    questions = []
    answering { |question| questions << question }
    error = assert_raises(Request::Timeout) { @there['clerk'].ask('slow', timeout: 0.05) }
    assert_match(/clerk at .*> did not answer "slow" within 0.05 seconds/, error.message)
    assert_equal 'slow', error.request.message
    eventually { questions.size == 1 }
    question = questions.first
    eventually { !question.pending? }
    question.reply(1)
    eventually { @there.stats[:late_replies] == 1 }
    asker = spin { @there['clerk'].ask('quick') }
    eventually { questions.size == 2 }
    question = questions.last
    assert_predicate question, :pending?
    assert_match(/Question "quick" from \h+/, question.inspect)
    assert_raises(Remote::Unserialisable) { question.reply(Object.new) }
    assert_equal [true, false, false], [question.reply(2), question.reply(3), question.reject('no')]
    refute_predicate question, :pending?
    assert_equal 2, asker.await
  end

  def test_an_answer_to_one_who_has_gone
    questions = []
    answering { |question| questions << question }
    asker = spin { @there['clerk'].ask(1) }
    eventually { questions.size == 1 }
    asker.stop
    @there.close
    assert_equal false, questions.first.reply(1)
    assert_equal false, keys.any?(/inbox:#{questions.first.sender}/)
  end

  def test_a_question_whose_asker_has_given_up_is_taken_back
    assert_nil move_on_after(0.02) { @there['nobody'].ask(1) }
    eventually_length('nobody', 0)
    assert_equal 0, @there.stats[:asking]
    assert_raises(Request::Timeout) { @there['nobody'].ask(1, timeout: 0.02) }
    eventually_length('nobody', 0)
  end

  def test_a_question_that_comes_too_late_is_not_delivered
    @admin.call('XADD', key('mailbox:clerk'), '1000-1', 'k', 'ask', 'f', 'j', 'b', '1', 's', 'feed', 'c', 'feed-1', 't', '500')
    _, got = answering { nil }
    @there['clerk'] << 'news'
    eventually { got.size == 1 }
    assert_equal ['news'], got
    assert_equal 1, @here.stats[:expired]
    eventually_length('clerk', 0)
  end

  def test_a_question_that_is_dropped
    slow_receiver(capacity: 3, policy: :drop_oldest, prefetch: 1)
    2.times { |i| @there['a'] << i }
    eventually { @there['a'].stats[:pending] == 2 }
    asker = spin do
      @there['a'].ask(2)
    rescue Request::Unanswered => e
      e
    end
    eventually { @there['a'].stats[:length] == 3 }
    @there['a'] << 3
    assert_match(/2 was dropped from the mailbox/, asker.await.message)
    refute_kind_of Request::Timeout, asker.await
  end

  def test_a_question_goes_to_another_one_when_its_receiver_fails
    fiber, = answering { raise IOError }
    fiber.monitor(Fiber.current)
    asker = spin { @there['clerk'].ask(1) }
    Fiber.current.monitor_mailbox.shift
    answering { |question| question.reply([question.message, @here.delivery.redelivered?]) }
    assert_equal [1, true], asker.await
  end

  def test_who_waits_is_told_when_the_remote_is_closed
    slow_receiver(capacity: 1)
    @there['a'] << 0
    outcomes = []
    waiting = [-> { @there['a'] << 1 }, -> { @there['a'] << 2 }, -> { @there['nobody'].ask(1) }].map do |call|
      spin { outcomes << assert_raises(Remote::Closed, &call) }
    end
    eventually { @there.stats.values_at(:waiting_for_room, :asking) == [2, 1] }
    @there.close
    Fiber.await(waiting)
    assert_equal 3, outcomes.size
    assert_equal 0, @here['nobody'].stats[:length] + @here['a'].stats[:waiting_for_room]
  end

  def test_asking_that_is_cancelled_anywhere_leaves_nothing
    heavy
    answering { |question| question.reply(question.message) }
    cancel_everywhere(turns: 500_000) do |run|
      run.scenario { assert_equal 7, @there['clerk'].ask(7) }
      run.check do
        assert_equal 0, @there.stats[:asking]
        eventually_length('clerk', 0)
      end
    end
    assert_equal 8, @there['clerk'].ask(8)
    assert_operator @admin.call('HLEN', key("sent:#{@there.__link.process}")), :<, 20
  end

  # --- ends ---

  def test_a_monitor_hears_of_a_normal_end_and_of_an_error
    fiber, = receiver(@here, 'a') { |message| message == 'fail' ? raise(IOError, 'no paper') : throw(:done) }
    @there['a'].monitor
    @there['a'].monitor
    fiber.monitor(Fiber.current)
    @there['a'] << 'fail'
    assert_equal [:down, 'a', 'IOError: no paper'], receive
    assert_instance_of IOError, Fiber.current.monitor_mailbox.shift.last
    fiber = spin { @here.register('b'); receive }
    eventually { @there['b'].stats[:receivers] == 1 }
    @there['b'].monitor
    @there['b'] << 1
    assert_equal [:down, 'b', :normal], receive
    assert_empty receive_all_pending
    assert_equal 2, @there.stats[:downs]
  end

  def test_a_monitor_hears_when_the_last_receiver_has_gone
    first, = receiver(@here, 'a')
    second, = receiver(@here, 'a')
    third = remote
    receiver(third, 'a')
    @there['a'].monitor
    [first, second].each(&:stop)
    eventually { @there['a'].stats[:receivers] == 1 }
    assert_empty receive_all_pending
    third.close
    assert_equal [:down, 'a', :closed], receive
  end

  def test_a_monitor_hears_that_nobody_is_there
    @there['nobody'].monitor
    assert_equal [:down, 'nobody', :absent], receive
    assert_empty @there.__monitors.names
  end

  def test_a_monitor_hears_of_a_process_that_is_lost
    quick = remote(lost_after: 0.3)
    @admin.call('HSET', key('mailbox:a:owners'), 'feedfeedfeedfeed', 1)
    quick['a'].monitor
    assert_equal [:down, 'a', :lost], receive
  end

  def test_monitors_that_are_taken_back_or_have_ended
    fiber, = receiver(@here, 'a')
    other = spin { @there['a'].monitor; suspend }
    @there['a'].monitor
    eventually { other.state == :waiting && @admin.call('SCARD', key('mailbox:a:monitors')) == 1 }
    @there['a'].unmonitor
    assert_equal 1, @admin.call('SCARD', key('mailbox:a:monitors'))
    other.stop
    other.await
    eventually { @admin.call('SCARD', key('mailbox:a:monitors')).zero? }
    fiber.stop
    eventually { @there['a'].stats[:receivers].zero? }
    assert_empty receive_all_pending
  end
end
