# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony.scope and spin_scope: fibers that belong together end together.
class TestScope < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def setup
    @log = []
  end

  # A fiber that waits for ever, and says when it ends.
  def sleeper(scope, name = :sleeper)
    scope.spin(name) do
      sleep
    ensure
      snooze
      @log << name
    end
  end

  # --- waiting ------------------------------------------------------------------------------------

  def test_a_scope_waits_for_its_fibers_and_returns_the_value_of_the_block
    result = Polyphony.scope do |scope|
      3.times { |i| scope.spin { i.times { snooze }; @log << i } }
      :value
    end
    assert_equal [:value, [0, 1, 2]], [result, @log]
    assert_equal(1, Polyphony.scope { 1 })
  end

  def test_its_fibers_are_children_of_the_fiber_that_opened_it
    Polyphony.scope do |scope|
      fiber = scope.spin(:tagged) { snooze; :result }
      assert_equal [:tagged, Fiber.current], [fiber.tag, fiber.parent]
      assert_equal :result, fiber.await
    end
  end

  def test_a_fiber_may_add_others
    Polyphony.scope do |scope|
      scope.spin { snooze; scope.spin { snooze; scope.spin { @log << :third } } }
    end
    assert_equal [:third], @log
  end

  def test_fibers_that_have_ended_are_not_kept
    heavy
    Polyphony.scope do |scope|
      1000.times { scope.spin { nil }.await }
      GC.start
      assert_operator ObjectSpace.each_object(Fiber).count(&:dead?), :<, 500
    end
  end

  def test_other_children_are_not_waited_for
    other = spin { sleep }
    Polyphony.scope { |scope| scope.spin { snooze } }
    refute other.dead?
  end

  def test_scopes_may_be_nested
    result = Polyphony.scope do |outer|
      sleeping = sleeper(outer)
      inner = Polyphony.scope do |scope|
        scope.spin { snooze; @log << :inner }
        :inner_value
      end
      @log << :between
      sleeping.stop
      inner
    end
    assert_equal :inner_value, result
    assert_equal %i[inner between sleeper], @log
  end

  # --- failures -----------------------------------------------------------------------------------

  def test_a_failure_ends_the_others_youngest_first_and_the_block
    error = assert_raises(Boom) do
      Polyphony.scope do |scope|
        sleeper(scope, :one)
        sleeper(scope, :two)
        scope.spin { 2.times { snooze }; raise Boom, 'failed' }
        sleep
      ensure
        @log << :block
      end
    end
    assert_equal 'failed', error.message
    assert_equal %i[block two one], @log
    assert_empty Fiber.current.children
  end

  def test_a_failure_while_the_scope_waits_ends_the_others
    assert_raises(Boom) { Polyphony.scope { |scope| sleeper(scope); scope.spin { 3.times { snooze }; raise Boom } } }
    assert_equal [:sleeper], @log
  end

  def test_an_error_of_the_block_ends_the_fibers
    assert_raises(Boom) { Polyphony.scope { |scope| sleeper(scope); snooze; raise Boom } }
    assert_equal [:sleeper], @log
  end

  def test_several_failures_are_raised_as_one_that_lists_each
    error = assert_raises(Polyphony::MultipleErrors) do
      Polyphony.scope do |scope|
        scope.spin do
          sleep
        ensure
          raise IOError, 'third'
        end
        scope.spin { snooze; raise Boom, 'first' }
        scope.spin { snooze; raise Boom, 'second' }
        sleep
      end
    end
    assert_equal %w[first second third], error.errors.map(&:message)
    assert_match(/3 fibers failed.*Boom: first.*Boom: second.*IOError: third/m, error.message)
  end

  def test_the_error_of_the_block_is_listed_first
    error = assert_raises(Polyphony::MultipleErrors) do
      Polyphony.scope do |scope|
        scope.spin do
          sleep
        ensure
          raise IOError, 'of a fiber'
        end
        snooze
        raise Boom, 'of the block'
      end
    end
    assert_equal ['of the block', 'of a fiber'], error.errors.map(&:message)
  end

  def test_an_error_that_others_have_awaited_is_listed_once
    failing = nil
    error = assert_raises(Boom) do
      Polyphony.scope do |scope|
        failing = scope.spin { 2.times { snooze }; raise Boom }
        scope.spin { failing.await }
        failing.await
      end
    end
    assert_same failing.result, error
  end

  def test_a_failure_in_an_inner_scope_ends_the_outer_one
    assert_raises(Boom) do
      Polyphony.scope do |outer|
        sleeper(outer, :outer)
        outer.spin { Polyphony.scope { |inner| sleeper(inner, :inner); inner.spin { snooze; raise Boom } } }
        sleep
      end
    end
    assert_equal %i[inner outer], @log
  end

  def test_a_block_that_hides_the_end_of_the_scope_hides_no_failure
    assert_raises(Boom) do
      Polyphony.scope do |scope|
        sleeper(scope)
        scope.spin { snooze; raise Boom }
        begin
          sleep
        rescue Polyphony::MoveOn
          @log << :hidden
        end
      end
    end
    assert_equal %i[hidden sleeper], @log
  end

  def test_exit_in_a_fiber_ends_the_program
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { Polyphony.scope { |scope| scope.spin { snooze; exit 4 }; sleep }; puts 'never' }
      sleep 5
    RUBY
    assert_equal [4, '', ''], [status.exitstatus, out, err]
  end

  # --- ending it ----------------------------------------------------------------------------------

  def test_stop_ends_all_and_gives_the_value
    result = Polyphony.scope do |scope|
      sleeper(scope)
      scope.spin { snooze; scope.stop(:enough) }
      sleep
      :never
    end
    assert_equal [:enough, [:sleeper]], [result, @log]
    assert_equal(:now, Polyphony.scope { |scope| scope.stop(:now) }, 'from the block')
    assert_nil(Polyphony.scope { |scope| scope.stop.stop(:second); sleep })
  end

  def test_cancel_ends_all_and_raises
    assert_raises(Polyphony::Cancel) { Polyphony.scope { |scope| sleeper(scope); snooze; scope.cancel; sleep } }
    assert_equal [:sleeper], @log
    assert_raises(Boom) { Polyphony.scope { |scope| scope.spin { scope.cancel(Boom) }; sleep } }
    assert_raises(Boom) { Polyphony.scope { |scope| scope.cancel(Boom.new) } }
    assert_match(/got 5/, assert_raises(TypeError) { Polyphony.scope { |scope| scope.cancel(5) } }.message)
  end

  def test_stop_from_another_thread
    scopes = Polyphony::Queue.new
    thread = Thread.new { scopes.shift.stop(:from_outside) }
    assert_equal(:from_outside, Polyphony.scope { |scope| sleeper(scope); snooze; scopes << scope; sleep })
    thread.join
  end

  def test_break_ends_the_fibers
    assert_equal(:value, Polyphony.scope { |scope| sleeper(scope); snooze; break :value })
    assert_equal [:sleeper], @log
  end

  def leave_by_return
    Polyphony.scope { |scope| sleeper(scope); snooze; return :returned }
  end

  def test_return_ends_the_fibers
    assert_equal [:returned, [:sleeper]], [leave_by_return, @log]
  end

  def test_a_throw_ends_the_fibers
    assert_equal(:thrown, catch(:tag) { Polyphony.scope { |scope| sleeper(scope); snooze; throw :tag, :thrown } })
    assert_equal [:sleeper], @log
  end

  def test_a_time_limit_around_it_ends_the_fibers_first
    result = move_on_after(0.001, with_value: :late) { Polyphony.scope { |scope| sleeper(scope); :never } }
    assert_equal [:late, [:sleeper]], [result, @log]
  end

  def test_a_second_stop_does_not_cut_the_ending_short
    fiber = spin { Polyphony.scope { |scope| 2.times { |i| sleeper(scope, i) }; sleep } }
    3.times { snooze }
    fiber.stop(:first)
    snooze
    fiber.stop(:second)
    fiber.await
    assert_equal [1, 0], @log
  end

  # The scope would wait for it for ever.
  def test_a_restart_while_the_scope_ends_does_not_make_a_fiber_begin_again
    runs = 0
    result = Polyphony.scope do |scope|
      fiber = scope.spin { (runs += 1) == 1 ? sleep : flunk('begun again') }
      snooze
      scope.stop(:stopped)
      spin { fiber.restart }
    end
    assert_equal [:stopped, 1], [result, runs]
  end

  def test_a_fiber_of_a_scope_that_is_being_ended_never_runs
    late = nil
    Polyphony.scope do |scope|
      scope.spin do
        sleep
      ensure
        late = scope.spin { @log << :ran }
        snooze
      end
      snooze
      scope.stop
      sleep
    end
    assert late.dead?
    assert_empty @log
  end

  def test_a_scope_that_has_ended_has_no_more_fibers
    kept = nil
    Polyphony.scope { |scope| kept = scope }
    assert_match(/scope has ended/, assert_raises(FiberError) { kept.spin { 1 } }.message)
    assert_same kept, kept.stop
    assert_same kept, kept.cancel
  end

  def test_errors_of_use
    assert_match(/block/, assert_raises(ArgumentError) { Polyphony.scope }.message)
    assert_match(/block/, assert_raises(ArgumentError) { Polyphony.scope(&:spin) }.message)
    assert_match(/block/, assert_raises(RuntimeError) { spin_scope }.message)
  end

  # --- cancelled anywhere -------------------------------------------------------------------------

  def booms(error)
    error.is_a?(Boom) ? [error] : error.errors.grep(Boom)
  end

  def test_a_cancelled_scope_leaves_nobody_and_loses_no_error
    cancel_everywhere do |run|
      begun = ended = failed = 0
      seen = []
      run.scenario do
        Polyphony.scope do |scope|
          3.times do |i|
            scope.spin do
              begun += 1
              (i + 1).times { snooze }
              raise Boom, "number #{failed += 1}" if i == 1

              4.times { snooze }
            ensure
              ended += 1
              snooze unless i == 1 # a stop would take the place of its error
            end
          end
          snooze
        end
      rescue Boom, Polyphony::MultipleErrors => e
        seen.concat(booms(e))
      ensure
        assert_empty Fiber.current.children
      end
      run.check do |finished|
        assert_equal begun, ended
        assert_equal failed, seen.size
        assert_equal 1, failed if finished
      end
    end
  end

  def test_a_cancelled_spin_scope_leaves_nobody
    cancel_everywhere do |run|
      begun = ended = 0
      run.scenario do
        spin_scope do
          2.times do
            spin do
              begun += 1
              snooze
            ensure
              ended += 1
              snooze
            end
          end
        end
      ensure
        assert_empty Fiber.current.children
      end
      run.check { assert_equal begun, ended }
    end
  end

  # --- elsewhere ----------------------------------------------------------------------------------

  def test_in_a_thread
    values = Thread.new { Polyphony.scope { |scope| Fiber.await(Array.new(3) { |i| scope.spin { snooze; i } }) } }
    assert_equal [0, 1, 2], values.value
  end

  def test_after_a_fork
    pid = fork do
      value = Polyphony.scope { |scope| scope.spin { sleep 0.001; 5 }.await }
      exit!(value + spin_scope { spin { sleep 0.001 }; 1 })
    end
    _, status = Polyphony.backend_waitpid(pid)
    assert_equal 6, status >> 8
  end

  def test_in_a_fiber_of_rubys_own
    generator = Enumerator.new { |y| y << Polyphony.scope { |scope| scope.spin { snooze; 7 }.await } }
    assert_equal 7, generator.next
  end

  # --- spin_scope ---------------------------------------------------------------------------------

  def test_spin_scope_waits_for_what_the_block_spins_and_returns_its_value
    me = Fiber.current
    result = spin_scope do
      refute_same me, Fiber.current
      spin { 3.times { snooze }; @log << :child }
      @log << :block
      :value
    end
    assert_equal [:value, %i[block child]], [result, @log]
    assert_nil(spin_scope { nil })
  end

  def test_spin_scope_raises_the_error_of_a_child_and_ends_the_others
    assert_raises(Boom) do
      spin_scope do
        sleeper(Fiber.current)
        spin { 2.times { snooze }; raise Boom }
      end
    end
    assert_equal [:sleeper], @log
    assert_raises(Boom) { spin_scope { raise Boom } }
  end

  def test_break_out_of_spin_scope_ends_what_it_has_spun
    assert_equal(:value, spin_scope { sleeper(Fiber.current); snooze; break :value })
    assert_equal [:sleeper], @log
  end

  def test_return_out_of_spin_scope_is_an_error
    assert_raises(LocalJumpError) { spin_scope { return 1 } }
  end

  def test_a_time_limit_around_spin_scope_ends_what_it_has_spun
    assert_equal(:late, move_on_after(0.001, with_value: :late) { spin_scope { sleeper(Fiber.current) } })
    assert_equal [:sleeper], @log
  end
end
