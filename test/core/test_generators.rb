# frozen_string_literal: true

require_relative '../test_helper'

# Fibers that are not ours (Enumerator#next, Fiber.new) wait like all others, and whoever resumes them
# is reached through them.
class TestGenerators < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  # Runs the block while another fiber takes its turns, here and in a fiber of its own: the same must
  # come out, and the other one must have had as many turns as the block has waits.
  def assert_concurrent(expected, waits:, &block)
    [block, -> { spin(&block).await }].each do |way|
      beats = 0
      heart = spin { loop { beats += 1; snooze } }
      assert_equal expected, way.call
      assert_operator beats, :>=, waits
      heart.stop
    end
  end

  # A generator that waits in the middle of things, with a value each time.
  def slow(*values)
    Enumerator.new { |out| values.each { |value| sleep 0.0005; out << value } }
  end

  def note_boom(seen)
    yield
  rescue Boom => e
    seen << e.message
  end

  def lasting(log, name)
    yield
  ensure
    log << name
  end

  # --- enumerators --------------------------------------------------------------------------------

  def test_next_and_peek
    assert_concurrent([1, 1, 2, 3, :end], waits: 3) do
      numbers = slow(1, 2, 3)
      [numbers.peek, numbers.next, numbers.next, numbers.next, begin numbers.next; rescue StopIteration; :end; end]
    end
  end

  def test_the_result_of_the_block_is_in_stop_iteration
    numbers = Enumerator.new { |out| snooze; out << 1; snooze; :over }
    assert_equal 1, numbers.next
    assert_equal :over, assert_raises(StopIteration) { numbers.next }.result
    assert_equal(:over, loop { numbers.next })
  end

  def test_rewind_begins_again
    assert_concurrent([1, 1, 2], waits: 3) do
      numbers = slow(1, 2)
      [numbers.next, numbers.rewind.next, numbers.next]
    end
  end

  def test_size_may_wait
    assert_concurrent([3, 3], waits: 1) do
      sized = Enumerator.new(-> { sleep 0.001; 3 }) { |out| out << 1 }
      [sized.size, sized.lazy.map { |n| n }.size]
    end
  end

  def test_a_generator_that_reads
    assert_concurrent(%w[one two three], waits: 3) do
      reader, writer = pipe_pair
      lines = Enumerator.new do |out|
        rest = +''
        while (chunk = Polyphony.backend_read(reader, nil, 4, false, 0))
          rest << chunk
          out << rest.slice!(/\A.*\n/).chomp while rest.include?("\n")
        end
      end
      feeder = spin { "one\ntwo\nthree\n".each_char { |c| Polyphony.backend_write(writer, c) }; writer.close }
      [lines.next, lines.next, lines.next].tap { feeder.await }
    end
  end

  def test_lazy_enumerators
    assert_concurrent([[2, 4], 2, 4], waits: 4) do
      doubled = (1..Float::INFINITY).lazy.map { |n| sleep 0.0005; n * 2 }
      [doubled.first(2), doubled.next, doubled.next]
    end
    assert_concurrent([[[1, :a], [2, :b]], [1, 2, :a, :b]], waits: 6) do
      [slow(1, 2).lazy.zip(slow(:a, :b)).to_a, (slow(1, 2) + slow(:a, :b)).each_entry.to_a]
    end
    assert_concurrent([1, 3], waits: 3) { slow(1, 2, 3).lazy.select { |n| snooze; n.odd? }.eager.first(2) }
  end

  def test_other_makers_of_external_enumerators
    assert_concurrent([1, 2, 4], waits: 2) do
      doubling = Enumerator.produce(1) { |n| snooze; n * 2 }
      [doubling.next, doubling.next, doubling.next]
    end
    assert_concurrent([[1, 0], [2, 1]], waits: 2) { slow(1, 2).each_with_index.then { |pairs| [pairs.next, pairs.next] } }
    assert_concurrent([[1, 2], [3]], waits: 3) { slow(1, 2, 3).each_slice(2).then { |pairs| [pairs.next, pairs.next] } }
    assert_concurrent([1, 2], waits: 2) { (slow(1) + slow(2)).to_enum.then { |both| [both.next, both.next] } }
    assert_concurrent([[1, 3], [2, 4]], waits: 4) { slow(1, 2).zip(slow(3, 4)) }
  end

  def test_an_object_with_each_that_waits
    klass = Class.new do
      include Enumerable
      define_method(:each) { |&block| block ? 3.times { |n| sleep 0.0005; block.call(n) } : enum_for }
    end
    assert_concurrent([0, 1, 2], waits: 3) { klass.new.to_enum.then { |numbers| [numbers.next, numbers.next, numbers.next] } }
  end

  def test_generators_within_generators
    assert_concurrent([[1, 2, 3]] * 3, waits: 30) do
      nest = ->(depth) do
        depth.zero? ? slow(1, 2, 3) : Enumerator.new { |out| inner = nest.call(depth - 1); loop { out << inner.next; snooze } }
      end
      [1, 3, 6].map { |depth| nest.call(depth).then { |numbers| Array.new(3) { numbers.next } } }
    end
  end

  def test_two_generators_taken_in_turns
    assert_concurrent([1, :a, 2, :b], waits: 4) do
      numbers, letters = slow(1, 2), slow(:a, :b)
      [numbers.next, letters.next, numbers.next, letters.next]
    end
  end

  def test_another_fiber_goes_on_with_it
    numbers = slow(1, 2, 3)
    assert_equal(1, spin { numbers.next }.await)
    assert_equal(2, spin { numbers.next }.await)
    assert_equal 3, numbers.next
  end

  def test_it_serves_one_at_a_time_as_in_stock_ruby
    numbers = slow(1, 2)
    first = spin { numbers.next }
    snooze
    assert_raises(FiberError) { numbers.next }
    assert_equal 1, first.await
    assert_equal 2, numbers.next
  end

  # --- Fiber.new ----------------------------------------------------------------------------------

  def test_values_go_both_ways_while_it_waits
    assert_concurrent([[:first, 1], [:second, 2], :result, false], waits: 3) do
      raw = Fiber.new do |a|
        sleep 0.0005
        b = Fiber.yield([:first, a])
        snooze
        Fiber.yield([:second, b])
        snooze
        :result
      end
      [raw.resume(1), raw.resume(2), raw.resume, raw.alive?]
    end
  end

  def test_alive_until_it_has_ended
    raw = Fiber.new { sleep 0.001; Fiber.yield; snooze }
    assert raw.alive?
    spin { assert_equal [true, :waiting], [raw.alive?, raw.state] }
    raw.resume
    assert_equal [true, :waiting], [raw.alive?, raw.state]
    raw.resume
    assert_equal [false, :dead], [raw.alive?, raw.state]
    assert_raises(FiberError) { raw.resume }
  end

  def test_an_error_comes_out_of_resume
    raw = Fiber.new { snooze; raise Boom, 'inside' }
    assert_equal 'inside', assert_raises(Boom) { raw.resume }.message
    assert_nil snooze
  end

  def test_raise_into_one_that_has_yielded
    raw = Fiber.new do
      snooze
      Fiber.yield(1)
    rescue Boom => e
      snooze
      e.message
    end
    assert_equal 1, raw.resume
    assert_equal 'in', raw.raise(Boom, 'in')
  end

  def test_raise_and_kill_into_one_that_waits
    raw = Fiber.new do
      sleep
    rescue Boom => e
      e.message
    end
    fiber = spin { raw.resume }
    snooze
    assert_same raw, raw.raise(Boom, 'in')
    assert_equal 'in', fiber.await
    raw = Fiber.new { sleep }
    fiber = spin { raw.resume }
    snooze
    raw.kill(:killed)
    assert_equal :killed, fiber.await
  end

  def test_kill_of_one_that_does_not_wait
    skip 'Fiber#kill came with Ruby 3.3' if RUBY_VERSION.to_f < 3.3
    log = []
    raw = Fiber.new { lasting(log, :ensured) { Fiber.yield(1) } }
    raw.resume
    assert_same raw, raw.kill
    assert_equal [[:ensured], false], [log, raw.alive?]
  end

  # Ruby would kill it again whenever it is switched to.
  def test_one_that_is_killed_may_wait_in_its_ensure
    skip 'Fiber#kill came with Ruby 3.3' unless Fiber.instance_method(:kill).super_method
    ways = { yielding: ->(raw) { raw.resume; raw.kill }, itself: ->(raw) { raw.resume(:itself) } }
    ways.each_value do |way|
      assert_concurrent([:helped, :slept, 'in', :late, :done, false], waits: 4) do
        log = []
        raw = killed_while_it_waits(log)
        way.call(raw)
        log << raw.alive?
      end
    end
  end

  def killed_while_it_waits(log)
    Fiber.new do |who|
      who == :itself ? Fiber.current.kill : Fiber.yield
    ensure
      log << spin { snooze; :helped }.await
      log << Polyphony::CancelScope.shield { sleep 0.0005; :slept }
      note_boom(log) { spin { snooze; raise Boom, 'in' }.await }
      log << move_on_after(0.0005, with_value: :late) { sleep }
      log << :done
    end
  end

  def test_one_that_is_made_in_one_fiber_and_resumed_in_another
    raw = spin { Fiber.new { |n| loop { sleep 0.0005; n = Fiber.yield(n + 1) } } }.await
    assert_equal([2, 3, 4], [1, 2, 3].map { |n| spin { raw.resume(n) }.await })
  end

  def test_switching_by_hand_between_fibers_that_wait
    log = []
    main = Fiber.current
    ping = pong = nil
    ping = Fiber.new { 3.times { |n| snooze; log << "ping #{n}"; pong.transfer }; main.transfer }
    pong = Fiber.new { loop { sleep 0.0003; log << 'pong'; ping.transfer } }
    ping.transfer
    assert_equal ['ping 0', 'pong', 'ping 1', 'pong', 'ping 2', 'pong'], log
    assert_equal(5, spin { snooze; 5 }.await)
  end

  # --- whoever awaits one -------------------------------------------------------------------------

  def test_awaiting_one_that_somebody_else_resumes
    raw = Fiber.new { snooze; Fiber.yield; 5 }
    raw.resume
    awaiting = waiting { raw.await; :heard }
    also = waiting { Fiber.await(raw); :heard }
    monitor = waiting { raw.monitor(Fiber.current); Fiber.current.monitor_mailbox.shift }
    spin { snooze; raw.resume }
    assert_equal [:heard, :heard, [raw, nil]], Fiber.await(awaiting, also, monitor)
  end

  def test_awaiting_one_that_has_never_waited
    raw = Fiber.new { Fiber.yield }
    awaiting = waiting { raw.await; :heard }
    raw.resume
    snooze
    assert_equal :waiting, awaiting.state
    raw.resume
    assert_equal :heard, awaiting.await
  end

  def test_awaiting_one_that_fails
    raw = Fiber.new { snooze; raise Boom }
    awaiting = waiting { raw.await; :heard }
    assert_raises(Boom) { raw.resume }
    assert_equal :heard, awaiting.await
  end

  def test_one_that_is_scheduled_ends_without_waking_the_main_fiber
    log = []
    raw = Fiber.new { snooze; log << :raw; :result }
    awaiting = waiting { raw.await; log << :heard }
    raw.schedule
    sleep 0.005
    assert_equal [%i[raw heard], false], [log, raw.alive?]
    awaiting.await
    spin { Fiber.new { log << :again }.schedule }
    assert_nil Polyphony.backend_timeout(0.005, nil) { Polyphony::Event.new.await }
    assert_equal :again, log.last
  end

  def test_children_of_one_that_ends_go_to_whoever_resumed_it
    child = nil
    parent = spin { Fiber.new { child = Fiber.current.spin { sleep }; snooze }.resume; sleep }
    snooze until child && !child.parent.equal?(nil) && child.parent.equal?(parent)
    parent.stop
    parent.await
    assert child.dead?
  end

  # --- what is meant for the one who resumes --------------------------------------------------------

  # root, middle, innermost: each in a limit of its own.
  [0, 1, 2].each do |level|
    define_method("test_the_limit_of_number_#{level}_in_a_chain_ends_the_wait_of_the_innermost") do
      limit = ->(n, &work) { n == level ? move_on_after(0.002, with_value: :late, &work) : work.call }
      [false, true].each do |waited|
        assert_concurrent([:late], waits: 1) do
          innermost = Enumerator.new { |out| snooze if waited; out << limit.call(2) { sleep } }
          middle = Enumerator.new { |out| snooze if waited; out << limit.call(1) { innermost.next } }
          [limit.call(0) { middle.next }]
        end
      end
    end

    define_method("test_an_exception_can_be_rescued_by_number_#{level}_in_a_chain") do
      log = []
      rescuing = lambda do |n, &work|
        work.call
      rescue Boom
        n == level ? log << n : raise
      ensure
        log << :"ensured#{n}"
      end
      fiber = spin do
        innermost = Enumerator.new { |out| rescuing.call(2) { sleep }; out << 1 }
        middle = Enumerator.new { |out| rescuing.call(1) { innermost.next }; out << 1 }
        rescuing.call(0) { middle.next }
      end
      2.times { snooze }
      fiber.raise(Boom)
      fiber.await
      assert_equal({ 0 => [:ensured2, :ensured1, 0, :ensured0], 1 => [:ensured2, 1, :ensured1, :ensured0],
                     2 => [2, :ensured2, :ensured1, :ensured0] }[level], log)
    end
  end

  def test_a_limit_that_was_set_in_an_earlier_turn
    assert_equal([0, :late], spin do
      inner = Enumerator.new { |out| sleep; out << 1 }
      outer = Enumerator.new { |out| out << move_on_after(0.005, with_value: :late) { out << 0; inner.next } }
      [outer.next.tap { snooze }, outer.next]
    end.await)
  end

  def test_a_limit_around_a_generator_that_was_begun_outside
    assert_equal([1, :late], spin do
      inner = Enumerator.new { |out| snooze; out << 1; sleep }
      [inner.next, Enumerator.new { |out| snooze; out << move_on_after(0.002, with_value: :late) { inner.next } }.next]
    end.await)
  end

  def test_of_two_limits_that_are_over_the_outer_one_counts
    outer = inner = nil
    fiber = spin do
      move_on_after(60, with_value: :outer) do |scope|
        outer = scope
        move_on_after(60) { |s| inner = s; Enumerator.new { sleep }.next } && flunk
        flunk
      end
    end
    2.times { snooze }
    inner.cancel
    outer.cancel
    assert_equal :outer, fiber.await
  end

  def test_one_that_rests_in_a_limit_harms_nobody_when_it_is_over
    fiber = spin do
      resting = Enumerator.new { |out| out << move_on_after(0.001, with_value: :late) { snooze; out << 1; sleep } }
      [resting.next, slow(*1..10).then { |numbers| Array.new(10) { numbers.next }.last }, resting.next]
    end
    assert_equal [1, 10, :late], fiber.await
  end

  def test_one_that_rests_in_a_shield_shields_nobody
    fiber = spin do
      resting = Enumerator.new { |out| shield { snooze; out << 1; out << 2 } }
      resting.next
      Enumerator.new { sleep }.next
    end
    4.times { snooze }
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
  end

  def test_a_shield_in_the_middle_of_a_chain_that_was_raised_in_an_earlier_turn
    log = []
    fiber = spin do
      inner = Enumerator.new { |out| 3.times { snooze }; log << :finished; out << 1 }
      outer = Enumerator.new { |out| shield { out << 0; out << inner.next }; sleep }
      3.times { outer.next }
    end
    2.times { snooze }
    fiber.stop(:stopped)
    assert_equal [:stopped, [:finished]], [fiber.await, log]
  end

  # In a thread of its own, where no switch is looked at yet. Nothing is known of one that has yielded and never waited.
  def test_a_shield_holds_for_a_generator_that_has_yielded_and_never_waited
    log = Thread.new do
      seen = []
      last = Fiber.new { Fiber.yield; 3.times { snooze }; seen << :finished }
      last.resume
      shielded = Fiber.new { snooze; shield { last.resume }; sleep }
      fiber = spin { note_boom(seen) { shielded.resume } }
      3.times { snooze }
      fiber.raise(Boom, 'raised')
      fiber.await
    end
    assert_equal [:finished, 'raised'], log.value
  end

  def test_a_limit_ends_a_generator_that_has_yielded_and_never_waited
    result = Thread.new do
      last = Fiber.new { Fiber.yield; sleep 1; :slept }
      last.resume
      Fiber.new { snooze; move_on_after(0.001, with_value: :over) { last.resume } }.resume
    end
    assert_equal :over, result.value
  end

  # The other way round.
  def test_a_shield_of_one_that_has_yielded_does_not_hold_for_who_resumed_it_and_never_waited
    log = Thread.new do
      seen = []
      shielded = Fiber.new { snooze; shield { Fiber.yield; seen << :resumed } }
      fiber = spin { note_boom(seen) { Fiber.new { shielded.resume; 3.times { snooze }; seen << :finished }.resume } }
      3.times { snooze }
      fiber.raise(Boom, 'raised')
      fiber.await
    end
    assert_equal ['raised'], log.value
  end

  def test_who_waits_in_one_generator_is_not_reached_through_another
    first = Enumerator.new { |out| snooze; out << 1; spin { @second.stop(:stopped) }; sleep }
    other = slow(*1..5)
    assert_equal 1, first.next
    @second = spin { first.next }
    assert_equal 5, Array.new(5) { other.next }.last
    assert_equal :stopped, @second.await
  end

  def test_exceptions_behind_the_first_are_not_forgotten_in_a_generator
    seen = []
    fiber = spin do
      note_boom(seen) { sleep }
      numbers = Enumerator.new { |out| shield { snooze; out << 1 } }
      numbers.next
      3.times { note_boom(seen) { Enumerator.new { sleep }.next } }
    end
    snooze
    4.times { |n| fiber.raise(Boom, n.to_s) }
    fiber.await
    assert_equal %w[0 1 2 3], seen
  end

  def test_messages_and_wakes_while_a_generator_waits
    fiber = spin do
      woken = Enumerator.new { |out| out << suspend }.next
      [woken, receive]
    end
    snooze
    fiber << :message
    fiber.schedule(:up)
    assert_equal %i[up message], fiber.await
  end

  def test_suspend_in_a_generator_of_the_main_fiber_returns_when_there_is_nothing_to_do
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      spin { Polyphony::Event.new.await }
      p Enumerator.new { |out| out << suspend.inspect }.next
    RUBY
    assert_equal "\"nil\"\n", out, err
  end

  def test_an_exit_and_a_signal_reach_the_main_fiber_in_a_generator
    { 'exit 3' => 3, 'Process.kill(:TERM, Process.pid); sleep' => nil }.each do |code, status|
      out, err, ended = run_ruby(<<~RUBY)
        require 'polyphony'
        spin { snooze; #{code} }
        begin
          Enumerator.new { Enumerator.new { sleep }.next }.next
        ensure
          puts 'main'
        end
      RUBY
      assert_equal "main\n", out, err
      assert_equal status || Signal.list['TERM'], status ? ended.exitstatus : ended.termsig
    end
  end

  # --- the end of fibers and threads ----------------------------------------------------------------

  def test_a_fiber_that_ends_while_the_main_one_is_in_a_generator_is_dead_for_ruby_too
    fiber = spin { 1 }
    Enumerator.new { |out| sleep 0.001; out << 1 }.next
    refute fiber.alive?
  end

  def test_killing_a_thread_unwinds_its_generators
    log = Queue.new
    thread = Thread.new do
      spin { lasting(log, :spun) { Enumerator.new { lasting(log, :of_spun) { sleep } }.next } }
      inner = Enumerator.new { lasting(log, :inner) { log << :ready; sleep } }
      lasting(log, :main) { Enumerator.new { lasting(log, :middle) { snooze; inner.next } }.next }
    end
    assert_equal :ready, log.shift
    thread.kill.join
    seen = Array.new(log.size) { log.shift }
    assert_equal %i[inner main middle of_spun spun], seen.sort
    assert_equal %i[inner middle main], seen & %i[inner middle main]
    assert_equal %i[of_spun spun], seen & %i[of_spun spun]
  end

  def test_an_error_for_a_thread_comes_out_of_its_generator
    ready = Queue.new
    thread = Thread.new do
      Enumerator.new { Enumerator.new { ready << true; sleep }.next }.next
    rescue Boom => e
      e.message
    end
    ready.shift
    thread.raise(Boom, 'raised')
    assert_equal 'raised', thread.value
  end

  def test_an_error_for_a_fiber_of_another_thread_comes_out_of_its_generator
    fibers = Queue.new
    thread = Thread.new do
      fiber = spin do
        Enumerator.new { Enumerator.new { fibers << fiber; sleep }.next }.next
      rescue Boom => e
        e.message
      end
      fiber.await
    end
    fibers.shift.raise(Boom, 'raised')
    assert_equal 'raised', thread.value
  end

  def test_what_we_resume_ourselves
    assert_concurrent([[:a, 1], [:b, 2], :result], waits: 3) do
      raw = Fiber.new do |n|
        snooze
        n = Fiber.yield([:a, n])
        slow(1).next
        Fiber.yield([:b, n])
        snooze
        :result
      end
      [raw.__polyphony_resume(1), raw.__polyphony_resume(2), raw.__polyphony_resume]
    end
  end

  def test_what_we_resume_ourselves_may_be_refused
    raw = Fiber.new { raw.__polyphony_resume }
    assert_raises(FiberError) { raw.resume }
    ended = Fiber.new { 1 }
    ended.resume
    assert_raises(FiberError) { ended.__polyphony_resume }
    busy = Fiber.new { sleep }
    fiber = spin { busy.__polyphony_resume }
    snooze
    assert_raises(FiberError) { busy.__polyphony_resume }
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_nil snooze
  end
end
