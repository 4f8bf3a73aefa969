# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# supervise: waiting for children, telling of their ends, restarting them, ending them in order.
class TestSupervise < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def setup
    @log = []
  end

  # A child that waits, and says when it begins and ends.
  def service(name, parent = Fiber.current)
    parent.spin(name) do
      @log << "#{name} began"
      sleep
    ensure
      @log << "#{name} ended"
    end
  end

  # A supervisor in a fiber of its own; it and its services have come to wait.
  def supervisor(*arguments, **options, &block)
    fiber = spin(:supervisor) do
      children = arguments.map { |name| service(name) }
      supervise(*children, **options, &block)
    end
    snooze until fiber.state == :waiting && fiber.children.all? { |child| child.state == :waiting }
    fiber
  end

  def child(supervisor, tag)
    supervisor.children.find { |fiber| fiber.tag == tag }
  end

  def turns(count = 10)
    count.times { snooze }
  end

  # --- waiting ------------------------------------------------------------------------------------

  def test_without_more_it_waits_for_all_children
    spin { snooze; @log << 1 }
    spin { 3.times { snooze }; @log << 2 }
    assert_nil supervise
    assert_equal [1, 2], @log
    assert_nil supervise, 'and returns when there are none'
  end

  def test_without_more_it_raises_the_error_of_a_child_and_ends_the_others
    failing = spin { snooze; raise Boom, 'foo' }
    service(:other)
    error = assert_raises(Boom) { supervise }
    assert_equal 'foo', error.message
    assert_same failing, error.source_fiber
    assert_equal ['other began', 'other ended'], @log
    assert_empty Fiber.current.children
  end

  def test_two_errors_at_once_are_raised_as_one_that_lists_them
    spin { raise Boom, 'first' }
    spin { raise IOError, 'second' }
    error = assert_raises(Polyphony::MultipleErrors) { supervise }
    assert_equal %w[first second], error.errors.map(&:message)
  end

  def test_an_error_while_the_others_are_ended_is_not_lost
    spin do
      sleep
    ensure
      raise IOError, 'in the ensure block'
    end
    spin { snooze; raise Boom, 'first' }
    error = assert_raises(Polyphony::MultipleErrors) { supervise }
    assert_equal [Boom, IOError], error.errors.map(&:class)
  end

  def test_fibers_that_are_given_become_children_and_the_others_are_left_alone
    foster = nil
    other = spin { foster = spin { snooze; :done }; sleep }
    snooze
    mine = service(:mine)
    assert_nil supervise(foster)
    assert_same Fiber.current, foster.__former_parent
    supervise(spin { :given }) { |_, result| @log << result; spin { :newcomer }; break if @log.last == :newcomer }
    assert_equal %i[given newcomer], @log.grep(Symbol)
    refute mine.dead?
    other.stop
  end

  def test_a_fiber_that_has_ended_already_counts
    dead = spin { :done }
    dead.await
    assert_nil supervise(dead)
    failed = spin { raise Boom }
    assert_raises(Boom) { failed.await }
    assert_raises(Boom) { supervise([failed]) }
  end

  def test_children_that_come_later_are_waited_for
    me = Fiber.current
    spin do
      me.spin { 3.times { snooze }; @log << :later }
      snooze
      @log << :first
    end
    supervise
    assert_equal %i[first later], @log
  end

  def test_a_child_that_is_given_away_is_not_waited_for
    other = spin(:other) { sleep }
    moving = service(:moving)
    fiber = spin { supervise(moving); :returned }
    snooze until fiber.state == :waiting
    moving.attach_to(other)
    assert_equal :returned, fiber.await
    refute moving.dead?
    other.stop
  end

  # --- handlers -----------------------------------------------------------------------------------

  def test_the_block_is_called_for_each_end
    results = []
    one = spin { 1 }
    two = spin { snooze; raise Boom, 'two' }
    supervise(one, two) { |fiber, result| results << [fiber, result] }
    assert_equal [[one, 1], [two, two.result]], results
    assert_instance_of Boom, two.result
  end

  def test_on_done_is_called_for_each_end_and_on_error_for_failures
    spin(:good) { :fine }
    spin(:bad) { raise Boom }
    supervise(on_done: ->(fiber, result) { @log << [:done, fiber.tag, result.class] },
              on_error: ->(fiber, error) { @log << [:error, fiber.tag, error.class] })
    assert_equal [[:done, :good, Symbol], [:error, :bad, Boom], [:done, :bad, Boom]], @log
  end

  def test_break_in_the_block_ends_the_others
    service(:other)
    spin { :answer }
    assert_equal(:answer, supervise { |_, result| break result })
    assert_equal ['other began', 'other ended'], @log
  end

  def test_an_error_in_a_handler_is_raised_and_ends_the_others
    service(:other)
    spin { :answer }
    assert_raises(Boom) { supervise { raise Boom } }
    assert_equal ['other began', 'other ended'], @log
  end

  def test_a_handler_may_wait_and_nothing_is_missed_meanwhile
    fibers = Array.new(3) { |i| spin { i } }
    supervise(*fibers) { |_, result| 5.times { snooze }; @log << result }
    assert_equal [0, 1, 2], @log
  end

  def test_a_handler_may_use_fibers_of_its_own
    spin { 3 }
    ends = 0
    supervise do |_, n|
      ends += 1
      @log << Fiber.map(1..n) { |i| snooze; i * i }
      @log << Polyphony.scope { |scope| scope.spin { snooze; :scoped }.await }
    end
    assert_equal [[1, 4, 9], :scoped], @log
    assert_equal 1, ends, 'only the child is supervised'
  end

  def test_what_a_handler_spins_is_supervised
    spin(:first) { 1 }
    supervise do |fiber, result|
      @log << [fiber.tag, result]
      spin(:second) { snooze; 2 } if result == 1
    end
    assert_equal [[:first, 1], [:second, 2]], @log
  end

  def test_a_handler_may_restart_by_itself
    runs = 0
    spin { (runs += 1) < 3 ? raise(Boom) : :over }
    supervise(on_error: ->(fiber, _) { fiber.restart })
    assert_equal 3, runs
  end

  # --- for ever -----------------------------------------------------------------------------------

  def test_with_a_handler_it_goes_on_when_all_have_ended
    fiber = supervisor { |child, result| @log << [child.tag, result] }
    assert_equal :waiting, fiber.state
    fiber.spin(:one) { 1 }
    turns
    fiber.spin(:two) { 2 }
    turns
    spin(:three) { snooze; 3 }.attach_to(fiber)
    turns
    assert_equal [[:one, 1], [:two, 2], [:three, 3]], @log
    assert_equal :waiting, fiber.state
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def test_a_child_that_attaches_itself_and_fails_at_once_is_supervised
    fiber = supervisor { |_, result| @log << result.class }
    spin { Fiber.current.attach_to(fiber); raise Boom }
    turns
    assert_equal [Boom], @log
  end

  def test_a_child_spun_by_an_interjection_is_supervised
    fiber = supervisor { |_, result| @log << result }
    fiber.interject { spin { snooze; :interjected } }
    turns
    assert_equal [:interjected], @log
  end

  def test_a_plain_wake_changes_nothing
    fiber = supervisor(:service) { |_, result| @log << result }
    fiber.schedule(:wake_up)
    turns
    assert_equal :waiting, fiber.state
    assert_equal ['service began'], @log
  end

  def test_a_main_fiber_without_anybody_left_returns_when_nothing_can_happen
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      3.times { |i| spin { sleep i / 100.0; i } }
      later = Fiber.current
      after(0.05) { later.spin { sleep 0.01; :late } }
      supervise(restart: :on_error) { |_, result| p result }
      puts 'the end'
    RUBY
    assert status.success?, err
    assert_equal "0\n1\n2\n:late\nthe end\n", out.gsub(/^#<Fiber.*\n/, '')
  end

  def test_children_that_wait_for_ever_are_a_deadlock
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      spin(:stuck) { Polyphony::Queue.new.shift }
      begin
        supervise(restart: :always)
      rescue Polyphony::Deadlock => e
        puts e.message
      end
    RUBY
    assert_match(/\(root\)> waits for a supervised fiber to end \(#<fibers: 1 running>\)/, out, err)
  end

  # --- restarting ---------------------------------------------------------------------------------

  def test_on_error_restarts_those_that_fail_and_no_others
    runs = Hash.new(0)
    spin(:bad) { (runs[:bad] += 1) < 3 ? raise(Boom) : :better }
    spin(:good) { runs[:good] += 1 }
    supervise(restart: :on_error, on_error: ->(fiber, _) { @log << fiber.tag })
    assert_equal({ bad: 3, good: 1 }, runs)
    assert_equal %i[bad bad], @log
  end

  def test_always_restarts_all_that_end_even_if_stopped
    [:always, true].each do |always|
      runs = 0
      fiber = spin { supervise(spin { runs += 1; runs < 3 ? :done : sleep }, restart: always) }
      turns 20
      assert_equal 3, runs
      fiber.children.first.stop
      turns
      assert_equal 4, runs
      fiber.stop
      fiber.await
    end
  end

  def test_a_restarted_fiber_has_tag_and_block_and_can_be_found
    present = nil
    first = spin(:cache) { |value| @log << value; sleep }
    fiber = spin do
      supervise(first, restart: :always, on_restart: ->(again, former) { present = [again, former] })
    end
    turns
    first.stop
    turns
    again = child(fiber, :cache)
    refute_same first, again
    assert_equal [again, first], present
    assert_equal [nil, nil], @log
    fiber.stop
  end

  def test_what_on_restart_spins_is_supervised
    fiber = supervisor(:service, restart: :on_error, on_error: ->(failed, _) { @log << failed.tag },
                                 on_restart: ->(*) { spin(:helper) { raise Boom if @log.count(:helper) < 2 } })
    child(fiber, :service).raise(Boom)
    turns 40
    assert_equal %i[service helper helper], @log.grep(Symbol).first(3)
    fiber.stop
  end

  def test_a_detached_child_is_not_restarted
    fiber = supervisor(:service, restart: :always)
    service = child(fiber, :service)
    service.detach
    service.stop
    turns
    assert_empty fiber.children
    assert_equal ['service began', 'service ended'], @log
  end

  def test_an_error_that_no_handler_is_told_of_is_written_to_standard_error
    runs = 0
    _, err = capture_io do
      spin(:worker) { (runs += 1) < 3 ? raise(Boom, "number #{runs}") : :over }
      supervise(restart: :on_error)
    end
    assert_match(/#<Fiber worker:.* failed and is restarted: .*number 1 .*Boom/, err)
    assert_equal 2, err.scan('is restarted').size
    _, err = capture_io do
      spin { raise Boom if (runs -= 1) > 1 }
      supervise(restart: :on_error, on_error: ->(*) {})
    end
    assert_empty err
  end

  def test_exit_in_a_child_ends_the_program
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin do
        spin { sleep 0.001; puts 'leaving'; exit 3 }
        supervise(restart: :always)
      end
      sleep 5
    RUBY
    assert_equal 3, status.exitstatus, err
    assert_equal ["leaving\n", ''], [out, err]
  end

  def test_a_program_that_does_not_end_by_the_exit_of_a_child_goes_on_without_it
    runs = 0
    fiber = spin { spin { runs += 1; exit }; supervise(restart: :always) { flunk } }
    assert_raises(SystemExit) { turns }
    turns
    assert_equal [1, :waiting], [runs, fiber.state]
    fiber.stop
    fiber.await
  end

  def test_an_exit_that_comes_together_with_a_stop_is_raised_once
    fiber = spin { spin { snooze; exit }; supervise }
    assert_raises(SystemExit) { turns }
    assert_equal :runnable, fiber.state
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  # --- strategies ---------------------------------------------------------------------------------

  def restarted_by(strategy)
    fiber = supervisor(:a, :b, :c, restart: :on_error, strategy: strategy, on_error: ->(*) {})
    turns
    @log.clear
    child(fiber, :b).raise(Boom)
    turns 20
    assert_equal %i[a b c], fiber.children.map(&:tag).sort
    fiber.stop
    fiber.await
    @log
  end

  def test_a_restart_while_the_supervisor_ends_does_not_make_a_fiber_begin_again
    fiber = supervisor(:a)
    service = child(fiber, :a)
    fiber.stop
    snooze until service.state == :runnable
    service.restart
    turns
    assert_equal ['a began', 'a ended'], @log
    assert_predicate fiber, :dead?
  end

  def test_one_for_one_restarts_only_the_one_and_keeps_its_place
    assert_equal ['b ended', 'b began', 'c ended', 'b ended', 'a ended'], restarted_by(:one_for_one)
  end

  def test_one_for_all_ends_all_in_reverse_and_starts_all_in_order
    assert_equal ['b ended', 'c ended', 'a ended', 'a began', 'b began', 'c began',
                  'c ended', 'b ended', 'a ended'], restarted_by(:one_for_all)
  end

  def test_rest_for_one_restarts_those_started_after_it
    assert_equal ['b ended', 'c ended', 'b began', 'c began', 'c ended', 'b ended', 'a ended'],
                 restarted_by(:rest_for_one)
  end

  def test_several_that_fail_at_once_are_one_restart_of_all
    fiber = supervisor(:a, :b, :c, restart: :on_error, strategy: :one_for_all, max_restarts: 1,
                                   on_error: ->(failed, _) { @log << "#{failed.tag} failed" })
    @log.clear
    [:a, :c].each { |tag| child(fiber, tag).raise(Boom) }
    turns 20
    assert_equal ['a failed', 'c failed'], @log.grep(/failed/)
    assert_equal ['a began', 'b began', 'c began'], @log.last(3)
    fiber.stop
  end

  def test_who_is_done_is_not_started_again_with_the_others
    fiber = supervisor(:a, restart: :on_error, strategy: :one_for_all, on_error: ->(*) {})
    fiber.spin(:job) { @log << 'job' }
    turns
    child(fiber, :a).raise(Boom)
    turns
    assert_equal 1, @log.count('job')
    fiber.stop
  end

  def test_who_is_done_at_the_same_time_is_told_of_and_not_started_again
    fiber = supervisor(:a, restart: :on_error, strategy: :one_for_all) { |ended, _| @log << [:told, ended.tag] }
    job = fiber.spin(:job) { suspend; @log << 'job' }
    turns
    child(fiber, :a).raise(Boom)
    job.schedule
    turns
    assert_equal [1, 1], [@log.count('job'), @log.count([:told, :job])]
    assert_equal [2, [:a]], [@log.count('a began'), fiber.children.map(&:tag)]
    fiber.stop
  end

  def test_who_is_down_already_is_told_of_and_started_once
    fiber = supervisor(:a, :b, restart: :on_error, strategy: :rest_for_one, backoff: 0.01,
                               on_error: ->(failed, _) { @log << [:told, failed.tag] })
    child(fiber, :b).raise(Boom)
    turns
    child(fiber, :a).raise(Boom)
    sleep 0.001 until fiber.children.size == 2
    turns
    assert_equal [[:told, :b], [:told, :a]], @log.grep(Array)
    assert_equal ['a began', 'b began'] * 2, @log.grep(/began/)
    fiber.stop
  end

  def test_an_error_of_one_that_goes_down_with_another_is_told
    fiber = spin do
      service(:a)
      spin(:b) do
        sleep
      ensure
        raise IOError unless @log.include?(IOError)
      end
      supervise(restart: :on_error, strategy: :one_for_all, on_error: ->(_, error) { @log << error.class })
    end
    turns
    child(fiber, :a).raise(Boom)
    turns 20
    assert_equal ['a began', 'a ended', Boom, IOError, 'a began'], @log
    fiber.stop
    fiber.await
  end

  # --- limits -------------------------------------------------------------------------------------

  def test_too_many_restarts_raise_when_the_others_have_been_ended
    runs = 0
    fiber = supervisor(:other, restart: :on_error, max_restarts: 3, within: 60, on_error: ->(*) {})
    last = nil
    fiber.spin(:worker) { last = Fiber.current; raise Boom, "run #{runs += 1}" }
    error = assert_raises(Polyphony::TooManyRestarts) { fiber.await }
    assert_equal 4, runs
    assert_equal 'run 4', error.cause.message
    assert_same last, error.fiber
    assert_match(/#<Fiber worker:.*not restarted again after 3 restarts within 60 seconds/, error.message)
    assert_equal ['other began', 'other ended'], @log
  end

  def test_restarts_long_ago_do_not_count
    runs = 0
    fiber = spin do
      worker = spin { runs += 1; sleep 0.011; runs < 6 ? raise(Boom) : :over }
      supervise(worker, restart: :on_error, max_restarts: 1, within: 0.01) { |_, result| break if result == :over }
    end
    fiber.await
    assert_equal 6, runs
  end

  def test_without_a_period_all_restarts_count_and_none_may_be_allowed
    spin { :ended }
    error = assert_raises(Polyphony::TooManyRestarts) { supervise(restart: :always, max_restarts: 0) }
    assert_nil error.cause
    assert_match(/0 restarts in all/, error.message)
  end

  def test_one_for_all_counts_as_one_restart
    fiber = supervisor(:a, :b, :c, restart: :on_error, strategy: :one_for_all, max_restarts: 1, on_error: ->(*) {})
    child(fiber, :a).raise(Boom)
    turns 20
    refute fiber.dead?
    child(fiber, :b).raise(Boom)
    assert_raises(Polyphony::TooManyRestarts) { fiber.await }
  end

  # --- back-off -----------------------------------------------------------------------------------

  def test_a_restart_waits_and_the_others_are_supervised_meanwhile
    starts = []
    fiber = spin do
      spin(:slow) { starts << clock; raise Boom }
      spin(:quick) { 5.times { snooze }; :quick }
      supervise(restart: :on_error, backoff: 0.03) { |_, result| @log << [result, starts.size] }
    end
    sleep 0.005 until starts.size == 3
    fiber.stop
    fiber.await
    assert_includes @log, [:quick, 1], 'told before the other was started again'
    starts.each_cons(2) { |one, two| assert_operator two - one, :>=, 0.03 }
  end

  def test_one_for_all_is_down_for_the_time_of_the_back_off
    fiber = supervisor(:a, :b, restart: :on_error, strategy: :one_for_all, backoff: 0.02, on_error: ->(*) {})
    child(fiber, :b).raise(Boom)
    started = clock
    turns
    assert_empty fiber.children
    sleep 0.001 until fiber.children.size == 2
    assert_operator clock - started, :>=, 0.02
    fiber.stop
    fiber.await
    assert_equal ['a began', 'b began', 'b ended', 'a ended'] * 2, @log
  end

  def test_a_stop_during_the_back_off_ends_the_supervisor
    fiber = supervisor(:a, restart: :on_error, backoff: 60, on_error: ->(*) {})
    child(fiber, :a).raise(Boom)
    turns
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def delays(spec, count)
    backoff = Polyphony.const_get(:Backoff).from(spec)
    Array.new(count) { |failures| backoff.delay(failures) }
  end

  def test_a_back_off_grows_up_to_its_limit_and_varies
    assert_equal [0.0, 0.0], delays(nil, 2)
    assert_equal [3.0, 3.0], delays(3, 2)
    assert_equal [1.0, 3.0, 9.0, 10.0], delays({ from: 1, to: 10, factor: 3, jitter: 0 }, 4)
    [1.0, 2.0, 4.0, 5.0].zip(delays(1..5, 4)) do |full, delay|
      assert_operator delay, :>=, full / 2
      assert_operator delay, :<=, full
    end
    assert_operator Array.new(20) { delays(1..5, 1).first }.uniq.size, :>, 1
    assert_equal 5.0, delays({ from: 1, to: 5, jitter: 0 }, 5000).last
  end

  def test_who_has_run_for_the_longest_wait_begins_with_the_shortest_again
    asked = []
    backoff = Polyphony.const_get(:Backoff).from(0.1..0.2)
    backoff.define_singleton_method(:delay) { |failures| asked << failures; 0.0 }
    policy = Polyphony.const_get(:RestartPolicy)
                      .new(restart: :on_error, strategy: :one_for_one, max_restarts: nil, within: nil, backoff: nil)
    policy.instance_variable_set(:@backoff, backoff)
    supervisor = Polyphony.const_get(:Supervisor)
    runs = 0
    spin { sleep 0.2 if (runs += 1) == 4; raise Boom if runs < 6 }
    supervisor.new(policy, supervisor::Handlers.new([], ->(*) {}, nil), nil).run([])
    assert_equal [0, 1, 2, 0, 1], asked
  end

  # --- ending -------------------------------------------------------------------------------------

  def test_children_are_ended_in_reverse_order_one_after_another
    fiber = spin do
      3.times do |i|
        spin do
          sleep
        ensure
          @log << "#{i} begins to end"
          3.times { snooze }
          @log << "#{i} ended"
        end
      end
      supervise(restart: :always)
    end
    turns
    fiber.stop
    fiber.await
    assert_equal (0..2).to_a.reverse.flat_map { |i| ["#{i} begins to end", "#{i} ended"] }, @log
  end

  def stubborn(seconds)
    spin do
      sleep
    ensure
      @log << Fiber.current.graceful_shutdown?
      begin
        sleep seconds
        @log << :cleaned_up
      ensure
        @log << Fiber.current.graceful_shutdown?
      end
    end
  end

  def test_a_clean_up_within_the_grace_period_is_finished
    fiber = spin { stubborn(0.005); supervise(grace: 30) }
    turns
    fiber.stop
    fiber.await
    assert_equal [true, :cleaned_up, true], @log
  end

  def test_a_clean_up_that_takes_longer_is_interrupted
    fiber = spin { stubborn(60); supervise(grace: 0.01) }
    turns
    started = clock
    fiber.stop(:over)
    assert_equal :over, fiber.await
    assert_equal [true, false], @log
    assert_operator clock - started, :>=, 0.01
  end

  def test_each_child_has_a_grace_period_of_its_own_and_is_hurried_again
    fiber = spin do
      stubborn(60)
      spin do
        sleep
      ensure
        3.times do
          sleep 60
        rescue Polyphony::Terminate
          @log << :hurried
        end
      end
      supervise(grace: 0.005)
    end
    turns
    fiber.stop
    fiber.await
    assert_equal [:hurried, :hurried, :hurried, true, false], @log
  end

  def test_without_a_grace_period_a_clean_up_takes_the_time_it_needs
    [nil, 0].each do |grace|
      @log.clear
      fiber = spin { stubborn(0.01); supervise(grace: grace) }
      turns
      fiber.stop
      fiber.await
      assert_equal [false, :cleaned_up, false], @log
    end
  end

  def test_a_second_stop_does_not_cut_the_ending_short
    fiber = spin { stubborn(0.01); supervise(grace: 30) }
    turns
    fiber.stop(:first)
    turns 3
    fiber.stop(:second)
    turns 3
    fiber.raise(Boom, 'while it ends')
    assert_equal 'while it ends', assert_raises(Boom) { fiber.await }.message
    assert_equal [true, :cleaned_up, true], @log
  end

  def test_a_time_limit_that_is_over_while_it_ends_is_kept
    inner = nil
    ending = Polyphony::Event.new
    spin do
      sleep
    ensure
      ending.signal
      3.times { snooze }
      @log << :cleaned_up
    end
    outer = move_on_after(nil, with_value: :outer) do |limit|
      spin { ending.await; limit.cancel }
      inner = move_on_after(0.001, with_value: :inner) { supervise(Fiber.current.children.first) }
      sleep 60
      :never
    end
    assert_equal %i[inner outer], [inner, outer]
    assert_equal [:cleaned_up], @log
  end

  def test_an_error_of_a_child_that_is_being_ended_is_raised
    fiber = spin do
      spin do
        sleep
      ensure
        raise Boom, 'in the ensure block'
      end
      supervise(restart: :always) { flunk }
    end
    turns
    fiber.stop
    assert_equal 'in the ensure block', assert_raises(Boom) { fiber.await }.message
  end

  def test_a_child_that_comes_while_the_others_are_ended_is_ended_too
    me = Fiber.current
    spin do
      sleep
    ensure
      service(:late, me)
      turns 3
    end
    spin { snooze }
    supervise { break }
    assert_empty me.children
    assert_equal ['late began', 'late ended'], @log
  end

  def test_a_child_that_can_never_end_is_a_deadlock
    out, err, = run_ruby(<<~RUBY, timeout: 20)
      require 'polyphony'
      spin(:stuck) do
        sleep
      ensure
        Polyphony::Queue.new.shift
      end
      begin
        move_on_after(0.001) { supervise }
      rescue Polyphony::Deadlock
        puts 'told'
      end
      $stdout.flush
      exit!
    RUBY
    assert_equal ["told\n", ''], [out, err]
  end

  def test_a_child_that_is_given_away_while_the_others_are_ended_lives_on
    other = spin { sleep }
    fiber = spin do
      saved = service(:saved)
      spin do
        sleep
      ensure
        saved.attach_to(other)
        snooze
      end
      supervise
    end
    turns
    fiber.stop
    fiber.await
    assert_equal [['saved began'], %i[saved]], [@log, other.children.map(&:tag)]
    other.stop
  end

  def test_a_restart_of_the_supervisor_starts_with_new_children
    fiber = spin { service(:a); supervise(restart: :always) }
    turns
    fiber.restart
    turns 20
    assert_equal ['a began', 'a ended', 'a began'], @log
    fiber.stop
  end

  # --- cancelled anywhere -------------------------------------------------------------------------

  # The scenario may be ended by an exception at the same time.
  def booms(error)
    error.is_a?(Boom) ? [error] : error.errors.grep(Boom)
  end

  def test_a_cancelled_wait_leaves_nobody_and_loses_no_error
    cancel_everywhere do |run|
      begun = ended = 0
      failures = 0
      seen = []
      run.scenario do
        3.times do |i|
          spin do
            begun += 1
            (i + 2).times { snooze }
            raise Boom, "number #{failures += 1}" if i == 1
          ensure
            ended += 1
            snooze unless i == 1 # a stop would take the place of its error
          end
        end
        supervise
      rescue Boom, Polyphony::MultipleErrors => e
        seen.concat(booms(e))
      ensure
        assert_empty Fiber.current.children
      end
      run.check do |finished|
        assert_equal begun, ended
        assert_equal failures, seen.size
        assert_equal 1, failures if finished
      end
    end
  end

  def test_a_cancelled_restart_of_all_leaves_nobody
    cancel_everywhere do |run|
      begun = ended = runs = failed = 0
      told = []
      run.scenario do
        3.times do |i|
          spin do
            begun += 1
            raise Boom, "failure #{failed += 1}" if i == 1 && (runs += 1) < 3

            5.times { snooze }
          ensure
            ended += 1
            snooze unless i == 1 # a stop would take the place of its error
          end
        end
        supervise(restart: :on_error, strategy: :one_for_all, grace: 1,
                  on_error: ->(_, error) { told << error }) { |_, result| break unless result.is_a?(Boom) }
      rescue Boom, Polyphony::MultipleErrors => e
        told.concat(booms(e))
      ensure
        assert_empty Fiber.current.children
      end
      run.check do |finished|
        assert_equal begun, ended
        assert_equal failed, told.size
        assert_equal [9, 2], [begun, failed] if finished
      end
    end
  end

  def test_an_error_that_comes_together_with_a_stop_is_not_lost
    fiber = spin do
      spin { snooze; raise Boom, 'at the same time' }
      supervise(restart: :on_error) { flunk }
    end
    snooze until fiber.state == :waiting
    snooze until fiber.state == :runnable
    fiber.stop
    assert_equal 'at the same time', assert_raises(Boom) { fiber.await }.message
  end

  # --- trees, threads, processes ------------------------------------------------------------------

  def test_a_supervisor_that_gives_up_is_restarted_by_its_own
    runs = 0
    top = spin(:top) do
      spin(:middle) do
        spin(:worker) { (runs += 1) < 7 ? raise(Boom) : sleep }
        service(:beside)
        supervise(restart: :on_error, max_restarts: 2, on_error: ->(*) {})
      end
      supervise(restart: :on_error, on_error: ->(fiber, error) { @log << [fiber.tag, error.class] })
    end
    turns 60
    gave_up = [:middle, Polyphony::TooManyRestarts]
    assert_equal [gave_up, gave_up], @log.grep(Array)
    assert_equal 7, runs
    top.stop
    top.await
    assert_equal @log.count('beside began'), @log.count('beside ended')
  end

  def test_in_a_thread
    runs = Thread.new do
      count = 0
      spin { (count += 1) < 4 ? raise(Boom) : :over }
      supervise(restart: :on_error, on_error: ->(*) {})
      count
    end.value
    assert_equal 4, runs
  end

  def test_after_a_fork
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin(:parents) { sleep }
      fiber = spin { supervise(restart: :always) }
      snooze
      pid = fork do
        runs = 0
        spin { (runs += 1) < 4 ? raise(IOError) : :over }
        supervise(restart: :on_error, on_error: ->(*) {})
        puts "child: \#{runs} runs"
      end
      _, status = Polyphony.backend_waitpid(pid)
      puts "parent: \#{status}, \#{fiber.state}"
    RUBY
    assert status.success?, err
    assert_equal "child: 4 runs\nparent: 0, waiting\n", out
  end

  def test_a_handler_may_fork
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { sleep }
      spin { :quick }
      supervise do |_, result|
        pid = fork { puts "child: \#{result}" }
        Polyphony.backend_waitpid(pid)
        break
      end
      puts 'parent'
    RUBY
    assert status.success?, err
    assert_equal "child: quick\nparent\n", out
  end

  # --- errors of use ------------------------------------------------------------------------------

  def refused(pattern, *fibers, error: ArgumentError, **options)
    assert_match pattern, assert_raises(error) { supervise(*fibers, **options) }.message
  end

  def test_wrong_options_are_refused_with_their_value
    refused(/restart must be .*got :sometimes/, restart: :sometimes)
    refused(/strategy must be .*got :all/, restart: true, strategy: :all)
    refused(/max_restarts .*got -1/, restart: true, max_restarts: -1)
    refused(/max_restarts .*got 1.5/, restart: true, max_restarts: 1.5)
    refused(/within .*got 0/, restart: true, max_restarts: 1, within: 0)
    refused(/grace .*got -0.5/, grace: -0.5)
    refused(/grace .*got "1"/, grace: '1')
    refused(/can be called, got 5/, on_done: 5)
    refused(/can be called, got :x/, on_error: :x)
    refused(/unknown keyword: :restarts/, restarts: true)
  end

  def test_wrong_back_offs_are_refused_with_their_value
    refused(/backoff .*got "1"/, restart: true, backoff: '1')
    refused(/from .*got -1/, restart: true, backoff: -1)
    refused(/to .*got 1/, restart: true, backoff: 2..1)
    refused(/to .*got nil/, restart: true, backoff: 1..)
    refused(/factor .*got 0.5/, restart: true, backoff: { from: 1, to: 2, factor: 0.5 })
    refused(/jitter .*got 2/, restart: true, backoff: { from: 1, to: 2, jitter: 2 })
    refused(/from .*got NaN/, restart: true, backoff: Float::NAN)
    refused(/unknown keyword: :limit/, restart: true, backoff: { from: 1, to: 2, limit: 3 })
  end

  def test_options_that_would_be_ignored_are_refused
    refused(/strategy: :one_for_all needs restart/, strategy: :one_for_all)
    refused(/max_restarts: 3 needs restart/, max_restarts: 3)
    refused(/backoff: 1 needs restart/, backoff: 1)
    refused(/on_restart: .* needs restart/, on_restart: ->(*) {})
    refused(/within: 3 needs max_restarts/, restart: true, within: 3)
  end

  def test_who_cannot_be_supervised_is_refused
    refused(/1 is no fiber/, 1)
    refused(/nil is no fiber/, [nil])
    refused(/ancestor/, Fiber.current)
    refused(/was not made by spin/, Fiber.new { 1 })
    main = Fiber.current
    spin { refused(/ancestor/, main) }.await
    others = Polyphony::Queue.new
    thread = Thread.new { others << spin { sleep }; sleep }
    refused(/another thread/, others.shift)
    thread.kill
    thread.join
  end

  def test_only_the_current_fiber_supervises_and_only_once
    other = spin { sleep }
    message = assert_raises(FiberError) { other.supervise }.message
    assert_match(/only the current fiber can supervise.*#{Regexp.escape(other.inspect)}/, message)
    other.stop
    spin { 1 }
    supervise { refused(/supervises already/, error: FiberError) }
  end
end
