# frozen_string_literal: true

require 'weakref'
require_relative '../test_helper'

# Fibers from a place whose fibers did not wait are begun in another way, of which nothing may be seen but the memory they take.
class TestStarter < Polyphony::TestCase
  on_every_driver

  # From where some have been spun that did not wait. Not awaited.
  def from_a_brief_place(&job)
    fiber = nil
    [*Array.new(4) { proc {} }, job].each do |body|
      fiber = spin { body.call }
      fiber.await if body != job
    end
    fiber
  end

  def maps
    File.foreach('/proc/self/maps').count
  end

  def test_memory_of_brief_fibers_serves_the_next_without_a_collection
    skip 'no /proc/self/maps here' unless File.exist?('/proc/self/maps')
    heavy
    from_a_brief_place {}.await
    GC.start
    GC.disable
    before = maps
    held = Array.new(2_000) { spin {}.tap(&:await) }
    assert_operator maps - before, :<, 200
    held = Array.new(2_000) { spin {} }
    Fiber.await(*held)
    assert_operator maps - before, :<, 400
  ensure
    GC.enable
  end

  def test_one_that_waits_after_all_goes_on_as_others_do
    order = []
    fiber = from_a_brief_place { order << 1; snooze; order << 3; sleep 0.001; order << 4; :done }
    spin { order << 2 }
    assert_equal :done, fiber.await
    assert_equal [1, 2, 3, 4], order
    assert_equal :next, from_a_brief_place { :next }.await
  end

  def test_many_that_wait_after_all
    fibers = Array.new(100) { |i| spin { sleep 0.001 if i > 10; i } }
    assert_equal [*0...100], Fiber.await(*fibers)
    assert_equal [*0...100], Fiber.map(0...100) { |i| i == 50 ? (sleep 0.001; i) : i }
  end

  def test_one_that_waits_may_be_stopped_and_raised_in
    assert_nil from_a_brief_place { sleep }.tap { snooze }.stop.await
    fiber = from_a_brief_place { sleep }
    snooze
    fiber.raise(IOError, 'from outside')
    assert_raises(IOError) { fiber.await }
    assert_nil(move_on_after(0.001) { from_a_brief_place { sleep }.await })
  end

  def test_one_may_be_stopped_before_it_begins
    ran = false
    fiber = from_a_brief_place { ran = true }
    fiber.stop(:stopped)
    assert_equal [:stopped, false], [fiber.await, ran]
  end

  def test_the_order_is_that_of_the_queue
    order = []
    3.times { spin { order << :warm }.await }
    order.clear
    snoozing = spin { 3.times { |i| order << [:snoozing, i]; snooze } }
    brief = Array.new(3) { |i| spin { order << i } }
    Fiber.await(snoozing, *brief)
    assert_equal [[:snoozing, 0], 0, 1, 2, [:snoozing, 1], [:snoozing, 2]], order
  end

  def test_errors_go_up
    assert_raises(KeyError) { from_a_brief_place { raise KeyError }.await }
    assert_raises(KeyError) { from_a_brief_place { raise KeyError }; sleep }
    error = assert_raises(KeyError) { from_a_brief_place { spin { raise KeyError, 'deep' }; sleep }.await }
    assert_equal 'deep', error.message
  end

  def test_nobody_can_yield_from_it
    error = assert_raises(FiberError) { from_a_brief_place { Fiber.yield(1) }.await }
    assert_match(/yield/, error.message)
    fiber = from_a_brief_place { [1, 2].map { |n| Fiber.yield(n) rescue n } }
    assert_equal [1, 2], fiber.await
  end

  def test_generators_in_it
    numbers = Enumerator.new { |all| 3.times { |i| sleep 0.001; all << i } }
    assert_equal [0, 1, 2], from_a_brief_place { [numbers.next, numbers.next, numbers.next] }.await
    assert_equal 5, from_a_brief_place { Fiber.new { 5 }.resume }.await
  end

  def test_it_may_restart_and_have_children
    count = 0
    fiber = from_a_brief_place { count += 1; Fiber.current.restart if count < 3; count }
    assert_equal 3, fiber.await
    ended = []
    from_a_brief_place do
      spin do
        sleep
      ensure
        ended << 1
      end
      snooze
    end.await
    assert_equal [1], ended
  end

  def test_each_of_many_spins_the_next
    depth = 0
    go = -> { depth += 1; spin(&go).await if depth < 200 }
    spin(&go).await
    assert_equal 200, depth
    following = lambda { depth += 1; Fiber.current.parent && depth < 400 ? main_spin(following) : nil }
    main_spin(following)
    cancel_after(5) { snooze until depth >= 400 }
    assert_equal 400, depth
  end

  def main_spin(job)
    @main ||= Fiber.current
    spin(&job).tap { |fiber| fiber.attach_to(@main) }
  end

  def test_killed_with_its_thread
    [-> { Thread.current.kill }, -> { Thread.exit }, -> { Thread.current.raise(IOError) }].each do |way|
      thread = Thread.new do
        Thread.current.report_on_exception = false
        from_a_brief_place(&way)
        sleep
      end
      thread.join rescue assert_kind_of(IOError, $!)
      refute_predicate thread, :alive?
    end
  end

  def test_in_threads
    sums = Array.new(4) { |n| Thread.new { (1..200).sum { |i| spin { Thread.pass if i % 50 == n; i }.await } } }.map(&:value)
    assert_equal [20_100] * 4, sums
  end

  def test_a_fork_in_it
    reader, writer = pipe_pair
    pid = nil
    from_a_brief_place do
      pid = Polyphony.fork { writer << "child #{(1..5).sum { |i| spin { i }.await }}" }
    end.await
    writer.close
    assert_equal 'child 15', reader.read
    ::Process.wait(pid)
  end

  def test_a_fork_that_returns_twice_in_it
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      4.times { spin {}.await }
      fibers = Array.new(5) { |i| spin { pid = fork if i == 4; $stdout.syswrite(pid ? "parent\n" : "child\n") if i == 4; ::Process.wait(pid) if pid; sleep 0.001 unless pid || i < 4 } }
      Fiber.await(*fibers)
      puts (1..5).sum { |i| spin { i }.await }
    RUBY
    assert_equal %w[15 child parent], out.lines(chomp: true).sort, err
  end

  def test_signal_handlers_while_fibers_begin
    out, err, = run_ruby(<<~'RUBY')
      require 'polyphony'
      require 'rbconfig'
      calls = 0
      Signal.trap('USR1') { calls += 1; spin { calls += 1000 } }
      sender = ::Process.spawn(RbConfig.ruby, '--disable-gems', '-e', '200.times { Process.kill(:USR1, Process.ppid); sleep 0.0005 }')
      waiter = ::Process.detach(sender)
      sum = 0
      (sum += spin { 1 }.await) while waiter.alive?
      snooze
      puts calls > 1000, sum > 0
    RUBY
    assert_equal "true\ntrue\n", out, err
  end

  def test_what_a_brief_fiber_had_is_collected
    reference = nil
    from_a_brief_place { reference = WeakRef.new(+'an object') ; nil }.await
    from_a_brief_place { nil }.await
    collected = 20.times.any? do
      GC.start
      from_a_brief_place { Array.new(100) { Object.new }; nil }.await
      !reference.weakref_alive?
    end
    assert collected
  end

  def test_objects_that_move
    skip 'this Ruby does not compact' unless GC.respond_to?(:compact)
    heavy
    20.times do |n|
      waiting = from_a_brief_place { sleep 0.001; n }
      snooze
      GC.compact if (n % 5).zero?
      assert_equal n, waiting.await
      assert_equal n, from_a_brief_place { n }.await
    end
  end

  def test_it_is_not_shown
    before = Polyphony.tree.to_a.size
    waiting = from_a_brief_place { sleep }
    snooze
    assert_equal [waiting], Fiber.current.children
    assert_equal before + 1, Polyphony.tree.to_a.size
    waiting.stop
  end
end
