# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Callback: what a library calls back with is handed out one by one, in order, and nothing is lost.
class TestCallback < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  Callback = Polyphony::Callback

  # A library that calls back: once for every word that is complete, at the end for the last.
  class Words
    attr_accessor :on_word, :on_number, :answers

    def initialize
      @rest = +''
      @answers = []
    end

    def <<(data)
      @rest << data
      tell($1) while @rest.sub!(/\A(\S+)\s+/, '')
      self
    end

    def finish
      tell(@rest) unless @rest.empty?
    end

    def tell(word)
      @answers << (word.match?(/\A\d+\z/) && on_number ? on_number : on_word).call(word)
    end
  end

  def setup
    super
    @words = Words.new
    @input, @output = IO.pipe
    @events = Callback.new(@input, at_end: @words.method(:finish)) { |data| @words << data }
    @words.on_word = @events.on
  end

  def teardown
    [@input, @output].each(&:close)
    super
  end

  # --- handing out ------------------------------------------------------------------------------------------------------

  def test_events_come_in_order_until_the_end
    spin { %w[one\ tw o\ three\  fo ur].each { |part| @output << part; snooze }; @output.close }
    assert_equal %w[one two three four], @events.to_a
    assert_predicate @events, :ended?
    assert_equal [], @events.to_a
    assert_raises(StopIteration) { @events.next }
  end

  def test_each_returns_itself_and_an_enumerator_without_a_block
    @output.close
    assert_same @events, @events.each { flunk }
    assert_instance_of Enumerator, @events.each
  end

  def test_each_waits_while_others_run
    got = []
    reader = spin { @events.each { |word| got << word } }
    snooze
    assert_equal :waiting, reader.state
    @output << 'now '
    sleep 0.001 until got == ['now']
    @output.close
    reader.await
  end

  def test_next_takes_one_at_a_time
    @output << "a 1 b "
    @words.on_number = @events.on(:number) { |word| Integer(word) }
    assert_equal ['a', [:number, 1], 'b'], Array.new(3) { @events.next }
  end

  def test_enumerators_take_no_more_than_they_are_asked_for
    @output << 'a b c d e '
    assert_equal %w[a b], @events.first(2)
    assert_equal %w[C], @events.lazy.map(&:upcase).first(1)
    each = @events.each
    assert_equal %w[d e], [each.next, each.next]
  end

  def test_kinds_of_events
    @words.on_word = @events.on(:word)
    @words.on_number = @events.on(:number, answer: :go_on) { |text| Integer(text) * 2 }
    @output << 'a 21 b '
    @output.close
    assert_equal [[:word, 'a'], [:number, 42], [:word, 'b']], @events.to_a
    assert_equal [nil, :go_on, nil], @words.answers
  end

  def test_a_listener_has_the_methods_it_is_to_have
    listener = @events.listener(:started, :ended)
    listener.started(1, a: 2)
    listener.ended
    refute_respond_to listener, :other
    assert_equal [[:started, 1, { a: 2 }], :ended], [@events.next, @events.next]
  end

  def test_values_may_be_nil_and_none
    @events.call
    @events.call(nil)
    @events.call(:a, nil)
    assert_equal [nil, nil, [:a, nil]], Array.new(3) { @events.next }
  end

  # --- input ------------------------------------------------------------------------------------------------------------

  def test_nothing_is_read_while_events_are_left
    reads = 0
    parts = ['a b c ', 'd ', nil]
    events = Callback.new(-> { reads += 1; parts.shift }) { |data| @words << data }
    @words.on_word = events.on
    seen = []
    events.each { |word| seen << [word, reads] }
    assert_equal [['a', 1], ['b', 1], ['c', 1], ['d', 2]], seen
    events.each { flunk }
    assert_equal 3, reads, 'the end is asked for once'
  end

  def test_a_library_that_works_by_itself
    left = [[1, 2], [], [3]]
    events = Callback.new { snooze; (left.shift or raise StopIteration).each { |n| events.call(n) } }
    assert_equal [1, 2, 3], events.to_a
    events = Callback.new { events.call(1) if events.size.zero? && !left.frozen?; left.freeze; raise EOFError }
    assert_equal [1], events.to_a
  end

  def test_the_end_is_told_once
    told = 0
    events = Callback.new(@input, at_end: -> { told += 1; events.call(:last) }) { |data| events.call(data) }
    @output << 'x'
    @output.close
    assert_equal ['x', :last], events.to_a
    assert_equal [], events.to_a
    assert_equal 1, told
  end

  # --- errors -----------------------------------------------------------------------------------------------------------

  class Bad < StandardError; end

  def test_an_error_in_a_callback_comes_in_its_turn
    @words.on_number = @events.on { |word| raise Bad, word }
    @output << 'a 7 b '
    @output.close
    got = []
    error = assert_raises(Bad) { @events.each { |word| got << word } }
    assert_equal [['a'], '7'], [got, error.message]
    assert_match(/test_callback\.rb/, error.backtrace.first)
    assert_equal ['b'], @events.to_a
    assert_equal [nil, nil, nil], @words.answers, 'the library has seen nothing of it'
  end

  def test_an_error_of_the_library_comes_after_the_events_before_it
    events = Callback.new(@input) { |data| @words << data; raise Bad, 'no more' if data.include?('!') }
    @words.on_word = events.on
    @output << 'a b ! '
    got = []
    2.times { assert_raises(Bad) { events.each { |word| got << word } } if got.empty? }
    assert_equal %w[a b !], got
    @output << 'c '
    @output.close
    assert_equal ['c'], events.to_a
  end

  def test_an_error_of_the_source
    events = Callback.new(-> { raise Errno::ECONNRESET }) { flunk }
    2.times { assert_raises(Errno::ECONNRESET) { events.next } }
    refute_predicate events, :ended?
  end

  def test_an_end_of_file_within_the_library_is_an_error
    events = Callback.new(@input) { raise EOFError, 'in the middle' }
    @output << 'x'
    assert_equal 'in the middle', assert_raises(EOFError) { events.next }.message
  end

  def test_an_error_in_the_block_leaves_the_rest
    @output << 'a b c '
    assert_raises(Bad) { @events.each { raise Bad } }
    assert_equal 'b', @events.next
    @events.each { break }
    assert_equal 0, @events.size
  end

  def test_bad_arguments_are_named
    assert_match(/a block that takes/, assert_raises(ArgumentError) { Callback.new(@input) }.message)
    assert_match(/neither: 7/, assert_raises(ArgumentError) { Callback.new(7) {} }.message)
    assert_match(/leave capacity out/, assert_raises(ArgumentError) { Callback.new(capacity: 1) {} }.message)
    assert_match(/capacity .* got 0/, assert_raises(ArgumentError) { Callback.new(capacity: 0) }.message)
    assert_match(/maxlen .* got "1"/, assert_raises(ArgumentError) { Callback.new(@input, maxlen: '1') {} }.message)
    assert_match(/at_end .* got 1/, assert_raises(ArgumentError) { Callback.new(@input, at_end: 1) {} }.message)
    assert_match(/one kind of event, got 2/, assert_raises(ArgumentError) { @events.on(:a, :b) }.message)
  end

  # --- cancelling -------------------------------------------------------------------------------------------------------

  def test_a_cancelled_each_is_gone_on_with
    assert_nil move_on_after(0.001) { @events.each { flunk } }
    @output << 'a b c '
    got = []
    move_on_after(0.001) { @events.each { |word| got << word; sleep } }
    assert_raises(Timeout::Error) { Timeout.timeout(0.001) { @events.each { |word| got << word; sleep } } }
    stopped = spin { @events.each { |word| got << word; suspend } }
    snooze until got.size == 3
    stopped.stop
    stopped.await
    @output << 'd'
    @output.close
    assert_equal %w[a b c d], got + @events.to_a
  end

  def test_no_event_is_lost_or_doubled_at_any_wait_point
    cancel_everywhere do |run|
      words = Words.new
      input, output = IO.pipe
      events = Callback.new(input, at_end: words.method(:finish)) { |data| words << data }
      words.on_word = events.on { |word| snooze; word }
      got = []
      run.scenario { events.each { |word| got << word; snooze } }
      run.beside { ['a b', ' c d ', 'e'].each { |part| output << part; snooze }; output.close }
      run.check do
        assert_equal %w[a b c d e], got + events.to_a
        input.close
      end
    end
  end

  # --- several fibers and threads ---------------------------------------------------------------------------------------

  def test_each_within_each_goes_on_with_what_follows
    @output << 'a ( b c ) d '
    @output.close
    got = @events.map do |word|
      next word unless word == '('

      @events.take_while { |inner| inner != ')' }
    end
    assert_equal ['a', %w[b c], 'd'], got
  end

  def test_a_callback_that_waits_for_the_next_event_is_told
    @words.on_word = @events.on { @events.next }
    @output << 'a '
    assert_match(/in the middle of its work/, assert_raises(FiberError) { @events.next }.message)
  end

  def test_several_fibers_share_the_events
    got = Array.new(3) { [] }
    fibers = got.map { |list| spin { @events.each { |word| list << word; snooze } } }
    snooze
    @output << Array.new(30) { |i| "w#{i} " }.join
    @output.close
    fibers.each(&:await)
    assert_equal Array.new(30) { |i| "w#{i}" }.sort, got.flatten.sort
    got.each { |list| assert_equal list, list.sort_by { |word| word[1..].to_i } }
  end

  def test_callbacks_from_a_thread
    events = Callback.new
    thread = Thread.new { 100.times { |i| events.to_proc.call(i) }; events.close }
    assert_equal Array.new(100) { |i| i }, events.to_a
    thread.join
  end

  def test_a_thread_waits_while_the_queue_is_full
    events = Callback.new(capacity: 2)
    sent = 0
    thread = Thread.new { 10.times { |i| events.call(i); sent += 1 }; events.close }
    Thread.pass until sent == 2
    most = 0
    assert_equal Array.new(10) { |i| i }, events.map { |i| most = [most, sent - i].max; i }
    thread.join
    assert_operator most, :<=, 4
  end

  def test_close_ends_those_who_wait
    with_source = spin { @events.to_a }
    without = Callback.new
    waiting = spin { without.to_a }
    2.times { snooze }
    @events.close
    without.call(:last)
    without.close
    assert_equal [[], [:last]], [with_source.await, waiting.await]
    assert_nil without.call(:late)
    assert_equal [], without.to_a
    @output << 'x'
    assert_equal 'x', @input.readpartial(10), 'nothing was read any more'
  end

  def test_a_closed_one_lets_go_of_a_callback_that_waits_for_room
    events = Callback.new(capacity: 1)
    calling = spin { 3.times { |i| events.call(i) }; :done }
    snooze until calling.state == :waiting
    events.close
    assert_equal :done, calling.await
    assert_equal [0], events.to_a
  end

  def test_inspect_is_short
    @events.call(1)
    assert_match(/#<Polyphony::Callback 1 waiting>/, @events.inspect)
  end
end
