# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/number_hooks'

# Polyphony::Telemetry: contexts that go along. Here a context is whatever stands in a fiber-local.
class TestTelemetry < Polyphony::TestCase
  on_every_driver

  Telemetry = Polyphony::Telemetry

  class Numbers < Polyphony::NumberHooks
    attr_reader :fibers

    def fiber(fiber, context, &block)
      (@fibers ||= []) << fiber.tag
      super
    end

    def ids
      { number: capture.to_s }
    end
  end

  def setup
    super
    Telemetry.hooks = @hooks = Numbers.new
  end

  def teardown
    Telemetry.hooks = nil
    Thread.current[:number] = nil
    super
  end

  def in_context(number, &block)
    @hooks.carry(number, &block)
  end

  def now
    Thread.current[:number]
  end

  # --- fibers ---

  def test_a_spun_fiber_and_what_it_spins_go_on_with_the_context
    fiber = in_context(5) { spin { [now, spin { snooze; now }.await] } }
    assert_equal [5, 5], fiber.await
    assert_nil spin { now }.await
  end

  def test_the_context_is_that_of_the_moment_of_the_spin
    fiber = in_context(1) { spin { snooze; now } }
    in_context(2) { assert_equal 1, fiber.await }
  end

  def test_every_way_to_spin_carries
    in_context(3) do
      assert_equal 3, Polyphony.scope { |scope| scope.spin { now } }.then { |result| result.is_a?(Fiber) ? result.await : result }
      assert_equal [3, 3], Fiber.map([1, 2]) { now }
      got = []
      after(0.001) { got << now }.await
      spin_loop { got << now; break }.await
      assert_equal [3, 3], got
    end
  end

  def test_a_restarted_fiber_has_its_first_context
    got = []
    fiber = in_context(4) { spin { got << now } }
    fiber.await
    in_context(5) { fiber.restart }.await
    assert_equal [4, 4], got
    fiber = in_context(6) { spin { got << now; suspend } }
    snooze
    in_context(7) { fiber.restart; snooze; snooze }
    assert_equal [4, 4, 6, 6], got
    fiber.stop
  end

  def test_fibers_are_told_of_while_there_is_a_context
    in_context(1) { spin(:inside) { nil }.await }
    spin(:outside) { nil }.await
    assert_equal [:inside], @hooks.fibers
  end

  def test_what_ends_a_fiber_passes_through_carry
    fiber = in_context(5) { spin { sleep } }
    snooze
    fiber.stop
    assert_nil fiber.await
    fiber = in_context(5) { spin { raise IOError, 'x' } }
    assert_raises(IOError) { fiber.await }
    fiber = in_context(5) { spin { deadline(0.001) { sleep } } }
    assert_raises(Polyphony::DeadlineExceeded) { fiber.await }
    assert_nil now
  end

  def test_without_hooks_nothing_is_carried
    fiber = in_context(5) { spin { now } }
    Telemetry.hooks = nil
    assert_nil fiber.await
    refute_predicate Telemetry, :on?
    Thread.current[:number] = 3
    assert_nil spin { now }.await
    assert_equal [{}, {}], [Telemetry.headers, Telemetry.ids]
    assert_equal [3, 3, 3], [Telemetry.continue { now }, Telemetry.apart { now }, Telemetry.resume('number' => '5') { now }]
  end

  def test_hooks_are_hooks
    assert_match(/Telemetry::Hooks, got 1/, assert_raises(ArgumentError) { Telemetry.hooks = 1 }.message)
    %i[continue bind apart].each { |name| assert_raises(ArgumentError) { Telemetry.public_send(name) } }
    assert_raises(ArgumentError) { Telemetry.resume({}) }
  end

  def test_a_hook_that_fails_breaks_nothing_and_is_told_once
    Telemetry.hooks = Class.new(Telemetry::Hooks) do
      %i[capture inject extract ids].each { |name| define_method(name) { |*| raise KeyError, name.to_s } }
    end.new
    _, err = capture_io do
      2.times { assert_equal 1, spin { Fiber.current.parent << 2; 1 }.await }
      assert_equal [2, 2], [receive, receive]
      assert_equal [{}, {}, 4], [Telemetry.headers, Telemetry.ids, Telemetry.resume({}) { 4 }]
    end
    assert_match(/\Apolyphony: a hook of .* raised KeyError: capture .*\n\z/, err)
  end

  # --- threads ---

  def test_threads_and_their_fibers_go_on_with_it
    in_context(2) do
      assert_equal [2, 2], Thread.new { [now, spin { now }.await] }.value
      assert_equal 2, Thread.start { now }.value
    end
    assert_nil Thread.new { now }.value
  end

  def test_jobs_have_the_context_of_who_gives_them
    pool = Polyphony::ThreadPool.new(1)
    in_context(1) { assert_equal 1, pool.process { now } }
    assert_nil pool.process { now }
    in_context(2) { assert_equal 2, pool.process { spin { now }.await } }
    in_context(3) { assert_equal 3, Polyphony.blocking { now } }
    in_context(4) { assert_equal 4, Polyphony.interruptible { now } }
    assert_nil Polyphony.blocking { now }
    got = Polyphony::Queue.new
    in_context(5) { pool.cast { got << now } }
    assert_equal 5, got.shift
  ensure
    pool.stop
  end

  # --- messages ---

  def test_receive_loop_runs_in_the_context_of_each_sender
    got = []
    fiber = in_context(9) { spin { receive_loop { |message| got << [message, now]; break if message == :end }; now } }
    in_context(1) { fiber << :a }
    in_context(2) { spin { fiber << :b }.await }
    in_context(3) { Thread.new { fiber << :c }.join }
    fiber << :end
    assert_equal 9, fiber.await
    assert_equal [[:a, 1], [:b, 2], [:c, 3], [:end, 9]], got
  end

  def test_who_answers_a_question_is_in_the_context_of_who_asks
    fiber = spin { receive_loop { |request| request.reply([request.message, now]) } }
    in_context(1) { assert_equal [:x, 1], fiber.ask(:x) }
    in_context(2) { assert_equal [:y, 2], Thread.new { fiber.ask(:y) }.value }
    assert_equal [:z, nil], fiber.ask(:z)
    fiber.stop
  end

  def test_continue_goes_on_in_the_context_of_the_last_message
    in_context(1) { Fiber.current << :a }
    Fiber.current << :b
    assert_equal [:a, nil, 1], [receive, now, Telemetry.continue { now }]
    assert_equal [:b, nil], [receive, Telemetry.continue { now }]
    in_context(4) { assert_equal 4, Telemetry.continue { now } }
  end

  def test_each_item_of_a_queue_keeps_its_context
    queue = Polyphony::Queue.new
    put = ->(i) { i.odd? ? in_context(i) { queue << i } : queue << i }
    20.times(&put)
    in_context(77) { queue.unshift(-1) }
    assert_equal [-1, 77], [queue.shift, Telemetry.continue { now }]
    5.times { |i| assert_equal [i, (i if i.odd?)], [queue.shift, Telemetry.continue { now }] }
    (20...90).each(&put) # grows, and wraps around
    queue.delete(7)
    queue.close
    got = []
    queue.each { |i| got << [i, now] }
    assert_equal ([*5...90] - [7]).map { |i| [i, (i if i.odd?)] }, got
  end

  def test_contexts_live_as_long_as_their_items
    queue = Polyphony::Queue.new
    200.times { |i| in_context("context #{i}") { queue << "item #{i}" } }
    GC.start
    compact if GC.respond_to?(:verify_compaction_references)
    200.times { |i| assert_equal ["item #{i}", "context #{i}"], [queue.shift, Telemetry.continue { now }] }
  end

  def compact
    GC.verify_compaction_references(toward: :empty)
  rescue NotImplementedError
    nil # not everywhere can objects be moved
  end

  def test_a_full_queue_drops_the_context_with_the_item
    queue = Polyphony::Queue.new(2, policy: :drop_oldest)
    5.times { |i| in_context(i) { queue << i } }
    assert_equal [3, 3], [queue.shift, Telemetry.continue { now }]
    queue.clear
    queue << :plain
    assert_equal [:plain, nil], [queue.shift, Telemetry.continue { now }]
  end

  def test_pools_leave_the_context_of_the_last_message
    pool = Polyphony::ResourcePool.new(limit: 1) { :resource }
    in_context(1) { Fiber.current << :a }
    receive
    in_context(2) { pool.acquire { Polyphony.blocking { nil } } }
    assert_equal 1, Telemetry.continue { now }
  end

  # --- by hand ---

  def test_a_bound_block_runs_where_it_was_bound
    block = in_context(1) { Telemetry.bind { |a, b = 2, *c, d: 4, &inner| [now, a, b, c, d, inner&.call] } }
    assert_equal [1, 1, 2, [], 4, nil], block.call([1])
    assert_equal [1, 1, 3, [5], 6, 7], block.call(1, 3, 5, d: 6) { 7 }
    assert_equal [1, [1, 2]], in_context(1) { Telemetry.bind { |a| [now, a] } }.call([1, 2])
    bare = in_context(3) { Telemetry.bind(&-> { now }) }
    assert_equal [3, 0], [bare.call, bare.arity]
    assert_equal 3, spin(&bare).await
    strict = in_context(3) { Telemetry.bind(&->(a, b:) { [now, a, b] }) }
    assert_equal [3, 1, 2], strict.call(1, b: 2)
    assert_raises(ArgumentError) { strict.call }
    plain = proc { 1 }
    assert_same plain, Telemetry.bind(&plain)
  end

  def test_headers_go_to_other_programs_and_come_back
    headers = in_context(6) { Telemetry.headers }
    assert_equal({ 'number' => '6' }, headers)
    assert_equal({}, Telemetry.headers)
    assert_equal 6, Telemetry.resume(headers) { now }
    in_context(1) { assert_nil Telemetry.resume({}) { now } }
    in_context(1) { assert_nil Telemetry.resume(nil) { now } }
    assert_equal({ number: '8' }, in_context(8) { Telemetry.ids })
  end

  def test_work_in_other_processes_goes_on_with_it
    pool = Polyphony::ProcessPool.new(1, number: -> { [Thread.current[:number], spin { Thread.current[:number] }.await] })
    in_context(3) { assert_equal [3, 3], pool.process(:number) }
    assert_equal [nil, nil], pool.process(:number)
  ensure
    pool&.stop
  end

  def test_a_forked_child_begins_without_unless_it_is_told
    read, write = pipe_pair
    pid = in_context(12) do
      headers = Telemetry.headers
      Polyphony.fork { write << [now, Telemetry.resume(headers) { now }].inspect }
    end
    Process.wait(pid)
    write.close
    assert_equal '[nil, 12]', read.read
  end
end
