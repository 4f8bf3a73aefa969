# frozen_string_literal: true

require_relative '../test_helper'

# A fiber from spin to its end: results, errors, children, awaiting, the tree.
class TestFiberLife < Polyphony::TestCase
  on_every_driver

  def test_a_stop_that_comes_during_a_shutdown_of_children_is_not_lost
    fiber = spin do
      spin do
        sleep
      ensure
        sleep 0.005
      end
      snooze
      Fiber.current.shutdown_all_children
      :went_on
    end
    snooze until fiber.children.first&.state == :waiting
    3.times { snooze }
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  class Boom < StandardError; end
  class Bang < StandardError; end

  def wait_for_ever
    Polyphony.backend_wait_event(true)
  end

  # --- results ------------------------------------------------------------------------------------

  def test_the_result_is_what_the_block_returns
    fiber = spin { 1 + 1 }
    assert_nil fiber.result
    assert_equal 2, fiber.await
    assert_equal 2, fiber.result
  end

  def test_await_join_and_value_are_the_same
    assert_equal [1, 2, 3], [spin { 1 }.await, spin { 2 }.join, spin { 3 }.value]
  end

  def test_an_ended_fiber_gives_its_result_again_and_again
    fiber = spin { :once }
    assert_equal %i[once once once], Array.new(3) { fiber.await }
  end

  def test_an_ended_fiber_raises_its_error_again_and_again
    fiber = spin { raise Boom, 'x' }
    2.times { assert_equal 'x', assert_raises(Boom) { fiber.await }.message }
  end

  def test_stop_makes_its_value_the_result
    fiber = spin { wait_for_ever }
    snooze
    fiber.stop(:enough)
    assert_equal :enough, fiber.await
    assert_nil fiber.stop, 'nothing left to stop'
  end

  def test_interrupt_and_move_on_are_stop
    %i[interrupt move_on stop].each do |word|
      fiber = spin { wait_for_ever }
      snooze
      fiber.public_send(word, word)
      assert_equal word, fiber.await
    end
  end

  def test_terminate_makes_the_result_nil
    fiber = spin { wait_for_ever }
    snooze
    fiber.terminate(graceful: true)
    assert_nil fiber.await
    assert fiber.graceful_shutdown?
  end

  def test_an_exception_raised_by_the_block_as_move_on_is_the_result
    assert_equal(:v, spin { raise Polyphony::MoveOn.new(:v) }.await)
  end

  def test_many_fibers_await_the_same_one
    target = spin { wait_for_ever }
    waiters = Array.new(5) { spin { target.await } }
    snooze
    target.stop(:all)
    assert_equal [:all] * 5, Fiber.await(waiters)
  end

  def test_await_of_several_gives_their_results_in_order
    slow = spin { 5.times { snooze }; :slow }
    fast = spin { :fast }
    assert_equal %i[slow fast], Fiber.await(slow, fast)
    assert_equal %i[slow fast], Fiber.await([slow, fast])
    assert_equal [], Fiber.await
  end

  def test_await_of_several_ends_the_others_when_one_fails
    ended = []
    sleeper = spin { wait_for_ever }
    tidy = spin do
      wait_for_ever
    ensure
      snooze
      ended << :tidy
    end
    failing = spin { snooze; raise Boom, 'first' }
    assert_equal 'first', assert_raises(Boom) { Fiber.await(sleeper, tidy, failing) }.message
    assert_equal [:tidy], ended
    assert_equal %i[dead dead dead], [sleeper, tidy, failing].map(&:state)
  end

  def test_a_cancelled_await_leaves_the_fiber_running
    target = spin { wait_for_ever }
    assert_equal :late, (move_on_after(0.001, with_value: :late) { target.await })
    assert_equal :waiting, target.state
    target.stop(1)
    assert_equal 1, target.await
  end

  def test_a_fiber_cannot_await_itself
    assert_raises(FiberError) { Fiber.current.await }
    assert_raises(FiberError) { spin { Fiber.current.await }.await }
  end

  # --- errors ---------------------------------------------------------------------------------------

  def test_an_error_is_raised_in_whoever_awaits
    fiber = spin { raise Boom, 'oops' }
    error = assert_raises(Boom) { fiber.await }
    assert_equal 'oops', error.message
    assert_same fiber, error.source_fiber
    assert_same error, fiber.result
  end

  def test_an_error_nobody_awaits_goes_to_the_parent
    parent = spin do
      spin { raise Boom, 'child' }
      wait_for_ever
    end
    assert_equal 'child', assert_raises(Boom) { parent.await }.message
  end

  def test_an_error_goes_up_to_grandparent_and_main
    error = assert_raises(Boom) do
      spin { spin { spin { raise Boom, 'deep' }; wait_for_ever }; wait_for_ever }
      suspend
    end
    assert_equal 'deep', error.message
  end

  def test_a_parent_that_rescues_the_error_goes_on
    result = spin do
      spin { raise Boom }
      begin
        wait_for_ever
      rescue Boom
        :rescued
      end
    end
    assert_equal :rescued, result.await
  end

  def test_an_error_ends_the_siblings
    log = []
    parent = spin do
      spin do
        wait_for_ever
      ensure
        log << :sibling
      end
      spin { raise Boom }
      wait_for_ever
    end
    assert_raises(Boom) { parent.await }
    assert_equal [:sibling], log
  end

  def test_the_error_of_a_fiber_awaited_by_its_parent_is_raised_there_once
    errors = 0
    fiber = spin { raise Boom }
    begin
      fiber.await
    rescue Boom
      errors += 1
    end
    3.times { snooze }
    assert_equal 1, errors
  end

  def test_an_error_while_the_parent_awaits_another_child_is_raised_in_that_await
    waiting = spin { wait_for_ever }
    spin { raise Boom, 'from the other' }
    assert_equal 'from the other', assert_raises(Boom) { waiting.await }.message
    assert_equal :waiting, waiting.state
  end

  def test_errors_of_two_children_both_reach_the_parent
    caught = []
    spin { raise Boom }
    spin { raise Bang }
    2.times do
      wait_for_ever
    rescue Boom, Bang => e
      caught << e.class
    end
    assert_equal [Boom, Bang].sort_by(&:name), caught.sort_by(&:name)
  end

  def test_a_frozen_exception_is_passed_on_all_the_same
    error = Boom.new('cold').freeze
    assert_same error, assert_raises(Boom) { spin { raise error }.await }
  end

  def test_an_error_that_is_no_standard_error_goes_the_same_way
    assert_raises(NotImplementedError) { spin { raise NotImplementedError }.await }
    assert_raises(SystemExit) { spin { exit }.await }
    assert_raises(Interrupt) { spin { raise Interrupt }.await }
  end

  def test_a_throw_without_catch_ends_the_fiber_with_an_error
    assert_raises(UncaughtThrowError) { catch(:tag) { spin { throw :tag }.await } }
  end

  def test_a_break_out_of_the_block_ends_the_fiber_with_an_error
    assert_raises(LocalJumpError) { spin { break }.await }
  end

  def test_raise_takes_what_kernel_raise_takes
    [[[], RuntimeError, 'unhandled exception'], [['text'], RuntimeError, 'text'],
     [[Boom], Boom, Boom.name], [[Boom, 'text'], Boom, 'text'],
     [[Boom.new('made')], Boom, 'made']].each do |args, klass, message|
      fiber = spin { wait_for_ever }
      snooze
      assert_same fiber, fiber.raise(*args)
      error = assert_raises(klass) { fiber.await }
      assert_equal klass, error.class
      assert_equal message, error.message
    end
  end

  def test_raise_takes_a_cause_and_the_error_comes_from_where_the_fiber_waits
    cause = IOError.new('why')
    fiber = spin { wait_for_ever }
    line = __LINE__ - 1
    snooze
    fiber.raise(Boom, 'text', cause: cause)
    error = assert_raises(Boom) { fiber.await }
    assert_equal ['text', cause, fiber], [error.message, error.cause, error.raising_fiber]
    assert_includes error.backtrace.first(3).join("\n"), "#{__FILE__}:#{line}:"
    assert_match(/code/, assert_raises(ArgumentError) { fiber.raise(Boom, code: 1) }.message)
  end

  def test_raise_with_a_cause_keeps_the_backtrace_of_an_error_that_was_raised_before
    before = assert_raises(Boom) { Kernel.raise Boom }
    lines = before.backtrace
    fiber = spin { wait_for_ever }
    snooze
    fiber.raise(before, cause: IOError.new)
    assert_same before, assert_raises(Boom) { fiber.await }
    assert_equal [lines.first, IOError], [before.backtrace.first, before.cause.class]
  end

  def test_cancel_goes_to_the_parent_when_uncaught
    fiber = spin { wait_for_ever }
    snooze
    fiber.cancel
    assert_raises(Polyphony::Cancel) { fiber.await }
    other = spin { wait_for_ever }
    snooze
    other.cancel(Boom)
    assert_raises(Boom) { other.await }
    assert_nil other.cancel
  end

  def test_a_plain_rescue_does_not_swallow_a_stop
    fiber = spin do
      wait_for_ever
    rescue StandardError
      :swallowed
    end
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  # --- children ---------------------------------------------------------------------------------------

  def test_children_and_parent_know_each_other
    parent = spin { spin { wait_for_ever }; wait_for_ever }
    snooze
    snooze
    assert_equal [parent], Fiber.current.children
    assert_same Fiber.current, parent.parent
    child = parent.children.first
    assert_same parent, child.parent
    child.stop
    child.await
    assert_empty parent.children
  end

  def test_children_are_stopped_youngest_first_before_the_parents_result_is_seen
    log = []
    parent = spin do
      3.times do |i|
        spin do
          wait_for_ever
        ensure
          log << i
        end
      end
      snooze
      :result
    end
    result = parent.await
    log << result
    assert_equal [2, 1, 0, :result], log
  end

  def test_grandchildren_end_before_their_parent
    log = []
    parent = spin do
      spin do
        spin do
          wait_for_ever
        ensure
          log << :grandchild
        end
        wait_for_ever
      ensure
        log << :child_ensure
      end
      2.times { snooze }
      :done
    end
    log << parent.await
    assert_equal %i[child_ensure grandchild done], log
  end

  def test_children_not_started_yet_never_run
    ran = false
    assert_equal(:quick, spin { spin { ran = true }; :quick }.await)
    refute ran
  end

  def test_ensure_blocks_may_wait
    log = []
    fiber = spin do
      wait_for_ever
    ensure
      sleep 0.001
      log << :slept
      snooze
      log << :snoozed
    end
    snooze
    fiber.stop(:value)
    assert_equal :value, fiber.await
    assert_equal %i[slept snoozed], log
  end

  def test_ensure_blocks_may_spin_and_await
    fiber = spin do
      wait_for_ever
    ensure
      @seen = spin { snooze; :spun }.await
    end
    snooze
    fiber.stop
    fiber.await
    assert_equal :spun, @seen
  end

  def test_a_child_spun_in_an_ensure_block_is_stopped_with_the_fiber
    log = []
    fiber = spin do
      wait_for_ever
    ensure
      spin do
        wait_for_ever
      ensure
        log << :late_child
      end
      snooze
    end
    snooze
    fiber.stop(:v)
    assert_equal :v, fiber.await
    assert_equal [:late_child], log
  end

  def test_a_child_spun_while_children_are_being_stopped_is_stopped_too
    heir = nil
    log = []
    parent = spin do
      me = Fiber.current
      spin do
        wait_for_ever
      ensure
        heir = me.spin do
          wait_for_ever
        ensure
          log << :heir
        end
        snooze
      end
      snooze
      :end
    end
    assert_equal :end, parent.await
    assert_equal :dead, heir.state
    assert_includes [[], [:heir]], log
  end

  def test_an_exception_in_an_ensure_block_replaces_the_first
    fiber = spin do
      raise Boom
    ensure
      raise Bang, 'replaced'
    end
    assert_equal 'replaced', assert_raises(Bang) { fiber.await }.message
  end

  def test_an_error_of_a_child_that_is_being_stopped_replaces_the_result
    parent = spin do
      spin do
        wait_for_ever
      ensure
        raise Boom, 'while stopping'
      end
      snooze
      :never_seen
    end
    assert_equal 'while stopping', assert_raises(Boom) { parent.await }.message
  end

  def test_a_child_that_refuses_to_stop_for_a_while_is_waited_for
    refusals = 0
    parent = spin do
      spin do
        wait_for_ever
      rescue Polyphony::Terminate
        refusals += 1
        5.times { snooze }
        sleep 0.001
        refusals += 1
      end
      snooze
      :parent
    end
    assert_equal :parent, parent.await
    assert_equal 2, refusals
  end

  def test_a_second_stop_does_not_cut_short_the_waiting_for_children
    log = []
    parent = spin do
      spin do
        wait_for_ever
      ensure
        sleep 0.002
        log << :child
      end
      wait_for_ever
    end
    2.times { snooze }
    parent.stop(:first)
    snooze
    parent.stop(:second)
    parent.await
    assert_equal [:child], log
    assert_equal :first, parent.result
  end

  def test_shutdown_all_children_ends_them_all
    log = []
    3.times do |i|
      spin do
        wait_for_ever
      ensure
        log << i
      end
    end
    snooze
    Fiber.current.shutdown_all_children
    assert_equal [2, 1, 0], log
    assert_empty Fiber.current.children
  end

  def test_shutdown_of_no_children_returns_at_once
    assert_same Fiber.current, Fiber.current.shutdown_all_children
  end

  def test_a_child_that_can_never_end_is_a_deadlock_and_no_hang
    out, err, status = run_ruby(<<~RUBY, timeout: 10)
      require 'polyphony'
      spin(:stuck) do
        sleep
      ensure
        puts 'told to end'
        Polyphony::Queue.new.shift
      end
      snooze
    RUBY
    refute status.success?
    assert_equal "told to end\n", out
    assert_match(/no fiber can ever run again.*stuck.* waits for an item in a queue/m, err)
  end

  def test_graceful_shutdown_is_told_to_the_children
    flags = []
    2.times do
      spin do
        wait_for_ever
      ensure
        flags << Fiber.current.graceful_shutdown?
      end
    end
    snooze
    Fiber.current.shutdown_all_children(graceful: true)
    assert_equal [true, true], flags
  end

  def test_await_all_children_waits_for_all_and_raises_their_errors
    log = []
    3.times { |i| spin { i.times { snooze }; log << i } }
    Fiber.current.await_all_children
    assert_equal [0, 1, 2], log
    spin { raise Boom }
    assert_raises(Boom) { Fiber.current.await_all_children }
  end

  def test_terminate_all_children_does_not_wait
    fibers = Array.new(2) { spin { wait_for_ever } }
    snooze
    Fiber.current.terminate_all_children
    assert_equal %i[runnable runnable], fibers.map(&:state)
    fibers.each(&:await)
  end

  # --- moving in the tree ---------------------------------------------------------------------------------

  def test_a_detached_child_outlives_its_parent
    child = nil
    parent = spin { child = spin { wait_for_ever; :survived }; child.detach; :gone }
    assert_equal :gone, parent.await
    refute child.dead?
    assert_same Fiber.current, child.parent
    snooze
    child.schedule
    assert_equal :survived, child.await
  end

  def test_an_attached_child_ends_with_its_new_parent
    foster = spin { wait_for_ever }
    child = spin { wait_for_ever }
    child.attach_to(foster)
    assert_equal [child], foster.children
    snooze
    foster.stop
    foster.await
    assert child.dead?
  end

  def test_the_error_of_an_attached_child_goes_to_the_new_parent
    foster = spin do
      wait_for_ever
    rescue Boom
      :fostered
    end
    child = spin { snooze; raise Boom }
    child.attach_to(foster)
    assert_equal :fostered, foster.await
  end

  def test_a_fiber_cannot_become_its_own_ancestor
    child = nil
    parent = spin { child = spin { wait_for_ever }; wait_for_ever }
    2.times { snooze }
    assert_raises(FiberError) { parent.attach_to(child) }
    assert_raises(FiberError) { parent.attach_to(parent) }
    assert_same Fiber.current, parent.parent
  end

  def test_an_ended_fiber_cannot_have_children
    dead = spin { nil }
    dead.await
    assert_raises(FiberError) { dead.spin { nil } }
  end

  def test_spin_on_a_fiber_makes_a_child_of_that_one
    other = spin { wait_for_ever }
    snooze
    child = other.spin(:tagged) { wait_for_ever }
    assert_equal [child], other.children
    assert_equal :tagged, child.tag
    other.stop
    other.await
    assert child.dead?
  end

  # --- interjecting -----------------------------------------------------------------------------------

  def test_an_interjection_runs_on_the_fiber_and_does_not_end_its_read
    reader, writer = pipe_pair
    where = nil
    fiber = spin { Polyphony.backend_read(reader, +'', 5, false, 0) }
    snooze
    fiber.interject { where = Fiber.current }
    2.times { snooze }
    assert_same fiber, where
    assert_equal :waiting, fiber.state
    Polyphony.backend_write(writer, 'hello')
    assert_equal 'hello', fiber.await
  end

  def test_an_interjection_may_wait_and_may_raise
    reader, writer = pipe_pair
    fiber = spin { Polyphony.backend_read(reader, +'', 5, false, 0) }
    snooze
    done = false
    fiber.interject { sleep 0.001; done = true }
    Polyphony.backend_write(writer, 'hello')
    assert_equal 'hello', fiber.await
    assert done
    other = spin { Polyphony.backend_read(reader, +'', 5, false, 0) }
    snooze
    other.interject { raise Boom }
    assert_raises(Boom) { other.await }
  end

  def test_what_a_generator_spins_belongs_to_whoever_resumes_it
    log = []
    parent = spin do
      generator = Enumerator.new do |yielder|
        spin do
          sleep
        ensure
          log << :ended
        end
        snooze
        yielder << 1
      end
      generator.next
      assert_equal 1, Fiber.current.children.size
    end
    parent.await
    assert_equal [:ended], log
  end

  def test_errors_of_two_children_in_the_same_turn_both_go_up
    seen = []
    grandparent = spin do
      spin do
        shield do
          2.times { |n| spin { raise IOError, n.to_s } }
          3.times { snooze }
        end
      end
      2.times do
        sleep
      rescue IOError => e
        seen << e.message
      end
    end
    grandparent.await
    assert_equal %w[0 1], seen
  end

  def test_errors_of_children_that_are_being_stopped_all_go_up
    seen = []
    grandparent = spin do
      parent = spin do
        3.times do |n|
          spin do
            sleep
          ensure
            raise IOError, n.to_s
          end
        end
        2.times { snooze }
      end
      3.times do
        parent.dead? ? sleep : parent.await
      rescue IOError => e
        seen << e.message
      end
    end
    grandparent.await
    assert_equal %w[0 1 2], seen.sort
  end

  # --- at large --------------------------------------------------------------------------------------

  # Stacks of ended fibers go back when the GC runs, so the number settles, at a level that depends
  # on when it runs; it must stay far from vm.max_map_count, 65,530 by default. If none went back, the
  # second part alone would add 80,000. In a process of its own: others here had many fibers.
  def assert_settled_maps(code)
    skip 'no /proc/self/maps' unless File.exist?('/proc/self/maps')
    heavy
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      maps = -> { File.foreach('/proc/self/maps').count }
      60.times { #{code} } # with more objects alive the GC comes less often, and it settles later
      before = maps.call
      40.times { #{code} }
      puts before, maps.call
    RUBY
    before, after = out.lines.map(&:to_i)
    assert after, err
    assert_operator after, :<=, before + 10_000
    assert_operator after, :<, 20_000
  end

  def test_spin_and_await_again_and_again_keeps_the_number_of_memory_maps
    assert_settled_maps '1_500.times { spin { snooze }.await }'
  end

  def test_a_thousand_at_a_time_again_and_again_keeps_the_number_of_memory_maps
    assert_settled_maps 'Fiber.await(Array.new(1_000) { spin { 2.times { snooze } } })'
  end

  def test_a_deep_tree_ends_whole
    heavy
    depth = 0
    dig = lambda do |left|
      depth += 1
      spin { dig.call(left - 1) } if left.positive?
      wait_for_ever
    end
    top = spin { dig.call(200) }
    205.times { snooze }
    assert_equal 201, depth
    top.stop(:top)
    assert_equal :top, top.await
  end
end
