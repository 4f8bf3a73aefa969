# frozen_string_literal: true

require_relative '../test_helper'

# timeout, move_on_after, cancel_after: alone, nested, reset, and left in every way.
class TestTimeouts < Polyphony::TestCase
  on_every_driver

  def test_nested_scopes_may_be_cancelled_by_another_thread
    scopes = Thread::Queue.new
    thread = Thread.new do
      move_on_after(nil, with_value: :outer) do |outer|
        move_on_after(nil, with_value: :inner) { |inner| scopes << [outer, inner]; sleep }
      end
    end
    outer, inner = scopes.pop
    Thread.pass until thread.main_fiber&.state == :waiting
    [inner, outer].each(&:cancel)
    assert_equal :outer, thread.value
    assert_same Thread.current, Fiber.current.thread
    assert_equal 0, sleep(0.001)
  end

  class Boom < StandardError; end
  class Bang < StandardError; end

  LONG = 1000

  def stats
    Thread.current.backend.stats
  end

  def teardown
    assert_equal 0, stats[:pending_timers], 'a timer was left armed'
    super
  end

  # --- the three words ---------------------------------------------------------------------------------

  def test_a_block_that_is_quick_enough_gives_its_value
    assert_equal(1, move_on_after(LONG) { 1 })
    assert_equal(2, cancel_after(LONG) { 2 })
    assert_equal(3, Polyphony.backend_timeout(LONG, nil) { 3 })
    assert_equal(4, Polyphony.backend_timeout(LONG, Boom) { 4 })
  end

  def test_a_block_that_is_quick_enough_may_wait
    assert_equal(:v, move_on_after(LONG) { sleep 0.001; :v })
    assert_equal(:v, cancel_after(LONG) { sleep 0.001; :v })
  end

  def test_move_on_after_returns_nil_or_the_value_given
    assert_nil(move_on_after(0.001) { sleep LONG })
    assert_equal(:late, move_on_after(0.001, with_value: :late) { sleep LONG })
    assert_equal(:late, Polyphony.backend_timeout(0.001, nil, :late) { sleep LONG })
  end

  def test_cancel_after_raises_cancel
    assert_raises(Polyphony::Cancel) { cancel_after(0.001) { sleep LONG } }
  end

  def test_the_exception_may_be_a_class_a_class_with_message_a_message_or_an_instance
    made = Boom.new('made')
    { Boom => [Boom, Boom.name], [Boom, 'text'] => [Boom, 'text'], 'text' => [RuntimeError, 'text'],
      made => [Boom, 'made'] }.each do |spec, (klass, message)|
      error = assert_raises(klass) { cancel_after(0.001, with_exception: spec) { sleep LONG } }
      assert_equal message, error.message
      error = assert_raises(klass) { Polyphony.backend_timeout(0.001, spec) { sleep LONG } }
      assert_equal message, error.message
    end
  end

  def test_what_is_no_exception_is_a_type_error_at_the_deadline
    [Object.new, 5, [], {}].each do |spec|
      assert_raises(TypeError, NoMethodError) { cancel_after(0.001, with_exception: spec) { sleep LONG } }
    end
  end

  class Fussy < StandardError
    def initialize(one, two)
      super("#{one} #{two}")
    end
  end

  def test_an_exception_class_that_cannot_be_made_raises_what_prevented_it
    assert_raises(ArgumentError) { cancel_after(0.001, with_exception: Fussy) { sleep LONG } }
    assert_equal :goes_on, (spin { snooze; :goes_on }.await)
  end

  def test_the_block_can_rescue_the_exception
    value = cancel_after(0.001, with_exception: Boom) do
      sleep LONG
    rescue Boom
      :rescued
    end
    assert_equal :rescued, value
  end

  def test_ensure_blocks_inside_may_wait
    log = []
    move_on_after(0.001) do
      sleep LONG
    ensure
      sleep 0.001
      log << :tidy
    end
    assert_equal [:tidy], log
  end

  def test_the_deadline_strikes_once
    count = 0
    move_on_after(0.001) do
      3.times do
        sleep 0.002
      rescue Polyphony::MoveOn
        count += 1
      end
    end
    assert_equal 1, count
  end

  def test_a_block_is_needed
    assert_raises(ArgumentError, LocalJumpError) { Polyphony.backend_timeout(1, nil) }
    assert_raises(ArgumentError, LocalJumpError) { move_on_after(1) }
    assert_raises(ArgumentError, LocalJumpError) { cancel_after(1) }
  end

  # --- durations -----------------------------------------------------------------------------------------

  def test_nil_means_no_limit
    assert_equal(:v, move_on_after(nil) { sleep 0.001; :v })
    assert_equal(:v, cancel_after(nil) { sleep 0.001; :v })
    assert_equal(:v, Polyphony.backend_timeout(nil, Boom) { sleep 0.001; :v })
  end

  def test_zero_tiny_and_negative_limits_strike_at_the_first_wait
    [0, 0.0, 1e-9, 1e-12, -1, -0.5].each do |limit|
      assert_equal(:late, move_on_after(limit, with_value: :late) { sleep LONG }, limit.to_s)
      assert_raises(Boom) { cancel_after(limit, with_exception: Boom) { sleep LONG } }
    end
  end

  def test_a_block_that_never_waits_is_not_interrupted_even_with_a_limit_of_zero
    assert_equal(:v, move_on_after(0) { :v })
    assert_equal(:v, move_on_after(0.0001) { deadline = clock + 0.001; nil until clock > deadline; :v })
  end

  def test_huge_limits_do_not_strike
    [1e10, 1e300, Float::INFINITY, 2**70].each do |limit|
      assert_equal(:v, move_on_after(limit) { sleep 0.001; :v })
    end
  end

  def test_what_is_no_duration_is_refused
    assert_raises(ArgumentError) { move_on_after(Float::NAN) { 1 } }
    assert_raises(TypeError) { move_on_after('1') { 1 } }
    assert_raises(TypeError) { cancel_after(Object.new) { 1 } }
  end

  # --- nesting ---------------------------------------------------------------------------------------------

  def test_the_sooner_of_two_deadlines_wins
    assert_equal(:inner_done, move_on_after(LONG, with_value: :outer) do
      move_on_after(0.001, with_value: :inner) { sleep LONG }
      :inner_done
    end)
    assert_equal(:outer, move_on_after(0.001, with_value: :outer) do
      move_on_after(LONG, with_value: :inner) { sleep LONG }
      :not_reached
    end)
  end

  def test_only_the_owner_answers_whatever_is_nested_in_what
    heavy
    words = {
      move: ->(limit, name, &b) { move_on_after(limit, with_value: name, &b) },
      cancel: lambda do |limit, name, &b|
        cancel_after(limit, with_exception: [Boom, name.to_s], &b)
      rescue Boom => e
        e.message == name.to_s ? name : raise
      end,
      timeout: ->(limit, name, &b) { Polyphony.backend_timeout(limit, nil, name, &b) }
    }
    words.values.repeated_permutation(3) do |a, b, c|
      3.times do |soon|
        limits = [LONG, LONG, LONG].tap { |l| l[soon] = 0.0005 }
        reached = []
        result = a.call(limits[0], :a) do
          value = b.call(limits[1], :b) do
            value = c.call(limits[2], :c) { sleep LONG }
            reached << [:after_c, value]
            :b_block
          end
          reached << [:after_b, value]
          :a_block
        end
        expected = [[:a, []], [:a_block, [%i[after_b b]]], [:a_block, [%i[after_c c], %i[after_b b_block]]]]
        assert_equal expected[soon], [result, reached]
      end
    end
  end

  def test_two_deadlines_that_strike_together_unwind_both
    result = move_on_after(0.001, with_value: :outer) do
      value = move_on_after(0.001, with_value: :inner) { sleep LONG }
      sleep LONG
      value
    end
    assert_equal :outer, result
  end

  def test_both_expired_while_the_fiber_was_busy
    result = move_on_after(0.001, with_value: :outer) do
      move_on_after(0.0005, with_value: :inner) do
        deadline = clock + 0.003
        nil until clock > deadline
        sleep LONG
      end
      sleep LONG
    end
    assert_equal :outer, result
  end

  # If both were over at once, on a busy machine, only the outer one would be delivered.
  def test_the_outer_deadline_expires_while_the_inner_block_tidies_up
    log = []
    result = move_on_after(patient(0.2), with_value: :outer) do
      move_on_after(0.001, with_value: :inner) do
        sleep LONG
      ensure
        begin
          sleep LONG
        ensure
          log << :inner_ensure
        end
      end
    end
    assert_equal :outer, result
    assert_equal [:inner_ensure], log
  end

  def test_an_outer_scope_that_has_expired_supersedes_those_within
    [%i[outer inner], %i[inner outer]].each do |order|
      result = move_on_after(nil, with_value: :outer) do |outer|
        move_on_after(nil, with_value: :inner) do |inner|
          order.each { |name| (name == :outer ? outer : inner).cancel }
          sleep LONG
        ensure
          3.times { snooze }
        end
        :inner_answered
      end
      assert_equal :outer, result, "cancelled in the order #{order}"
    end
  end

  def test_an_expiry_not_delivered_when_the_block_ends_is_taken_back
    value = move_on_after(0.0001) do
      deadline = clock + 0.002
      nil until clock > deadline
      # The timer fires in this poll, while we are the next to run.
      Thread.current.backend.poll(false)
      :finished
    end
    assert_equal :finished, value
    5.times { assert_nil snooze }
  end

  def test_an_expiry_taken_back_does_not_take_a_stop_along
    fiber = spin do
      move_on_after(0.0001) do
        deadline = clock + 0.002
        nil until clock > deadline
        Fiber.current.schedule(Boom.new('other'))
        Thread.current.backend.poll(false)
      end
      sleep LONG
    end
    assert_equal 'other', assert_raises(Boom) { fiber.await }.message
  end

  def test_the_same_exception_instance_may_serve_two_scopes
    error = Boom.new('shared')
    log = []
    begin
      cancel_after(LONG, with_exception: error) do
        cancel_after(0.001, with_exception: error) { sleep LONG }
      rescue Boom => e
        log << e.message
        sleep 0.002
        log << :goes_on
      end
    rescue Boom
      log << :twice
    end
    assert_equal ['shared', :goes_on], log
  end

  def test_a_deep_nest_unwinds_to_the_one_whose_time_is_up
    depth = 50
    dig = lambda do |level|
      next sleep(LONG) if level == depth

      move_on_after(level == 20 ? 0.001 : LONG, with_value: level) { dig.call(level + 1) }
    end
    assert_equal 20, dig.call(0)
  end

  def test_many_fibers_with_timeouts_of_their_own
    fibers = Array.new(100) do |i|
      spin { move_on_after(0.001 + i * 0.0001, with_value: i) { sleep LONG } }
    end
    assert_equal Array.new(100) { |i| i }, Fiber.await(fibers)
  end

  # --- leaving ---------------------------------------------------------------------------------------------

  def leave_by_return
    move_on_after(0.001) { return :returned }
  end

  def test_break_throw_return_and_raise_pass_and_disarm
    assert_equal :returned, leave_by_return
    assert_equal(:broken, move_on_after(0.001) { break :broken })
    assert_equal(:thrown, catch(:tag) { move_on_after(0.001) { cancel_after(0.001) { throw :tag, :thrown } } })
    assert_raises(Boom) { move_on_after(0.001) { raise Boom } }
    assert_equal(:next, move_on_after(0.001) { next :next })
    sleep 0.003 # nothing strikes any more
  end

  def test_leaving_by_throw_while_the_expiry_is_under_way
    result = catch(:tag) do
      move_on_after(0.0005, with_value: :late) do
        sleep LONG
      ensure
        throw :tag, :thrown
      end
    end
    assert_equal :thrown, result
    5.times { snooze }
  end

  def test_stopping_a_fiber_in_a_scope_ends_the_fiber_not_the_scope
    fiber = spin { move_on_after(LONG, with_value: :scope) { sleep LONG }; :went_on }
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def test_a_move_on_of_somebody_else_is_not_answered
    assert_raises(Polyphony::MoveOn) do
      move_on_after(LONG, with_value: :mine) { raise Polyphony::MoveOn.new(:other) }
    end
  end

  def test_a_scope_around_a_child_interrupts_the_waiting_and_not_the_child
    child = spin { sleep LONG }
    assert_equal(:late, move_on_after(0.001, with_value: :late) { child.await })
    assert_equal :waiting, child.state
    child.stop
    child.await
  end

  # --- the scope itself -------------------------------------------------------------------------------------

  def test_a_block_with_a_parameter_gets_the_scope
    scope = nil
    move_on_after(LONG) { |s| scope = s; assert s.active? }
    assert_instance_of Polyphony::CancelScope, scope
    refute scope.active?
    assert_same scope, scope.reset
    assert_same scope, scope.cancel
  end

  def test_reset_of_a_scope_without_limit_does_nothing
    assert_equal(:v, move_on_after(nil) { |scope| scope.reset; sleep 0.001; :v })
  end

  def test_cancel_strikes_at_once_and_from_another_fiber
    scope = nil
    fiber = spin { move_on_after(LONG, with_value: :cancelled) { |s| scope = s; sleep LONG } }
    snooze
    scope.cancel
    refute scope.active?
    assert_equal :cancelled, fiber.await
  end

  def test_cancel_works_without_limit_and_from_another_thread
    scope = nil
    fiber = spin { move_on_after(nil, with_value: :cancelled) { |s| scope = s; sleep } }
    snooze
    Thread.new { scope.cancel }.join
    assert_equal :cancelled, fiber.await
  end

  def test_a_scope_kept_after_its_end_does_nothing
    scope = nil
    move_on_after(LONG) { |s| scope = s }
    scope.cancel
    scope.reset
    3.times { assert_nil snooze }
    GC.start
    refute scope.active?
  end

  def test_scopes_cannot_be_made_by_hand
    assert_raises(NoMethodError, TypeError) { Polyphony::CancelScope.new }
    assert_raises(NoMethodError, TypeError) { Polyphony::CancelScope.allocate }
  end

  # --- around operations --------------------------------------------------------------------------------------

  # The parent would wait for it for ever.
  def test_a_deadline_ends_every_kind_of_wait
    reader, writer = pipe_pair
    Polyphony.backend_write(writer, 'x' * 65_536)
    empty, = pipe_pair
    server = track(TCPServer.new('127.0.0.1', 0))
    waits = {
      read: -> { Polyphony.backend_read(empty, +'', 1, false, 0) },
      write: -> { Polyphony.backend_write(writer, 'y' * 65_536) },
      readiness: -> { Polyphony.backend_wait_io(empty, false) },
      accept: -> { Polyphony.backend_accept(server, TCPSocket) },
      queue: -> { Polyphony::Queue.new.shift },
      event: -> { Polyphony::Event.new.await },
      list: -> { Polyphony::WaitList.new.park },
      receive: -> { receive },
      sleep: -> { sleep },
      suspended: -> { Polyphony.backend_wait_event(true) },
      await: -> { spin { sleep }.await },
      timer_loop: -> { Polyphony.backend_timer_loop(LONG) { nil } },
      snoozing: -> { loop { snooze } }
    }
    waits.each do |name, wait|
      assert_equal(:late, move_on_after(0.001, with_value: :late) { wait.call }, name)
    end
    assert_equal 'x' * 10, Polyphony.backend_read(reader, +'', 10, false, 0)
  end
end
