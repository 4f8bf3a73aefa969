# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/thread_helpers'
require 'fiddle'

# Polyphony.report_stalls: who keeps the thread is named, with the line, whatever it does there.
class TestStalls < Polyphony::TestCase
  include Polyphony::ThreadHelpers

  on_every_driver

  LIBC = Fiddle.dlopen(nil)
  # poll(2) and usleep(3) as C libraries call them: Ruby knows nothing of it. Without its lock, and keeping it.
  POLL = Fiddle::Function.new(LIBC['poll'], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG, Fiddle::TYPE_INT], Fiddle::TYPE_INT)
  KEEPING = Fiddle::Function.new(LIBC['usleep'], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
  LIMIT = 0.02

  def setup
    super
    @stalls = Thread::Queue.new
    @other = spin(:other) { loop { sleep 10 } } # who could run
  end

  def teardown
    Polyphony.report_stalls(nil)
    super
  end

  def watch(limit = LIMIT)
    Polyphony.report_stalls(limit) { |stall| @stalls << stall }
    snooze
  end

  # The first of that fiber: on a busy machine others may be late, too.
  def stall_of(fiber)
    Polyphony.report_stalls(nil)
    all = Array.new(@stalls.size) { @stalls.pop }
    all.find { |stall| stall.fiber.equal?(fiber) } || flunk("not told; told were #{all.map(&:to_s)}")
  end

  def reporter
    Polyphony.const_get(:Stalls)
  end

  def sampled?(thread)
    reporter.current.instance_variable_get(:@samples).key?(thread)
  end

  def pollfd(io)
    [io.fileno, 1, 0].pack('iss') # POLLIN
  end

  # Waits in C until the watch has seen it.
  def wait_in_c(watched = Thread.current)
    IO.pipe do |input, output|
      releaser = Thread.new { Thread.pass until sampled?(watched); output.syswrite('x') }
      POLL.call(pollfd(input), 1, 20_000) # the line
      releaser.join
    end
  end

  LINE = File.readlines(__FILE__).index { |line| line.include?('# the line') } + 1

  def test_a_call_that_waits_without_letting_go_of_the_thread
    watch
    fiber = spin(:caller) { wait_in_c }
    fiber.await
    stall = stall_of(fiber)
    assert_equal :waiting, stall.kind
    assert_operator stall.seconds, :>=, LIMIT
    assert_predicate stall, :over?
    assert_same Thread.current, stall.thread
    assert_match(/test_stalls\.rb:#{LINE}/, stall.location)
    assert_match(/\Apolyphony: #<Fiber caller:.* kept its thread for 0\.\d+ s, .*, waiting in\n    .*test_stalls\.rb:#{LINE}:/, stall.to_s)
    assert_match(/Polyphony\.blocking \{ \}/, stall.to_s.lines.last)
  end

  def test_in_the_main_fiber
    watch
    wait_in_c
    snooze
    assert_match(/test_stalls\.rb:#{LINE}/, stall_of(Fiber.current).location)
  end

  def test_in_another_thread
    watch
    fiber = nil
    thread = Thread.new do
      spin { sleep 10 }
      fiber = spin { snooze; wait_in_c(thread) }
      fiber.await
    end
    thread.join
    stall = stall_of(fiber)
    assert_same thread, stall.thread
    assert_equal :waiting, stall.kind
  end

  def test_a_computation
    watch
    here = Thread.current
    line = nil
    fiber = spin { line = __LINE__; nil until sampled?(here) }
    fiber.await
    stall = stall_of(fiber)
    assert_equal :computing, stall.kind
    assert_includes stall.backtrace.join("\n"), "test_stalls.rb:#{line}:"
    assert_match(/snooze now and then|Other threads/, stall.to_s)
  end

  # By the watch, while it goes on, and by the switch, when it is over.
  def test_who_waited_is_told
    watch
    sleeper = spin(:sleeper) { sleep 0.001 }
    snooze until sleeper.state == :waiting
    ready = spin(:ready) { nil }
    fiber = nil
    holder = spin(:holder) { fiber = Fiber.current; KEEPING.call(60_000); snooze }
    late = spin(:late) { nil }
    Fiber.await(sleeper, ready, holder, late)
    stall = stall_of(fiber)
    assert_includes stall.waiting, sleeper
    assert_includes stall.waiting, late
    refute_includes stall.waiting, fiber
    assert_match(/^  Meanwhile waited .*late \(.*test_stalls\.rb:\d+\)/, stall.to_s)
  end

  def test_a_long_list_is_cut
    fibers = Array.new(5) { |n| spin(:"one #{n}") { nil } }
    stall = Polyphony::Stall.new(fiber: Fiber.current, thread: Thread.current, seconds: 1.0, backtrace: ['x.rb:1'], kind: :waiting,
                                 over: true, waiting: fibers)
    assert_match(/Meanwhile waited one 0 .*, one 1 .*, one 2 \(.*\) and 2 more\.$/, stall.to_s)
    Fiber.await(*fibers)
  end

  def test_turns_are_counted_by_their_length
    assert_nil Polyphony.stats[:stalls][:limit]
    watch(0.05)
    spin { KEEPING.call(60_000); snooze }.await
    20.times { snooze }
    figures = Polyphony.stats[:stalls]
    assert_equal 0.05, figures[:limit]
    assert_operator figures[:count], :>=, 1
    assert_operator figures[:longest], :>=, 0.06
    assert_equal [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, Float::INFINITY], figures[:histogram].keys
    assert_operator figures[:histogram].select { |bound, _| bound > 0.05 }.values.sum, :>=, 1
    assert_operator figures[:histogram].values.sum, :>=, 20
    watch(0.05) # begins anew
    assert_operator Polyphony.stats[:stalls][:histogram].values.sum, :<, 10
  end

  def test_figures_of_all_threads
    before = Polyphony.stats
    Thread.current.backend.stats # begins its own count anew, and no other
    10.times { snooze }
    spin { sleep 60 }
    snooze
    stats = Polyphony.stats
    assert_operator stats[:switches], :>=, before[:switches] + 10
    assert_operator stats[:pending_timers], :>=, 1
    assert_operator stats[:fibers][:waiting], :>=, 1
    assert_equal %i[threads backends fibers switches polls operations pending_ops pending_timers stalls], stats.keys.first(9)
  end

  # Nobody can look meanwhile: the switch has measured it.
  def test_c_code_that_keeps_the_lock_of_ruby
    watch
    fiber = spin { KEEPING.call(60_000); snooze }
    fiber.await
    stall = stall_of(fiber)
    assert_operator stall.seconds, :>=, 0.06
    assert_match(/test_stalls\.rb:/, stall.location)
    assert_match(/Polyphony\.blocking/, stall.to_s)
  end

  def test_a_fiber_that_ends_with_it
    watch
    fiber = spin(:short) { KEEPING.call(60_000) }
    fiber.await
    assert_operator stall_of(fiber).seconds, :>=, 0.06
  end

  def test_what_goes_on_for_long_is_told_before_it_is_over
    watch
    told = nil
    IO.pipe do |input, output|
      releaser = Thread.new { told = @stalls.pop until told && !told.over?; output.syswrite('x') }
      fiber = spin { POLL.call(pollfd(input), 1, 20_000) }
      fiber.await
      releaser.join
      assert_same fiber, told.fiber
    end
    assert_operator told.seconds, :>=, 1
    assert_match(/has kept its thread for \d\.\d+ s so far/, told.to_s)
    snooze
    Polyphony.report_stalls(nil)
    refute(Array.new(@stalls.size) { @stalls.pop }.any? { |stall| stall.fiber.equal?(told.fiber) }, 'told twice')
  end

  def test_a_fiber_that_waits_is_no_stall
    watch(0.2)
    fiber = spin { sleep 0.3 }
    fiber.await
    Polyphony.report_stalls(nil)
    assert_empty(Array.new(@stalls.size) { @stalls.pop }.select { |stall| stall.fiber.equal?(fiber) })
  end

  # Nobody else is there; it is what threads of a pool are for.
  def test_a_thread_with_one_fiber_may_wait_as_it_likes
    watch
    Polyphony::ThreadPool.process { snooze; KEEPING.call(60_000); snooze }
    Thread.new { KEEPING.call(60_000); snooze; KEEPING.call(60_000); snooze }.join
    Polyphony.report_stalls(nil)
    told = Array.new(@stalls.size) { @stalls.pop }
    assert_empty(told.reject { |stall| stall.thread == Thread.current }.map(&:to_s))
  ensure
    Polyphony::ThreadPool.reset
  end

  def test_fibers_that_were_spun_meanwhile_count
    watch
    @other.stop
    @other.await
    fiber = spin { KEEPING.call(30_000); spin { nil }; KEEPING.call(30_000) }
    fiber.await
    assert_operator stall_of(fiber).seconds, :>=, 0.06
  end

  def test_a_gem_that_is_there_without_its_adapter_is_named
    refute_match(/adapters/, stall_in("app.rb:1:in `exec'").to_s)
    Object.const_set(:Trilogy, Class.new)
    assert_match(%r{If it is a call of trilogy: require 'polyphony/adapters/auto'}, stall_in("app.rb:1:in `exec'").to_s.lines.last)
    $LOADED_FEATURES << '/gems/polyphony/lib/polyphony/adapters/trilogy.rb'
    refute_match(/adapters/, stall_in("app.rb:1:in `exec'").to_s)
  ensure
    Object.send(:remove_const, :Trilogy)
    $LOADED_FEATURES.delete('/gems/polyphony/lib/polyphony/adapters/trilogy.rb')
  end

  def stall_in(*lines)
    Polyphony::Stall.new(fiber: Fiber.current, thread: Thread.current, seconds: 1.0, backtrace: lines, kind: :waiting, over: true)
  end

  def test_the_line_of_the_program_is_shown_below_those_of_libraries
    library = "#{RbConfig::CONFIG['rubylibprefix']}/some.rb"
    lines = [*Array.new(5) { |i| "#{library}:#{i}:in `it'" }, "app.rb:1:in `mine'"]
    stall = stall_in(*lines)
    assert_equal lines.values_at(0, 1, 2) + ['...', lines.last], stall.to_s.lines(chomp: true)[1..-2].map(&:strip)
    assert_equal lines.values_at(0, 5), stall.place
  end

  def test_a_lone_fiber_that_snoozes_is_no_stall
    out, err, status = run_ruby(<<~RUBY, env: { 'POLYPHONY_STALL' => '400' })
      require 'polyphony'
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      snooze while Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 0.7
    RUBY
    assert_equal ['', '', true], [out, err, status.success?]
  end

  def test_nothing_is_told_when_it_is_off
    watch
    Polyphony.report_stalls(nil)
    spin { KEEPING.call(30_000) }.await
    watch # what came before is not taken up
    Polyphony.report_stalls(nil)
    assert(Array.new(@stalls.size) { @stalls.pop }.none? { |stall| stall.seconds >= 0.03 })
    refute(Thread.list.any? { |thread| thread.name == 'stalls' })
  end

  def test_an_error_of_the_block_is_told_and_the_watch_goes_on
    _out, err = capture_io do
      told = 0
      Polyphony.report_stalls(LIMIT) { |stall| told += 1; @stalls << stall; raise 'no' if told == 1 }
      fibers = Array.new(2) { spin { KEEPING.call(30_000) }.tap(&:await) }
      stall_of(fibers.last)
    end
    assert_match(/a block of report_stalls raised RuntimeError: no/, err)
  end

  def test_a_block_may_end_the_watch
    Polyphony.report_stalls(LIMIT) { |stall| Polyphony.report_stalls(nil); @stalls << stall }
    spin { KEEPING.call(30_000) }.await
    assert_kind_of Polyphony::Stall, @stalls.pop
    wait_until('the watch has ended') { Thread.list.none? { |thread| thread.name == 'stalls' } }
  end

  def test_limits_that_are_none
    [0, -1, Float::NAN, Float::INFINITY, '1'].each do |limit|
      assert_match(/got #{Regexp.escape(limit.inspect)}/, assert_raises(ArgumentError) { Polyphony.report_stalls(limit) }.message)
    end
  end

  # --- on standard error ------------------------------------------------------------------------------------------------

  PROGRAM = <<~'RUBY'
    require 'polyphony'
    require 'fiddle'
    SLEEP = Fiddle::Function.new(Fiddle.dlopen(nil)['usleep'], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
    def first = SLEEP.call(70_000)
    def second = SLEEP.call(70_000)
    spin { sleep 10 }
    3.times { first; snooze }
    3.times { spin(:second) { second; snooze }.await }
  RUBY

  def test_the_environment_asks_for_reports_each_place_once
    out, err, status = run_ruby(PROGRAM, env: { 'POLYPHONY_STALL' => '50' })
    assert_predicate status, :success?, err
    assert_empty out
    assert_equal err.scan(/^polyphony: .*?^  \S/m).uniq.size, err.scan(/^polyphony: /).size
    assert_match(/^polyphony: #<Fiber second/, err)
    assert_operator err.scan(/^polyphony: /).size, :<=, 4, err # where it was seen depends on when it was looked at
  end

  def test_an_environment_that_makes_no_sense_is_told
    _out, err, status = run_ruby(%q(require 'polyphony'; sleep 0.001), env: { 'POLYPHONY_STALL' => 'soon' })
    assert_predicate status, :success?
    assert_match(/POLYPHONY_STALL must be a positive number of milliseconds, got "soon"/, err)
  end

  def test_a_forked_child_watches_on
    out, err, status = run_ruby(<<~RUBY, env: { 'POLYPHONY_STALL' => '50' })
      #{PROGRAM.lines.first(4).join}
      snooze
      Process.wait(fork { spin { sleep 10 }; spin(:child) { first; snooze }.await })
    RUBY
    assert_predicate status, :success?, err
    assert_match(/^polyphony: #<Fiber child/, "#{out}#{err}")
  end
end
