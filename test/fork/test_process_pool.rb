# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/pool_case'
require 'zlib'

# What process pools do when nothing goes wrong but the tasks.
class TestProcessPool < Polyphony::PoolCase
  on_every_driver

  ProcessPool = Polyphony::ProcessPool

  # --- what a task may be ---------------------------------------------------------------------------

  def test_blocks_objects_and_methods_are_called_in_another_process
    one = pool
    assert_equal 49, one.process(:square, 7)
    assert_includes one.stats[:pids], one.process(:pid)
    assert_equal Zlib.crc32('text'), one.process(Zlib, :crc32, 'text')
    assert_equal Zlib.crc32('text'), one.process(Zlib.method(:crc32), 'text')
    assert_equal 42, one.process(Adder.new(20), 1, times: 2)
    assert_equal 21, one.process(Adder.new(20), 1)
    assert_equal 25, one.process(Adder.new(20).method(:add), 5)
  end

  def test_arguments_and_options_arrive_as_they_are
    one = pool(1)
    assert_equal [1, 'two', [3.0, nil]], one.process(:echo, 1, 'two', [3.0, nil])
    assert_equal [[{ a: 1 }], { b: :c }], one.process(:echo, { a: 1 }, b: :c)
    assert_equal [], one.process(:echo)
  end

  def test_what_cannot_be_sent_is_refused_with_the_way_out
    one = pool(1)
    [-> { one.process { 1 } }, -> { one.process(-> { 1 }) }, -> { one.cast { 1 } }, -> { one.map([1]) { 1 } }].each do |call|
      assert_match(/give the block to ProcessPool\.new, as in/, error_of(ArgumentError, &call).message)
    end
    assert_match(/there is no task :missing .*:square/, error_of(ArgumentError) { one.process(:missing) }.message)
    assert_match(/does not respond to call.* got "x"/, error_of(ArgumentError) { one.process(Zlib, 'x') }.message)
    assert_match(/task :echo cannot be sent .*Proc/, error_of(TypeError) { one.process(:echo, -> {}) }.message)
    assert_equal [1], one.process(:echo, 1)
  end

  def test_bad_settings_are_refused
    { size: [0, -1, 1.5, nil], fibers: [0, '2'], retries: [-1, nil], grace: [-1, nil, 'x'] }.each do |name, values|
      values.each do |value|
        call = -> { name == :size ? ProcessPool.new(value) : ProcessPool.new(1, name => value) }
        assert_match(/#{name} must be .* got #{Regexp.escape(value.inspect)}/, error_of(ArgumentError, &call).message)
      end
    end
    assert_match(/task resize must be something to call, got 1/, error_of(ArgumentError) { ProcessPool.new(1, resize: 1) }.message)
    assert_match(/items must respond to each, got 5/, error_of(ArgumentError) { pool(1).map(5, :square) }.message)
    assert_raises(ArgumentError) { ProcessPool.open(1) }
    assert_raises(ArgumentError) { pool(1).retrying(-1) }
  end

  # --- what comes back ------------------------------------------------------------------------------

  def test_an_exception_comes_back_with_its_backtrace_and_that_of_the_caller
    one = pool(1)
    error = error_of(IOError) { one.process(:fail, 'no disk') }
    assert_equal 'no disk', error.message
    assert_match(/pool_case\.rb/, error.backtrace.first)
    assert(error.backtrace.any? { |line| line.include?(__method__.to_s) }, error.backtrace.join("\n"))
    assert_empty error.backtrace.grep(%r{core/process_pool})
  end

  def test_causes_come_along
    error = error_of(IOError) { pool(1).process(:nested) }
    assert_equal ['outer', KeyError, 'inner'], [error.message, error.cause.class, error.cause.message]
    assert_match(/pool_case\.rb/, error.cause.backtrace.first)
  end

  def test_an_exception_that_cannot_be_sent_is_described
    one = pool(1)
    error = error_of(ProcessPool::RemoteError) { one.process(:own) }
    assert_equal ['Polyphony::PoolCase::Unsendable', 'Polyphony::PoolCase::Unsendable: with a block'],
                 [error.class_name, error.message]
    assert_match(/pool_case\.rb/, error.backtrace.first)
    assert_equal 'OnlyThere: far away', error_of(ProcessPool::RemoteError) { one.process(:unknown) }.message
  end

  # It must not stop the fiber that waits for it, or begin that anew.
  def test_a_task_that_stops_itself_has_no_result
    one = pool(1, raise: ->(error) { raise error }, stop: -> { Fiber.current.stop; sleep })
    results = spin { [one.process(:raise, Polyphony::Terminate), one.process(:stop), one.process(:square, 3)] }
    assert_equal [nil, nil, 9], results.await
    error = spin { error_of(ProcessPool::RemoteError) { one.process(:raise, Polyphony::Restart) } }.await
    assert_equal 'Polyphony::Restart', error.class_name
  end

  def test_a_result_that_cannot_be_sent_is_an_error_and_the_worker_goes_on
    one = pool(1)
    assert_match(/the result cannot be sent to another process: .*Proc/, error_of(TypeError) { one.process(:block) }.message)
    assert_equal 4, one.process(:square, 2)
    assert_equal 0, one.stats[:died]
  end

  def test_what_only_one_side_knows_is_an_error
    one = pool(1, define: -> { Object.const_set(:OnlyInWorker, Struct.new(:x)).new(1) })
    assert_match(/what task :define returned is not known/, error_of(TypeError) { one.process(:define) }.message)
    Object.const_set(:OnlyHere, Struct.new(:x))
    assert_match(/not known in this worker, which was forked before/, error_of(TypeError) { one.process(:echo, OnlyHere.new(1)) }.message)
    assert_equal [1], one.process(:echo, 1)
  ensure
    Object.__send__(:remove_const, :OnlyHere)
  end

  # --- progress -------------------------------------------------------------------------------------

  def test_reports_come_in_order_before_the_result
    one = pool(1)
    heard = []
    assert_equal :counted, one.process(:count, 500) { |i| heard << i }
    assert_equal (0...500).to_a, heard
    assert_equal :counted, one.process(:count, 5)
    assert_equal false, ProcessPool.progress(1)
  end

  def test_a_slow_listener_holds_the_task_back
    file = track(Tempfile.new('sent'))
    one = pool(1, chatter: lambda {
      sent = 0
      spin { sleep 0.05; File.write(file.path, sent.to_s) }
      200.times { ProcessPool.progress(sent += 1) }
    })
    heard = []
    one.process(:chatter) do |i|
      heard << i
      eventually { File.size(file.path).positive? }
    end
    assert_equal (1..200).to_a, heard
    assert_operator Integer(File.read(file.path)), :<, 150
  end

  def test_an_error_of_the_listener_ends_the_task
    one = pool(1)
    assert_raises(KeyError) { one.process(:wait) { raise KeyError } }
    assert_equal 4, one.process(:square, 2)
    assert_equal [0, 1], one.stats.values_at(:died, :cancelled)
  end

  # --- map ------------------------------------------------------------------------------------------

  def test_map_keeps_the_order
    assert_equal (1..50).map { |x| x * x }, pool.map(1..50, :square)
    naps = [0.03, 0, 0.02, 0, 0.01, 0]
    assert_equal naps.map { |x| [x] }, pool(2, fibers: 3, lazy: ->(x) { sleep x; [x] }).map(naps, :lazy)
    assert_equal [], pool(1).map([], :square)
    assert_equal [[1, 2, 9], [3, 4, 9]], pool(1, flat: ->(pair, more) { [*pair, more] }).map({ 1 => 2, 3 => 4 }, :flat, 9)
  end

  def test_map_raises_the_first_error_in_order_and_ends_the_others
    one = pool(2, pick: ->(x) { x == 2 ? raise(IOError, 'two') : sleep })
    [:map, :each_result].each do |word|
      error = error_of(IOError) { one.public_send(word, [2, 3, 4], :pick, &(-> { flunk } if word == :each_result)) }
      assert_equal 'two', error.message
    end
    eventually { !one.busy? && one.stats[:running].zero? }
    assert_equal 0, one.stats[:died]
  end

  def test_items_are_read_as_workers_become_free
    one = pool(2)
    read = 0
    items = Enumerator.new { |y| loop { y << (read += 1) } }
    assert_equal [1, 4, 9], one.each_result(items, :square).first(3)
    assert_operator read, :<, 1000
  end

  def test_no_more_items_are_read_than_the_workers_can_have
    one = pool(1, nap_for_ever: ->(_) { sleep })
    read = 0
    reader = spin { one.map(Enumerator.new { |y| loop { y << (read += 1) } }, :nap_for_ever) }
    eventually { read > 5 }
    20.times { sleep 0.001 }
    assert_operator read, :<, 10
    reader.stop
  end

  def test_an_endless_map_ends_when_it_is_cancelled
    one = pool
    assert_equal :late, move_on_after(0.05, with_value: :late) { one.map(1.step, :square) }
    assert_equal :late, move_on_after(0.05, with_value: :late) { one.map(1.step, :nap) }
    eventually { one.stats[:running].zero? }
    assert_equal 4, one.process(:square, 2)
  end

  def test_an_error_of_the_items_comes_after_the_results_before_it
    one = pool
    seen = []
    items = Enumerator.new { |y| y << 1 << 2; raise KeyError, 'no more' }
    assert_raises(KeyError) { one.each_result(items, :square) { |x| seen << x } }
    assert_equal [1, 4], seen
  end

  def test_results_come_while_the_next_item_is_waited_for
    one = pool
    items, seen = Polyphony::Queue.new, Polyphony::Queue.new
    reader = spin { one.each_result(items, :square) { |x| seen << x } }
    3.times do |i|
      items << i
      assert_equal i * i, seen.shift(timeout: patient(20))
    end
    items.close
    assert_same one, reader.await
  end

  # --- cast -----------------------------------------------------------------------------------------

  def test_cast_does_not_wait_and_stop_does
    reader, writer = pipe_pair
    one = pool(2, share: [writer], say: ->(text) { writer.write(text) })
    3.times { assert_same one, one.cast(:say, 'x') }
    one.stop
    assert_equal 'xxx', reader.read_nonblock(10)
  end

  def test_the_error_of_a_cast_comes_as_that_of_a_child
    one = pool(1)
    fiber = spin { one.cast(:fail, 'cast'); sleep }
    assert_equal 'cast', error_of(IOError) { fiber.await }.message
    spin { one.cast(:fail, 'late') }.await
    assert_equal 'late', error_of(IOError) { sleep patient(20) }.message
  end

  # --- who may use it -------------------------------------------------------------------------------

  def test_many_fibers_at_once
    one = pool
    fibers = Array.new(500) { |i| spin { one.process(:square, i) } }
    assert_equal Array.new(500) { |i| i * i }, Fiber.await(fibers)
  end

  def test_several_threads
    one = pool
    threads = Array.new(3) { |t| Thread.new { Array.new(50) { |i| one.process(:square, t * 100 + i) } } }
    expected = Array.new(3) { |t| Array.new(50) { |i| (t * 100 + i)**2 } }
    assert_equal expected, threads.map(&:value)
    errors = Array.new(3) { Thread.new { error_of(IOError) { one.process(:fail, 'there') }.message } }
    assert_equal %w[there] * 3, errors.map(&:value)
    assert_equal [:late] * 3, Array.new(3) { Thread.new { move_on_after(0.05, with_value: :late) { one.process(:compute) } } }.map(&:value)
    eventually { one.stats[:running].zero? }
    assert_equal 0, one.stats[:died]
  end

  def test_a_pool_of_another_thread_ends_with_it
    made = nil
    Thread.new { made = ProcessPool.new(1, warmup: false, **TASKS); made.process(:square, 2) }.join
    assert_predicate made, :stopped?
    assert_raises(ProcessPool::Stopped) { made.process(:square, 2) }
  end

  def test_an_enumerator_and_a_fiber_of_rubys_own
    one = pool
    assert_equal 9, Enumerator.new { |y| y << one.process(:square, 3) }.next
    assert_equal 16, Fiber.new { one.process(:square, 4) }.resume
    results = one.each_result(1..3, :square)
    assert_equal [1, 4, 9], [results.next, results.next, results.next]
    assert_raises(StopIteration) { results.next }
  end

  def test_a_task_may_have_a_pool_of_its_own
    one = pool(1, inner: lambda { |n|
      ProcessPool.open(2, warmup: false, double: ->(x) { x * 2 }) { |inner| inner.map(1..n, :double) }
    })
    assert_equal [2, 4, 6], one.process(:inner, 3)
  end

  def test_another_process_has_to_make_its_own
    one = pool(1)
    other = pool(1, use: -> { one.process(:square, 2) })
    assert_match(/belongs to process #{$$}/, error_of(ProcessPool::Error) { other.process(:use) }.message)
    assert_match(/of process #{$$}>/, pool(1, show: -> { one.inspect }).process(:show))
  end

  # --- how the work is shared -----------------------------------------------------------------------

  def test_ten_thousand_small_tasks
    heavy
    one = pool
    assert_equal (1..10_000).sum { |x| x * x }, one.map(1..10_000, :square).sum
    assert_equal [10_000, 0, 0], one.stats.values_at(:done, :running, :waiting)
  end

  # All that was meant for the worker with the long task is done by the other one, also what it had been sent already.
  def test_nothing_waits_behind_a_long_task
    one = pool(2)
    long = begun(one, :compute)
    pids = Array.new(30) { spin { one.process(:pid) } }.map(&:await)
    assert_equal 1, pids.uniq.size
    assert_equal 1, one.stats[:running]
    long.stop
  end

  def test_what_a_busy_worker_has_been_sent_is_taken_back
    one = pool(2)
    first = begun(one, :compute)
    second = begun(one, :compute)
    waiting = Array.new(40) { |i| spin { one.process(:square, i) } }
    eventually { one.stats[:waiting] == 40 }
    first.stop
    assert_equal Array.new(40) { |i| i * i }, Fiber.await(waiting)
    assert_operator one.stats[:stolen], :>=, 20
    assert_equal 1, one.stats[:running]
    second.stop
  end

  def test_a_worker_runs_several_tasks_that_wait_if_asked
    one = pool(1, fibers: 10)
    fibers = Array.new(10) { begun(one, :wait) }
    assert_equal 10, one.stats[:running]
    fibers.first.stop
    eventually { one.stats[:running] == 9 }
    assert_equal 4, one.process(:square, 2)
    fibers.each(&:stop)
  end

  # --- large ----------------------------------------------------------------------------------------

  def test_a_hundred_megabytes_both_ways
    heavy
    one = pool(2)
    ticks = 0
    clock = spin { every(0.005) { ticks += 1 } }
    bytes = 'y' * 100_000_000
    assert_equal bytes.bytesize, one.process(:size, bytes)
    assert_equal 100_000_000, one.process(:bytes, 100_000_000).bytesize
    assert_operator ticks, :>, 3
    clock.stop
  end

  def test_large_payloads_in_both_directions_at_once
    one = pool(1)
    bytes = Random.bytes(3_000_000)
    fibers = Array.new(8) { spin { one.process(:echo, bytes) } }
    fibers.each { |fiber| assert_equal [bytes], fiber.await }
  end

  # --- what it tells --------------------------------------------------------------------------------

  def test_stats_and_inspect
    one = pool(2)
    assert_equal '#<Polyphony::ProcessPool of 2, 0 running, 0 waiting>', one.inspect
    assert_equal [2, false], [one.size, one.busy?]
    fiber = begun(one, :wait)
    assert_equal [2, 2, 1, 0], one.stats.values_at(:size, :alive, :running, :waiting)
    assert_predicate one, :busy?
    fiber.stop
    fiber.await
    one.stop
    assert_equal ['#<Polyphony::ProcessPool of 2, stopped>', 0], [one.to_s, one.stats[:alive]]
  end

  def test_it_is_loaded_when_it_is_named
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      loaded = -> { $LOADED_FEATURES.grep(/process_pool/).size }
      print loaded.call
      print Polyphony::ProcessPool.open(1, a: -> { 7 }) { |pool| pool.process(:a) }
      print loaded.call.positive?
    RUBY
    assert_equal ['07true', ''], [out, err]
  end

  def test_the_core_alone_is_enough
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony/core'
      pool = Polyphony::ProcessPool.new(2, square: ->(x) { x * x }, wait: -> { Polyphony.backend_sleep(60) }, turn: -> { loop {} })
      p pool.map(1..3, :square), move_on_after(0.05) { pool.process(:wait) }, move_on_after(0.05) { pool.process(:turn) }
      pool.stop
      p pool.stats[:died]
    RUBY
    assert_equal ["[1, 4, 9]\nnil\nnil\n0\n", ''], [out, err]
  end
end
