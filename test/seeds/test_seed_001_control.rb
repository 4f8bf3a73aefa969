# frozen_string_literal: true

require_relative 'seed_case'

# Programs of the "Overview" about restarting, choosing, supervising, and pools.
class TestSeed001Control < Polyphony::SeedCase
  on_every_driver

  def test_a_fiber_is_stopped_and_restarted
    assert_prints <<~OUT, <<~'RUBY'
      going to sleep
      stopped
      going to sleep
      done sleeping
      stopped
    OUT
      f = spin do
        puts 'going to sleep'
        sleep 0.1
        puts 'done sleeping'
      ensure
        puts 'stopped'
      end

      sleep 0.05
      f.stop
      f.restart
      f.await
    RUBY
  end

  def test_select_returns_the_first_fiber_to_end_and_its_result
    urls = %w[slow quick slower]
    fibers = urls.map { |url| spin { sleep(url == 'quick' ? 0.001 : 10); [url, "page of #{url}"] } }
    assert_equal [fibers[1], ['quick', 'page of quick']], Fiber.select(*fibers)
  end

  def test_supervise_waits_and_passes_on_the_error_of_a_child
    assert_prints "fiber2 is done\nfoo\n", <<~'RUBY'
      fiber1 = spin { sleep 0.03; raise 'foo' }
      fiber2 = spin { sleep 0.01; puts 'fiber2 is done' }

      begin
        supervise
        puts 'never'
      rescue => e
        puts e.message
      end
    RUBY
  end

  def test_supervise_returns_when_all_children_have_ended
    assert_prints "one\ntwo\ndone\n", <<~'RUBY'
      spin { sleep 0.01; puts 'one' }
      spin { sleep 0.02; puts 'two' }
      supervise
      puts 'done'
    RUBY
  end

  def test_a_resource_of_a_pool_is_used_by_one_fiber_at_a_time
    opened = 0
    pool = Polyphony::ResourcePool.new(limit: 5) { opened += 1 }
    in_use = Hash.new(0)
    most = 0
    query = lambda do |sql|
      pool.acquire do |db|
        assert_equal 1, in_use[db] += 1
        most = [most, in_use.values.sum].max
        sleep 0.001
        in_use[db] -= 1
        "rows of #{sql}"
      end
    end
    fibers = Array.new(20) { |i| spin { query.call(i) } }
    assert_equal Array.new(20) { |i| "rows of #{i}" }, Fiber.await(*fibers)
    assert_equal [5, 5], [opened, most]
  end

  def test_a_throttler_holds_back_several_fibers_together
    throttler = Polyphony::Throttler.new(200)
    sent = []
    fibers = Array.new(5) { |i| spin { throttler.process { sent << [i, clock] } } }
    started = clock
    Fiber.await(*fibers)
    assert_equal [0, 1, 2, 3, 4], sent.map(&:first).sort
    assert_operator clock - started, :>=, 4 * 0.005 - 0.001
  end

  def test_a_thread_pool_takes_a_call_that_would_block_all_fibers
    assert_prints "rows of select 1\nothers ran: true\n", <<~'RUBY'
      # Blocks its thread, as SQLite does.
      class Database
        def execute(sql)
          Thread.pass until $gate.closed?
          "rows of #{sql}"
        end
      end

      class Database
        THREAD_POOL = Polyphony::ThreadPool.new

        alias_method :orig_execute, :execute
        def execute(sql, *args)
          THREAD_POOL.process { orig_execute(sql, *args) }
        end
      end

      $gate = Polyphony::Queue.new
      ran = false
      spin { ran = true; $gate.close } # the call does not return before this has run
      puts Database.new.execute('select 1')
      puts "others ran: #{ran}"
    RUBY
  end
end
