# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony.stats: what everything does that works beside the fibers.
class TestPoolStats < Polyphony::TestCase
  on_every_driver

  KEYS = %i[threads idle busy waiting largest done].freeze

  def test_it_has_all_pools
    stats = Polyphony.stats
    assert_equal %i[blocking files lookups thread_pools blocking_pools process_pools], stats.keys.last(6)
    stats.values_at(:blocking, :files, :lookups).each { |pool| assert_equal KEYS, pool.keys }
  end

  def test_blocks_in_threads_are_counted
    before = Polyphony.stats[:blocking][:done]
    Polyphony.blocking { assert_operator Polyphony.stats[:blocking][:busy], :>=, 1 }
    snooze until Polyphony.stats[:blocking][:done] > before
    assert_empty Polyphony.stats[:blocking_pools], 'the shared pool is not told twice'
  end

  def test_pools_of_threads_are_there_as_long_as_they_have_threads
    pool = Polyphony::ThreadPool.new(2)
    other = Polyphony::BlockingPool.new
    assert_empty Polyphony.stats[:thread_pools]
    pool.process { assert_equal [1], Polyphony.stats[:thread_pools].map { |it| it[:busy] } }
    other.process { assert_equal [1], Polyphony.stats[:blocking_pools].map { |it| it[:busy] } }
    [pool, other].each(&:stop)
    assert_empty Polyphony.stats.values_at(:thread_pools, :blocking_pools).flatten
  end

  def test_process_pools_are_there_until_they_are_stopped
    Polyphony::ProcessPool.open(1) do |pool|
      assert_equal [pool.stats], Polyphony.stats[:process_pools]
    end
    assert_empty Polyphony.stats[:process_pools]
  end

  def test_threads_in_c_are_counted
    before = Polyphony.stats[:lookups][:done]
    Addrinfo.tcp('localhost', 80).getnameinfo
    Socket.getnameinfo(['AF_INET', 80, 'localhost', '127.0.0.1'])
    assert_operator Polyphony.stats[:lookups][:done], :>, before
  end

  # In a process of its own: the largest number of threads there was is that of the process.
  def test_the_settings_of_the_shared_pool_hold_for_threads_in_c_too
    out, err = run_ruby(<<~RUBY)
      require 'polyphony'
      require 'socket'
      pool = Polyphony.blocking_pool
      pool.cap = 2
      20.times { spin { Addrinfo.tcp('127.0.0.1', 80).getnameinfo } }
      10.times { spin { pool.process { IO.select(nil, nil, nil, 0.001) } } }
      Fiber.current.await_all_children
      p Polyphony.stats.values_at(:lookups, :blocking).map { |it| [it[:done], it[:largest] <= 2] }
      pool.idle_time = 0.01
      sleep 0.001 until Polyphony.stats.values_at(:lookups, :blocking).all? { |it| it[:threads].zero? }
      pool.cap = nil
      Addrinfo.tcp('127.0.0.1', 80).getnameinfo
      p Polyphony.stats[:lookups][:done], pool.class
    RUBY
    assert_equal ["[[20, true], [10, true]]\n21\nPolyphony::BlockingPool\n", ''], [out, err]
  end

  def test_a_forked_child_begins_with_nothing
    pool = Polyphony::ThreadPool.new(1)
    pool.process { 1 }
    reader, writer = pipe_pair
    child = Process.fork { writer << Marshal.dump(Polyphony.stats) }
    Process.wait(child)
    writer.close
    stats = Marshal.load(reader.read)
    assert_empty stats.values_at(:thread_pools, :blocking_pools, :process_pools).flatten
    assert_equal [0], stats.values_at(:blocking, :files, :lookups).flat_map { |it| it.values_at(:threads, :done) }.uniq
  ensure
    pool.stop
  end
end
