# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::ResourcePool: a few resources for many fibers and threads.
class TestResourcePool < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  Pool = Polyphony::ResourcePool

  class Boom < StandardError; end

  def setup
    super
    @made = 0
  end

  # Of :r1, :r2 ...
  def pool(limit = 2)
    Pool.new(limit: limit) { :"r#{@made += 1}" }
  end

  # Fibers that have a resource until they are stopped.
  def holding(pool, count = 1)
    fibers = Array.new(count) { spin { pool.acquire { sleep } } }
    snooze until pool.holders.size == count
    fibers
  end

  def assert_all_free(pool)
    assert_empty pool.holders
    assert_equal pool.limit, pool.available
  end

  # --- having and giving back ----------------------------------------------------------------------

  def test_acquire_hands_a_resource_to_the_block_and_returns_what_it_returns
    assert_equal(%i[r1 value], pool.acquire { |resource| [resource, :value] })
  end

  def test_resources_are_made_when_they_are_needed_and_used_again
    pool = pool(3)
    assert_equal [0, 3, 3], [pool.size, pool.available, pool.limit]
    3.times { assert_equal :r1, pool.acquire { |resource| resource } }
    assert_equal [1, 3, 3], [pool.size, pool.available, pool.limit]
    pool.acquire { spin { pool.acquire { |resource| assert_equal :r2, resource } }.await }
    assert_equal 2, pool.size
    assert_equal 4, Pool.new { nil }.limit
  end

  # The others may be closed by the far end, or by somebody who looks for idle ones.
  def test_the_resource_that_was_used_last_is_used_first
    pool = pool(3)
    fibers = holding(pool, 3)
    fibers.values_at(0, 2, 1).each { |fiber| fiber.stop.await }
    assert_equal :r2, pool.acquire { |resource| resource }
  end

  def test_there_are_never_more_than_the_limit
    inside = most = 0
    pool = Pool.new(limit: 3) { sleep 0.001; @made += 1 }
    fibers = Array.new(12) do
      spin do
        2.times do
          pool.acquire do
            most = [most, inside += 1].max
            snooze
            inside -= 1
          end
        end
      end
    end
    Fiber.await(fibers)
    assert_equal [3, 3], [most, @made]
    assert_all_free pool
  end

  def test_a_resource_may_be_nil_or_false
    [nil, false].each do |nothing|
      made = 0
      pool = Pool.new(limit: 1) { made += 1; nothing }
      2.times { assert_equal [nothing], pool.acquire { |resource| [resource] } }
      assert_equal [1, 1], [made, pool.size]
    end
  end

  def test_a_fiber_gets_its_resource_again_and_keeps_it_until_the_outermost_block_ends
    pool = pool(1)
    pool.acquire do |outer|
      assert_same outer, pool.acquire { |inner| inner }
      assert_equal 0, pool.available
      assert_same outer, pool.acquire(timeout: 0) { |inner| inner }
    end
    assert_all_free pool
  end

  def test_a_child_of_the_fiber_that_has_it_waits_like_any_other
    pool = pool(1)
    child = nil
    pool.acquire do
      child = waiting { pool.acquire { :got_it } }
    end
    assert_equal :got_it, child.await
  end

  def test_it_is_given_back_however_the_block_ends
    pool = pool(1)
    assert_raises(Boom) { pool.acquire { raise Boom } }
    assert_equal :thrown, catch(:out) { pool.acquire { throw :out, :thrown } }
    assert_equal(:broken, pool.acquire { break :broken })
    holding(pool).first.stop.await
    failing, = holding(pool)
    failing.raise(Boom)
    assert_raises(Boom) { failing.await }
    assert_all_free pool
    assert_equal 1, @made
  end

  # --- waiting -------------------------------------------------------------------------------------

  def test_who_waits_is_served_in_the_order_of_arrival
    pool = pool(2)
    log = []
    fibers = Array.new(10) { |i| spin { pool.acquire { log << i; snooze } } }
    Fiber.await(fibers)
    assert_equal Array.new(10) { |i| i }, log
  end

  def test_a_newcomer_does_not_overtake_one_who_has_been_woken
    pool = pool(1)
    log = []
    holder, = holding(pool)
    first = waiting { pool.acquire { log << :first } }
    holder.stop
    snooze # it gives it back: the first is woken, and has not run
    assert_equal :runnable, first.state
    pool.acquire { log << :newcomer }
    assert_equal %i[first newcomer], log
  end

  # Timers and answers may pass a crowd that has just been spun. So all places come back when one fiber waits, and is given one, and
  # others are about to come for one.
  def test_a_crowd_is_served_in_the_order_of_arrival_whatever_events_pass_it
    pool = pool(5)
    log = []
    reader, writer = pipe_pair
    crowd = Array.new(6) { |i| spin { pool.acquire { log << i; reader.wait_readable } } }
    poll = spin { snooze; writer.write_nonblock('.'); Thread.current.backend.poll(false) }
    crowd.concat(Array.new(194) { |i| spin { pool.acquire { log << i + 6; snooze } } })
    Fiber.await(*crowd, poll)
    assert_equal Array.new(200) { |i| i }, log
    assert_all_free pool
  end

  def test_one_who_is_cancelled_when_it_has_been_woken_leaves_it_to_the_next
    pool = pool(1)
    holder, = holding(pool)
    first = waiting { pool.acquire { flunk } }
    second = waiting { pool.acquire { :second } }
    holder.stop
    snooze
    first.stop
    assert_equal :second, second.await
    assert_all_free pool
  end

  def test_fibers_that_are_ended_anywhere_lose_no_resource
    cancel_everywhere do |run|
      made = inside = most = 0
      pool = Pool.new(limit: 2) { snooze; made += 1 }
      use = lambda do
        pool.acquire do
          inside += 1
          most = [most, inside].max
          snooze
          pool.acquire { snooze }
        ensure
          inside -= 1
        end
      end
      done = 0
      run.scenario { 2.times { use.call } }
      2.times { run.beside { 2.times { use.call; done += 1 } } }
      run.check do
        assert_equal 4, done
        assert_all_free pool
        assert_equal [0, made], [inside, pool.size]
        assert_operator [most, made].max, :<=, 2
      end
    end
  end

  def test_resources_that_are_discarded_when_their_fibers_end_leave_their_places
    cancel_everywhere do |run|
      pool = Pool.new(limit: 1) { snooze; Object.new }
      run.scenario { 2.times { pool.acquire { snooze; pool.discard!; snooze } } }
      run.beside { 2.times { pool.acquire { snooze } } }
      run.check do
        assert_all_free pool
        assert_kind_of Object, pool.acquire { |resource| resource }
      end
    end
  end

  # --- with a time limit ---------------------------------------------------------------------------

  def test_a_resource_that_is_free_in_time_is_had
    pool = pool(1)
    holder, = holding(pool)
    fiber = waiting { pool.acquire(timeout: 100) { |resource| resource } }
    holder.stop
    assert_equal :r1, fiber.await
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_when_none_is_free_in_time_the_error_says_who_has_what_since_when
    pool = Pool.new(limit: 3) { (@made += 1) == 3 ? sleep : "connection #{@made}" }
    spin(:reader) { pool.acquire { sleep } }
    spin(:writer) { pool.acquire { sleep } }
    spin(:maker) { pool.acquire { sleep } }
    snooze until pool.holders.size == 3
    sleep 0.02
    error = assert_raises(Pool::Exhausted) { pool.acquire(timeout: 0.001) { flunk } }
    first, reader, writer, maker = error.message.lines(chomp: true)
    assert_match(/\Ano resource was free within 0.001 s: .*3 of 3 in use, 2 made/, first)
    assert_match(/\A  #<Fiber reader:.*#{__FILE__}:\d+ \(waiting\)> has "connection 1" since \d\.\d{3} s\z/, reader)
    assert_operator reader[/since (\S+)/, 1].to_f, :>=, 0.02
    assert_match(/#<Fiber writer:.* has "connection 2" since/, writer)
    assert_match(/#<Fiber maker:.* has one that is being made since/, maker)
  end

  def test_the_error_is_brief_and_bears_resources_that_cannot_be_shown
    long = Object.new.tap { |object| object.define_singleton_method(:inspect) { 'x' * 10_000 } }
    broken = Object.new.tap { |object| object.define_singleton_method(:inspect) { raise Boom } }
    kinds = [long, broken, BasicObject.new]
    pool = Pool.new(limit: 3) { kinds.shift }
    holding(pool, 3)
    message = assert_raises(Pool::Exhausted) { pool.acquire(timeout: 0) { flunk } }.message
    assert_includes message, "has #{'x' * 77}... since"
    assert_includes message, 'has one that cannot be shown (TestResourcePool::Boom) since'
    assert_includes message, 'has one that cannot be shown (NoMethodError) since'
  end

  def test_a_limit_of_zero_asks_once
    pool = pool(1)
    [0, -1].each do |timeout|
      assert_equal :r1, pool.acquire(timeout: timeout) { |resource| resource }
      holder, = holding(pool)
      assert_raises(Pool::Exhausted) { pool.acquire(timeout: timeout) { flunk } }
      holder.stop.await
    end
  end

  def test_the_limit_is_for_the_wait_alone
    pool = Pool.new(limit: 1) { sleep 0.005; :made }
    assert_equal :used, pool.acquire(timeout: 0.001) { sleep 0.005; :used }
  end

  def test_time_limits_around_it_end_the_wait_too
    pool = pool(1)
    holder, = holding(pool)
    assert_equal(:late, move_on_after(0.001, with_value: :late) { pool.acquire { flunk } })
    assert_raises(Polyphony::Cancel) { cancel_after(0.001) { pool.acquire(timeout: 100) { flunk } } }
    holder.stop.await
    assert_equal(:late, move_on_after(0.001, with_value: :late) { pool.acquire { sleep } })
    assert_all_free pool
  end

  def test_fibers_that_are_ended_while_they_wait_with_a_limit
    cancel_everywhere do |run|
      pool = Pool.new(limit: 1) { :made }
      run.scenario do
        pool.acquire(timeout: 0.0002) { snooze }
        pool.acquire(timeout: 100) { snooze }
      rescue Pool::Exhausted
        nil
      end
      run.beside { pool.acquire { 3.times { snooze } } }
      run.check do
        assert_all_free pool
        assert_equal 0, Thread.current.backend.stats[:pending_timers]
      end
    end
  end

  # --- making and discarding -----------------------------------------------------------------------

  def test_an_error_while_making_one_goes_to_who_wanted_it_and_the_next_tries_again
    tries = 0
    pool = Pool.new(limit: 1) do
      snooze
      (tries += 1) < 3 ? raise(Boom, "try #{tries}") : :made
    end
    results = Array.new(3) do
      spin do
        pool.acquire { |resource| resource }
      rescue Boom => e
        e.message
      end
    end
    assert_equal ['try 1', 'try 2', :made], Fiber.await(results)
    assert_all_free pool
    assert_equal 1, pool.size
  end

  def test_making_one_may_be_cancelled
    pool = Pool.new(limit: 1) { (@made += 1) == 1 ? sleep : :made }
    slow = waiting { pool.acquire { flunk } }
    other = waiting { pool.acquire { |resource| resource } }
    slow.stop
    assert_equal :made, other.await
    assert_equal 1, pool.size
  end

  def test_several_may_be_made_at_once
    making = most = 0
    pool = Pool.new(limit: 3) do
      most = [most, making += 1].max
      3.times { snooze }
      making -= 1
    end
    Fiber.await(Array.new(3) { spin { pool.acquire { nil } } })
    assert_equal 3, most
  end

  def test_a_discarded_resource_is_not_used_again
    pool = pool(1)
    pool.acquire do |resource|
      assert_same resource, pool.discard!
      assert_equal [0, 0], [pool.size, pool.available]
    end
    assert_equal 1, pool.available
    assert_equal :r2, pool.acquire { |resource| resource }
  end

  def test_who_waits_gets_the_place_of_a_discarded_one
    pool = pool(1)
    fiber = nil
    pool.acquire do
      fiber = waiting { pool.acquire { |resource| resource } }
      pool.discard!
    end
    assert_equal :r2, fiber.await
  end

  def test_the_fiber_itself_gets_a_fresh_one_after_it_discarded_its_own
    pool = pool(1)
    pool.acquire do
      pool.discard!
      assert_equal(:r2, pool.acquire { |resource| resource })
      assert_equal(:r2, pool.acquire { |resource| resource })
    end
    assert_equal :r2, pool.acquire { |resource| resource }
    assert_equal 1, pool.size
  end

  def test_only_a_fiber_that_has_one_can_discard_it
    pool = pool(1)
    holding(pool)
    error = assert_raises(FiberError) { pool.discard! }
    assert_includes error.message, Fiber.current.inspect
    twice = pool(1)
    twice.acquire do
      twice.discard!
      assert_raises(FiberError) { twice.discard! }
    end
  end

  def test_fill_makes_all_that_are_missing
    pool = pool(3)
    pool.acquire { nil }
    assert_same pool, pool.fill!
    assert_equal [3, 3, 3], [@made, pool.size, pool.available]
    pool.fill!
    assert_equal 3, @made
    assert_equal :r3, pool.acquire { |resource| resource }
  end

  def test_fill_leaves_those_alone_that_are_in_use
    pool = pool(3)
    holder, = holding(pool)
    pool.fill!
    assert_equal [3, 2], [pool.size, pool.available]
    holder.stop.await
    assert_all_free pool
  end

  def test_a_fill_that_fails_gives_back_what_it_has
    pool = Pool.new(limit: 3) { (@made += 1) == 2 ? raise(Boom) : :made }
    assert_raises(Boom) { pool.fill! }
    assert_equal [1, 3], [pool.size, pool.available]
    pool.fill!
    assert_equal 3, pool.size
  end

  def test_a_fill_that_is_ended_anywhere_gives_back_what_it_has
    cancel_everywhere do |run|
      pool = Pool.new(limit: 3) { snooze; :made }
      used = 0
      run.scenario { pool.acquire { nil }; pool.fill! }
      run.beside { 2.times { pool.acquire { snooze; used += 1 } } }
      run.check do |finished|
        assert_equal 2, used
        assert_all_free pool
        assert_equal 3, pool.size if finished
      end
    end
  end

  # --- closing -------------------------------------------------------------------------------------

  def test_close_disposes_of_idle_ones_now_and_of_the_others_when_they_are_given_back
    pool = pool(3)
    pool.fill!
    holder, = holding(pool)
    closed = []
    refute pool.closed?
    assert_same pool, pool.close { |resource| snooze; closed << resource }
    assert pool.closed?
    assert_equal %i[r2 r1], closed
    assert_equal [1, 0], [pool.size, pool.available]
    holder.stop.await
    assert_equal %i[r2 r1 r3], closed
    assert_equal 0, pool.size
  end

  def test_a_closed_pool_gives_nothing_to_those_who_wait_and_to_those_who_come
    pool = pool(1)
    holder, = holding(pool)
    fibers = [nil, 100].map { |timeout| spin { pool.acquire(timeout: timeout) { flunk } rescue $! } }
    snooze until fibers.all? { |fiber| fiber.state == :waiting }
    pool.close
    fibers.each { |fiber| assert_instance_of Pool::Closed, fiber.await }
    [nil, 0, 100].each { |timeout| assert_raises(Pool::Closed) { pool.acquire(timeout: timeout) { flunk } } }
    assert_equal 0, pool.fill!.available
    holder.stop.await
  end

  def test_the_fiber_that_has_a_resource_goes_on_with_it_after_close
    pool = pool(1)
    pool.acquire do |resource|
      pool.close
      assert_same resource, pool.acquire { |same| same }
      pool.discard!
    end
    assert_equal 0, pool.size
  end

  def test_a_close_that_fails_can_be_called_again
    pool = pool(3).fill!
    closed = []
    assert_raises(Boom) { pool.close { |resource| resource == :r2 ? raise(Boom) : closed << resource } }
    assert_equal [%i[r3], 1], [closed, pool.size]
    pool.close
    assert_equal [%i[r3 r1], 0], [closed, pool.size]
  end

  def test_an_error_while_one_is_closed_is_raised_where_it_is_given_back
    pool = pool(1)
    error = assert_raises(Boom) { pool.acquire { pool.close { raise Boom, 'not closed' } } }
    assert_equal 'not closed', error.message
    assert_empty pool.holders
  end

  # --- as a stand-in -------------------------------------------------------------------------------

  class Connection
    def query(text, limit: nil)
      [text, limit, block_given? ? yield : nil]
    end

    def select(what)
      "selected #{what}"
    end

    private

    def secret; end
  end

  def test_other_methods_are_sent_to_a_resource
    pool = Pool.new(limit: 1) { Connection.new }
    assert_equal ['all', 5, :block], pool.query('all', limit: 5) { :block }
    assert_equal ['all', nil, nil], pool.query('all')
    assert_equal 'selected it', pool.select('it') # a private method of every object
    assert_raises(NoMethodError) { pool.unknown }
    assert_raises(NoMethodError) { pool.secret }
    assert_all_free pool
  end

  def test_it_responds_to_everything_but_what_ruby_asks_for_by_itself
    pool = Pool.new(limit: 1) { [1, 2] }
    assert_respond_to pool, :anything
    refute_respond_to pool, :to_ary
    assert_raises(NoMethodError) { pool.to_ary }
    holding(pool) # whatever is sent to a resource now has to wait
    assert_equal [pool], [pool].flatten
    assert_equal "#<Polyphony::ResourcePool 1 of 1 in use, 1 made, 0 waiting>\n", (+'').then { |text|
      StringIO.new(text).puts(pool)
      text
    }
  end

  # --- threads and processes -----------------------------------------------------------------------

  def test_fibers_of_many_threads_share_it
    heavy
    mutex = Thread::Mutex.new
    inside = most = total = 0
    pool = Pool.new(limit: 3) { Thread.pass; mutex.synchronize { @made += 1 } }
    work = lambda do
      100.times do
        pool.acquire do
          mutex.synchronize { most = [most, inside += 1].max }
          Thread.pass
          mutex.synchronize { inside -= 1; total += 1 }
        end
      end
    end
    threads = Array.new(4) { Thread.new { Array.new(3) { spin(&work) }.each(&:await) } }
    threads.each(&:join)
    assert_equal 1200, total
    assert_operator [most, @made].max, :<=, 3
    assert_equal @made, pool.size
    assert_all_free pool
  end

  # Were a wake lost between looking for one and waiting for it, both would wait for ever.
  def test_no_wake_is_lost_between_two_threads
    heavy
    pool = pool(1)
    turns = Polyphony::Queue.new
    threads = Array.new(2) { Thread.new { 3000.times { pool.acquire { nil } }; turns << :done } }
    assert_equal %i[done done], move_on_after(patient(30)) { [turns.shift, turns.shift] }
    threads.each(&:join)
  end

  def test_a_thread_that_is_killed_gives_its_resource_back
    pool = pool(1)
    thread = Thread.new { pool.acquire { sleep } }
    sleep 0.001 until pool.holders.size == 1
    fiber = waiting { pool.acquire { |resource| resource } }
    thread.kill
    assert_equal :r1, fiber.await
    thread.join
    assert_all_free pool
  end

  def test_a_forked_child_begins_with_an_empty_pool_and_takes_nothing_from_its_parent
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      pool = Polyphony::ResourcePool.new(limit: 2) { Process.pid }
      parent = pool.acquire { |resource| resource }
      spin { pool.acquire { sleep } }
      2.times { snooze }
      Process.wait(fork do
        puts "child: \#{pool.size} made, \#{pool.available} of \#{pool.limit}, held by \#{pool.holders.size}"
        puts "another one: \#{pool.acquire { |resource| resource } != parent}"
        spin { pool.acquire { spin { pool.acquire(timeout: 1) { puts 'both places work' } }.await } }.await
      end)
      puts "parent: \#{pool.size} made, \#{pool.available} of \#{pool.limit}, held by \#{pool.holders.size}"
    RUBY
    assert_equal <<~TEXT, out, err
      child: 0 made, 2 of 2, held by 0
      another one: true
      both places work
      parent: 1 made, 1 of 2, held by 1
    TEXT
  end

  def test_a_fiber_that_forks_within_acquire_keeps_its_resource_out_of_the_childs_pool
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      $stdout.sync = true
      made = 0
      pool = Polyphony::ResourcePool.new(limit: 1) { made += 1 }
      pool.acquire do |resource|
        pid = fork
        if pid
          Process.wait(pid)
        else
          puts "the same: \#{pool.acquire { |again| again == resource }}"
        end
      end
      puts "then: \#{pool.acquire { |other| other }}, \#{pool.available} free"
    RUBY
    assert_equal "the same: true\nthen: 2, 1 free\nthen: 1, 1 free\n", out, err
  end

  def test_a_closed_pool_is_closed_in_a_forked_child
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      pool = Polyphony::ResourcePool.new(limit: 1) { :made }
      pool.close
      Process.wait(fork { pool.acquire { nil } rescue puts $!.class })
    RUBY
    assert_equal "Polyphony::ResourcePool::Closed\n", out, err
  end

  def test_a_deadlock_report_says_that_a_fiber_waits_for_a_resource
    _out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      pool = Polyphony::ResourcePool.new(limit: 1) { :made }
      spin(:holder) { pool.acquire { Polyphony.backend_wait_event(true) } }
      2.times { snooze }
      pool.acquire { nil }
    RUBY
    refute status.success?
    assert_match(/Polyphony::Deadlock/, err)
    assert_match(/\(root\)> waits for a resource of a pool \(#<Polyphony::ResourcePool.*\n    held by #<Fiber holder/, err)
  end

  def test_resources_are_kept_from_the_garbage_collector
    pool = Pool.new(limit: 20) { +"resource #{@made += 1}" }.fill!
    GC.start
    assert_equal 'resource 20', pool.acquire { |resource| resource }
  end

  # --- errors of use -------------------------------------------------------------------------------

  def test_a_limit_is_a_positive_integer
    [0, -1, 1.5, nil, '3'].each do |limit|
      error = assert_raises(ArgumentError, limit.inspect) { Pool.new(limit: limit) { :made } }
      assert_includes error.message, limit.inspect
    end
  end

  def test_blocks_are_needed
    assert_raises(ArgumentError) { Pool.new(limit: 1) }
    assert_raises(ArgumentError) { pool.acquire }
  end

  def test_what_is_no_duration_is_refused_and_nothing_is_taken
    pool = pool(1)
    assert_raises(TypeError) { pool.acquire(timeout: '1') { flunk } }
    assert_raises(ArgumentError) { pool.acquire(timeout: Float::NAN) { flunk } }
    assert_all_free pool
  end

  # --- health -------------------------------------------------------------------------------

  def test_a_resource_that_is_not_healthy_is_replaced
    made = 0
    broken = []
    pool = Polyphony::ResourcePool.new(limit: 1, healthy: ->(n) { !broken.include?(n) }) { made += 1 }
    assert_equal [1, 1], [pool.acquire { |n| n }, pool.acquire { |n| n }]
    broken << 1
    assert_equal 2, pool.acquire { |n| n }
    assert_equal [1, 1], [pool.size, pool.available]
  end

  def test_one_that_has_just_been_made_is_not_asked
    pool = Polyphony::ResourcePool.new(limit: 1, healthy: ->(_) { flunk }) { :new }
    assert_equal :new, pool.acquire { |resource| pool.acquire { resource } }
  end

  def test_asking_may_wait_and_may_fail
    made = 0
    pool = Polyphony::ResourcePool.new(limit: 1, healthy: ->(_) { snooze; raise IOError, 'gone' }) { made += 1 }
    assert_equal [1, 2, 3], Fiber.await(*Array.new(3) { spin { pool.acquire { |n| n } } })
  end

  def test_who_is_stopped_while_it_asks_gives_the_place_back
    pool = Polyphony::ResourcePool.new(limit: 1, healthy: ->(_) { suspend; true }) { :resource }
    pool.acquire { nil }
    assert_nil move_on_after(0.001) { pool.acquire { flunk } }
    assert_equal 1, pool.available
  end

  def test_health_is_something_to_call
    error = assert_raises(ArgumentError) { Polyphony::ResourcePool.new(healthy: true) { 1 } }
    assert_match(/healthy must be something to call.*got true/, error.message)
  end
end
