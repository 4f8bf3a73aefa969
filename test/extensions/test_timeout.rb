# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Timeout.timeout: as stock Ruby documents it, and fiber-aware.
class TestTimeout < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  class Boom < StandardError; end

  def nothing_pending
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  # Computes until it is interrupted.
  def compute
    loop { 1.0 / 3 }
  end

  # --- what stock Ruby documents --------------------------------------------------------------------

  def test_the_block_gets_the_seconds_and_gives_the_result
    assert_equal 10, Timeout.timeout(10) { |seconds| seconds }
    assert_equal [2.5, 3r], [Timeout.timeout(2.5) { |s| s }, Timeout.timeout(3r) { |s| s }]
    assert_equal(:value, Timeout.timeout(10) { sleep 0.001; :value })
    assert_equal(:value, Timeout.timeout(Float::INFINITY) { sleep 0.001; :value })
    assert_equal(:value, Timeout.timeout(1e300) { sleep 0.001; :value })
    nothing_pending
  end

  def test_nil_and_zero_are_no_limit
    [nil, 0, 0.0, 0r].each do |seconds|
      assert_equal [seconds, 0], Timeout.timeout(seconds) { |s| [s, sleep(0.002)] }
    end
  end

  def test_a_limit_that_is_over_raises_an_error
    start = clock
    error = assert_raises(Timeout::Error) { Timeout.timeout(0.005) { sleep } }
    assert_operator clock - start, :>=, 0.005
    assert_equal 'execution expired', error.message
    assert_kind_of RuntimeError, error
    assert_instance_of Timeout::Error, error
    nothing_pending
  end

  def test_a_message_and_a_class_of_ones_own
    assert_equal 'slow', assert_raises(Timeout::Error) { Timeout.timeout(0.001, nil, 'slow') { sleep } }.message
    assert_equal 'execution expired', assert_raises(Boom) { Timeout.timeout(0.001, Boom) { sleep } }.message
    assert_equal 'slow', assert_raises(Boom) { Timeout.timeout(0.001, Boom, 'slow') { sleep } }.message
  end

  def test_wrong_arguments_are_refused
    error = assert_raises(ArgumentError) { Timeout.timeout(-1) { flunk 'ran' } }
    assert_match(/non-negative.*-1/, error.message)
    assert_raises(ArgumentError) { Timeout.timeout(-0.1) { flunk 'ran' } }
    assert_raises(NoMethodError) { Timeout.timeout('1') { flunk 'ran' } }
    assert_raises(LocalJumpError) { Timeout.timeout(1) }
    assert_raises(LocalJumpError) { Timeout.timeout(nil) }
    assert_match(/"slow"/, assert_raises(TypeError) { Timeout.timeout(1, 'slow') { flunk 'ran' } }.message)
    assert_raises(ArgumentError) { Timeout.timeout(Float::NAN) { flunk 'ran' } }
    nothing_pending
  end

  def test_what_is_no_number_is_refused_as_by_stock_ruby
    odd = Object.new
    def odd.zero? = false
    error = assert_raises(TypeError) { Timeout.timeout(odd) { flunk 'ran' } }
    assert_equal "can't convert Object into time interval", error.message
  end

  def test_a_plain_rescue_in_the_block_does_not_swallow_it
    swallowed = nil
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.005) do
        sleep
      rescue => e # rubocop:disable Style/RescueStandardError
        swallowed = e
      end
    end
    assert_nil swallowed
  end

  def test_a_class_of_ones_own_can_be_rescued_in_the_block
    assert_equal :rescued, (Timeout.timeout(0.005, Boom) do
      sleep
    rescue Boom
      :rescued
    end)
    assert_equal :rescued, (Timeout.timeout(0.005, Timeout::Error) do
      sleep
    rescue Timeout::Error
      :rescued
    end)
  end

  def test_ensure_blocks_run_and_may_wait
    log = []
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.002) do
        sleep
      ensure
        sleep 0.005
        log << :tidied
      end
    end
    assert_equal [:tidied], log
  end

  def test_what_the_block_does_otherwise_passes
    assert_raises(Boom) { Timeout.timeout(10) { raise Boom } }
    assert_equal 3, catch(:out) { Timeout.timeout(10) { throw :out, 3 } }
    assert_equal 4, [1].each { |_| break Timeout.timeout(10) { 4 } }
    assert_equal(5, Timeout.timeout(10) { next 5 })
    assert_equal 6, return_from_block
    nothing_pending
  end

  def return_from_block
    Timeout.timeout(10) { return 6 }
  end

  def wait_here
    sleep
  end

  def test_the_backtrace_says_where_the_block_was
    error = assert_raises(Timeout::Error) { Timeout.timeout(0.001) { wait_here } }
    assert_match(/test_timeout\.rb:#{method(:wait_here).source_location.last + 1}:.*wait_here/, error.backtrace.first)
    assert_empty(error.backtrace.select { |line| line.start_with?(POLYPHONY_LIB) })
    assert_nil error.cause
    begin
      raise Boom
    rescue Boom => e
      error = assert_raises(Timeout::Error) { Timeout.timeout(0.001) { wait_here } }
      assert_same e, error.cause
    end
  end

  def test_constants_of_timeout_stay
    assert_operator Timeout::Error, :<, RuntimeError
    assert_instance_of String, Timeout::VERSION
    assert_raises(Timeout::Error) { raise Timeout::Error, 'by hand' }
  end

  class Includer
    include Timeout

    def call
      timeout(0.002) { sleep }
    end
  end

  def test_those_who_include_the_module_have_it_too
    assert_raises(Timeout::Error) { Includer.new.call }
    assert_raises(NoMethodError) { Includer.new.timeout(1) { nil } }
  end

  # --- other fibers ------------------------------------------------------------------------------------

  def test_others_run_meanwhile
    ran = false
    spin { 3.times { snooze }; ran = true } # takes turns, not time
    assert_raises(Timeout::Error) { Timeout.timeout(0.02) { sleep } }
    assert ran
  end

  def test_each_fiber_has_limits_of_its_own
    fibers = Array.new(20) do |i|
      spin do
        i.even? ? Timeout.timeout(patient(20)) { sleep 0.001 } : Timeout.timeout(0.001 * i) { sleep }
        [i, :in_time]
      rescue Timeout::Error
        [i, :late]
      end
    end
    assert_equal Array.new(20) { |i| [i, i.even? ? :in_time : :late] }, Fiber.await(fibers)
    nothing_pending
  end

  def test_whatever_waits_is_ended
    reader, = pipe_pair
    thread = Thread.new { sleep }
    waits = [-> { Polyphony::Queue.new.shift }, -> { receive }, -> { spin { sleep }.await }, -> { thread.join },
             -> { thread.value }, -> { suspend while true }, -> { Polyphony.backend_read(reader, +'', 1, false, 0) },
             -> { snooze while true }]
    waits.each { |wait| assert_raises(Timeout::Error) { Timeout.timeout(0.002) { wait.call } } }
    thread.kill.join
  end

  def test_in_a_thread_and_in_a_generator
    assert_equal(:late, Thread.new do
      Timeout.timeout(0.002) { sleep }
    rescue Timeout::Error
      :late
    end.value)
    numbers = Enumerator.new do |yielder|
      Timeout.timeout(0.002) { sleep }
    rescue Timeout::Error
      yielder << :late
    end
    assert_equal :late, numbers.next
  end

  def test_it_may_be_cancelled_at_every_point
    cancel_everywhere do |run|
      run.scenario do
        Timeout.timeout(0.0003) { Timeout.timeout(10) { sleep } }
      rescue Timeout::Error
        Timeout.timeout(10, Boom) { snooze }
      end
      run.check { nothing_pending }
    end
  end

  # --- nested -----------------------------------------------------------------------------------------------

  # Name => runs its block with a limit and names itself if that is over.
  KINDS = {
    timeout: lambda do |seconds, name, &block|
      Timeout.timeout(seconds, &block)
    rescue Timeout::Error
      name
    end,
    with_class: lambda do |seconds, name, &block|
      own = Class.new(StandardError)
      begin
        Timeout.timeout(seconds, own, &block)
      rescue own
        name
      end
    end,
    move_on: ->(seconds, name, &block) { move_on_after(seconds, with_value: name) { block.call } },
    cancel: lambda do |seconds, name, &block|
      own = Class.new(StandardError)
      begin
        cancel_after(seconds, with_exception: own) { block.call }
      rescue own
        name
      end
    end
  }.freeze

  KINDS.to_a.product(KINDS.to_a).each do |(outer_name, outer), (inner_name, inner)|
    define_method("test_#{inner_name}_within_#{outer_name}_the_sooner_answers") do
      log = []
      assert_equal :inner, (outer.call(patient(20), :outer) { inner.call(0.002, :inner) { sleep } })
      result = outer.call(0.002, :outer) { log << inner.call(patient(20), :inner) { sleep } }
      assert_equal [:outer, []], [result, log]
      nothing_pending
    end
  end

  def test_an_inner_error_is_not_taken_for_the_outer_ones
    assert_equal 'inner', assert_raises(Timeout::Error) {
      Timeout.timeout(20, nil, 'outer') { Timeout.timeout(0.001, nil, 'inner') { sleep } }
    }.message
    assert_equal 'outer', assert_raises(Timeout::Error) {
      Timeout.timeout(0.001, nil, 'outer') { Timeout.timeout(20, nil, 'inner') { sleep } }
    }.message
  end

  # --- blocks that do not wait ----------------------------------------------------------------------------------

  def test_a_computation_is_interrupted
    error = assert_raises(Timeout::Error) { Timeout.timeout(0.01) { compute } }
    assert_equal 'execution expired', error.message
    assert(error.backtrace.any? { |line| line.include?('compute') })
    assert_raises(Boom) { Timeout.timeout(0.01, Boom) { compute } }
    assert_raises(Timeout::Error) { spin { Timeout.timeout(0.01) { compute } }.await }
    assert_raises(Timeout::Error) { Timeout.timeout(0.01) { Enumerator.new { compute }.next } }
    nothing_pending
  end

  def test_who_comes_to_wait_while_the_error_is_made_is_struck_there_and_nobody_else
    asked = gone = false
    slow_to_make = Class.new(StandardError) do
      define_method(:initialize) { |*args| asked = true; Thread.pass until gone; super(*args) }
    end
    limited = spin do
      Timeout.timeout(0.001, slow_to_make) { Thread.pass until asked; suspend }
    rescue slow_to_make
      :struck
    end
    other = spin { gone = true; 1000.times { Thread.pass }; :unharmed }
    assert_equal %i[struck unharmed], Fiber.await(limited, other)
  end

  def test_a_call_that_stops_the_whole_thread_is_interrupted
    reader, = pipe_pair
    stock_sleep = Polyphony::Watchdog::STOCK_SLEEP
    [-> { reader.read }, -> { ::Queue.new.pop }, -> { stock_sleep.bind_call(self, 100) }].each do |call|
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { call.call } }
      assert_raises(Timeout::Error) { Thread.new { silent; Timeout.timeout(0.01) { call.call } }.value }
    end
  end

  def silent
    Thread.current.report_on_exception = false
  end

  def test_the_outer_of_two_limits_interrupts_a_computation
    log = []
    assert_equal 'outer', assert_raises(Timeout::Error) {
      Timeout.timeout(0.01, nil, 'outer') { log << Timeout.timeout(20, nil, 'inner') { compute } }
    }.message
    assert_empty log
    assert_equal :outer, (move_on_after(20, with_value: :outer) do
      Timeout.timeout(0.01) { compute }
    rescue Timeout::Error
      sleep 0.001
      :outer
    end)
  end

  def test_a_computation_in_another_thread_is_interrupted
    threads = Array.new(2) do
      Thread.new do
        silent
        spin { sleep }
        spin { Timeout.timeout(0.01) { compute } }.await
      end
    end
    threads.each { |thread| assert_raises(Timeout::Error) { thread.join } }
  end

  # It comes once: the ensure block is not interrupted by the timer of the scope.
  def test_the_clean_up_of_an_interrupted_computation_may_wait
    log = []
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.01) do
        compute
      ensure
        3.times { sleep 0.02 }
        log << :tidied
      end
    end
    assert_equal [:tidied], log
  end

  # The limit is another fiber's; whoever computes is left alone, and the limit comes afterwards.
  def test_the_computation_of_another_fiber_is_not_interrupted
    late = spin do
      Timeout.timeout(0.005) { sleep }
    rescue Timeout::Error
      :late
    end
    snooze
    assert_equal :computed, compute_for(0.15)
    assert_equal :late, late.await
  end

  def test_a_block_that_ends_in_time_is_not_hit_later
    Timeout.timeout(0.01) { nil }
    assert_equal :computed, compute_for(0.15)
  end

  def compute_for(seconds)
    deadline = clock + seconds
    1.0 / 3 while clock < deadline
    :computed
  end

  # Limits that are over while the block is about to end: either way, and nothing afterwards.
  def test_a_limit_at_the_end_of_a_computation
    heavy
    outcomes = Array.new(20) do
      Timeout.timeout(0.01) { compute_for(0.03) }
    rescue Timeout::Error
      :late
    end
    assert_empty outcomes - %i[computed late]
    assert_equal :computed, compute_for(0.05)
  end

  def test_the_thread_that_watches_does_not_hide_a_deadlock
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      Timeout.timeout(1000) { sleep 0.001 }
      p Thread.list.size
      begin
        Polyphony::Queue.new.shift
      rescue Polyphony::Deadlock
        puts 'deadlock'
      end
      begin
        Timeout.timeout(0.03) { loop { nil } }
      rescue Timeout::Error
        puts 'late'
      end
    RUBY
    assert_equal "2\ndeadlock\nlate\n", out, err
  end

  def test_the_thread_that_watches_ends_when_there_are_no_limits
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      Timeout.timeout(#{patient(0.3)}) { sleep 0.001 }
      p Thread.list.size
      sleep 0.005 until Thread.list.size == 1
      puts 'alone'
      begin
        Timeout.timeout(0.03) { loop { nil } }
      rescue Timeout::Error
        puts 'back again'
      end
    RUBY
    assert_equal "2\nalone\nback again\n", out, err
  end

  def test_after_a_fork
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      $stdout.sync = true
      def limit
        Timeout.timeout(0.02) { yield }
      rescue Timeout::Error
        :late
      end
      p limit { sleep }, limit { loop { nil } }
      Timeout.timeout(100) do
        Process.wait(fork { p limit { sleep }, limit { loop { nil } } })
      end
      result = Timeout.timeout(0.05) { Process.wait(fork { exit!(limit { loop { nil } } == :late ? 0 : 1) }); $?.exitstatus } rescue :parent
      p [0, :parent].include?(result)
    RUBY
    assert_equal ":late\n:late\n:late\n:late\ntrue\n", out, err
  end

  def test_many_limits_cost_no_thread_each
    heavy
    before = Thread.list.size
    fibers = Array.new(200) { |i| spin { Timeout.timeout(100 + i) { sleep } } }
    snooze
    assert_operator Thread.list.size, :<=, before + 1
    fibers.each(&:stop)
    Fiber.await(fibers)
    nothing_pending
  end

  # --- schedulers of others ------------------------------------------------------------------------------------

  def test_a_scheduler_of_somebody_elses_is_asked
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      class Other
        def timeout_after(seconds, klass, message) = p([seconds, klass, message]) && yield
        def block(*) = nil
        def unblock(*) = nil
        def kernel_sleep(*) = nil
        def io_wait(*) = nil
        def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
      end
      Thread.new do
        Fiber.set_scheduler(Other.new)
        Fiber.schedule { Timeout.timeout(3) { puts 'ran' } }
        Fiber.set_scheduler(nil)
      end.join
    RUBY
    # Since Ruby 3.4 an exception that was made already.
    assert_match(/\A\[3, (Timeout::Error|#<Timeout::ExitException: .*>), "execution expired"\]\nran\n\z/, out, err)
  end
end
