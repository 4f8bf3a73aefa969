# frozen_string_literal: true

require_relative '../support/orm_case'
require 'polyphony/testing'
require_relative '../support/kills'
require 'tmpdir'

# Active Record with PostgreSQL and SQLite: the pool, leases, transactions, what is cancelled.
class TestActiveRecord < Polyphony::OrmCase
  include Polyphony::Testing::CancelEverywhere
  extend Polyphony::Kills

  gems 'pg', 'sqlite3', 'active_record', 'polyphony/adapters/active_record'

  if defined?(ActiveRecord)
    class Record < ActiveRecord::Base
      self.abstract_class = true
    end

    class Thing < Record
    end
  end

  def teardown
    Fiber.current.shutdown_all_children
    Record.connection_pool.disconnect! if @connected
    Record.remove_connection if @connected
    super
  end

  # The pool -----------------------------------------------------------------------------------

  def test_state_belongs_to_fibers
    assert_equal :fiber, ActiveSupport::IsolatedExecutionState.isolation_level
  end

  test_where_it_yields('pg', :a_query_yields) do
    connect
    lock
    assert_equal 42, assert_yields(-> { unlock }) { ask }
  end

  test_in_both(:waiting_for_a_connection_yields) do
    connect(pool: 1)
    free = Polyphony::Event.new
    holder = spin { Record.with_connection { free.await } }
    snooze
    assert_equal 1, assert_yields(-> { free.signal }) { value(1) }
    holder.await
  end

  def test_many_fibers_share_a_few_connections_in_order_of_arrival
    connect(pool: 5, checkout_timeout: 30)
    served = []
    Fiber.await(Array.new(200) { |i| spin { Record.with_connection { |connection| served << i; assert_equal i, connection.select_value("select #{i}") } } })
    assert_equal (0...200).to_a, served
    assert_equal [5, 0, 0], stat(:connections, :busy, :waiting)
  end

  # Told, but not yet past the lock of the pool.
  def test_a_thread_that_is_killed_when_a_connection_comes_leaves_it_to_the_next
    connect(pool: 1, checkout_timeout: 30)
    Record.lease_connection
    first = Thread.new { value(0) }
    await_that { stat(:waiting) == 1 }
    second = spin { value(1) }
    await_that { stat(:waiting) == 2 }
    pool.synchronize do
      Record.release_connection
      first.kill
    end
    assert_equal 1, cancel_after(10) { second.await }
    first.join
    assert_equal [0, 0], stat(:busy, :waiting)
  end

  def test_five_hundred_fibers_at_once_get_their_own_rows
    connect(pool: 20, checkout_timeout: 30)
    assert_equal (0...500).to_a, Fiber.await(Array.new(500) { |i| spin { value(i) } })
    assert_equal 0, stat(:busy)
  end

  def test_an_exhausted_pool_names_the_holders
    connect(pool: 2, checkout_timeout: 0.02)
    holders = Array.new(2) { |i| spin(:"holder#{i}") { Record.lease_connection; sleep } }
    snooze
    error = assert_raises(ActiveRecord::ConnectionTimeoutError) { value(1) }
    assert_match(/\Acould not obtain a connection from the pool within 0\.020 seconds/, error.message)
    2.times { |i| assert_match(/^  #<Fiber holder#{i}:\d+ .*> has one for \d\.\d s, spun at .*test_active_record\.rb:\d+$/, error.message) }
    assert_same pool, error.connection_pool
    assert_equal holders, pool.holders.map(&:first).sort_by(&:tag)
    holders.each(&:stop)
    Fiber.await(holders)
    assert_equal 1, value(1)
  end

  def test_threads_share_the_pool
    connect(pool: 2, checkout_timeout: 30)
    results = Array.new(4) { |t| Thread.new { Fiber.await(Array.new(10) { |i| spin { value((10 * t) + i) } }) } }.flat_map(&:value)
    assert_equal (0...40).to_a, results.sort
    assert_equal 0, stat(:busy)
  end

  # The ends of fibers -----------------------------------------------------------------------------

  ENDS = {
    returned: ->(fiber) { fiber.schedule }, stopped: ->(fiber) { fiber.stop }, failed: ->(fiber) { fiber.raise IOError }
  }.freeze

  ENDS.each do |name, finish|
    define_method("test_a_fiber_that_#{name}_gives_its_lease_back_to_who_waits") do
      connect(pool: 1, checkout_timeout: 30)
      ready = Polyphony::Event.new
      leasing = spin { assert_equal 1, Record.lease_connection.select_value('select 1'); ready.signal; suspend }
      ready.await
      waiting = spin { value(2) }
      await_that { stat(:waiting) == 1 }
      finish.call(leasing)
      name == :failed ? assert_raises(IOError) { leasing.await } : leasing.await
      assert_equal 2, waiting.await
      assert_equal 0, stat(:busy)
    end
  end

  def test_what_was_checked_out_by_hand_comes_back_too
    connect(pool: 2)
    spin { 2.times { pool.checkout } }.await
    assert_equal [0, 0, 2], stat(:busy, :dead, :idle)
  end

  def test_a_lease_with_an_open_transaction_is_rolled_back
    with_table do
      spin { Record.lease_connection.begin_transaction; Thing.create!(a: 1) }.await
      await_that { stat(:busy, :dead) == [0, 0] }
      assert_equal [0, 0], [Thing.count, stat(:busy)]
    end
  end

  def test_a_fiber_that_gave_everything_back_is_as_new
    connect
    spin { value(1); assert_empty Fiber.current.__monitors.to_a }.await
  end

  def test_a_generator_that_ends_gives_its_lease_back
    connect(pool: 1)
    generator = Fiber.new { Record.lease_connection; nil }
    generator.resume
    assert_equal 1, value(1)
  end

  def test_leases_of_fibers_of_several_threads_come_back
    connect(pool: 2, checkout_timeout: 30)
    threads = Array.new(3) do
      Thread.new { Fiber.await(Array.new(20) { |i| spin { move_on_after(0.002 * i) { Record.lease_connection; snooze } } }) }
    end
    threads.each(&:join)
    await_that { stat(:busy, :dead) == [0, 0] } # where another thread had the lock, a little later
    assert_equal [0, 1, 2], Fiber.await(Array.new(3) { |i| spin { value(i) } })
  end

  def test_a_thread_that_ends_gives_its_lease_back
    connect(pool: 1)
    Thread.new { sleep 0.001; Record.lease_connection }.join
    assert_equal 1, value(1)
    assert_equal [1, 0], stat(:connections, :busy)
  end

  def test_the_reaper_takes_from_the_dead_what_is_in_the_middle_of_a_query
    connect(pool: 1)
    lock
    asking = Fiber.new { Record.lease_connection.raw_connection.send_query(WAITING); Fiber.yield }
    asking.resume
    asking.define_singleton_method(:alive?) { false }
    Thread.new { pool.reap }.join
    unlock
    assert_equal 1, value(1)
  end

  # In a child: the thread stays.
  def test_the_reaper_runs_beside_fibers
    cluster
    child = Polyphony.fork do
      connect(pool: 1, reaping_frequency: 0.01, idle_timeout: 0.01)
      left = Fiber.new { Record.lease_connection; Fiber.yield }
      left.resume
      left.define_singleton_method(:alive?) { false }
      await_that { stat(:connections).zero? }
      exit!(value(1) == 1 ? 0 : 1)
    end
    assert_predicate ::Process.wait2(child).last, :success?
  end

  # What is cancelled ----------------------------------------------------------------------------

  def test_a_query_that_is_broken_off_leaves_nothing_to_the_next
    connect(pool: 1)
    lock
    asking = spin { ask }
    await_waiting
    asking.stop
    asking.await
    assert_equal 1, spin { value(1) }.await
    unlock
    assert_equal [2, 3], [spin { value(2) }.await, value(3)]
  end

  def test_a_lease_can_be_used_again_after_a_time_limit
    connect(pool: 1)
    lock
    spin do
      connection = Record.lease_connection
      assert_nil(move_on_after(0.02) { connection.select_value(WAITING) })
      assert_equal 5, connection.select_value('select 5')
    end.await
    unlock
  end

  def test_a_stopped_transaction_is_rolled_back
    with_table do
      written = Polyphony::Event.new
      writing = spin { Thing.transaction { Thing.create!(a: 1); written.signal; sleep } }
      written.await
      writing.stop
      writing.await
      assert_equal [0, 0], [Thing.count, stat(:busy)]
    end
  end

  test_killed(:a_transaction_is_rolled_back) do |way|
    with_table do
      way.call(->(pause) { Thing.transaction { Thing.create!(a: 1); Thing.transaction(requires_new: true) { Thing.create!(a: 2); pause.call } } })
      assert_equal 0, Thing.count
      assert_equal '0', postgres.exec("select count(*) from pg_stat_activity where state like 'idle in transaction%'").getvalue(0, 0)
    end
  end

  def test_a_transaction_stopped_in_a_query_is_rolled_back
    with_table do
      lock
      writing = spin { Thing.transaction { Thing.create!(a: 1); Thing.transaction(requires_new: true) { Thing.create!(a: 2); ask } } }
      await_waiting
      writing.stop(:stopped)
      assert_equal :stopped, writing.await
      unlock
      assert_equal [0, 0], [Thing.count, stat(:busy)]
    end
  end

  def test_after_a_time_limit_inside_a_transaction_nothing_is_done_outside_of_it
    with_table do
      lock
      spin do
        assert_raises(ActiveRecord::StatementInvalid) do
          Thing.transaction do
            Thing.create!(a: 1)
            assert_raises(Timeout::Error) { Timeout.timeout(0.05) { ask } }
            Thing.create!(a: 2)
          end
        end
      end.await
      unlock
      assert_equal [0, 0], [Thing.count, stat(:busy)]
    end
  end

  def test_a_stop_while_connecting_is_a_stop
    server = TCPServer.new('127.0.0.1', 0)
    connect(host: '127.0.0.1', port: server.local_address.ip_port, pool: 1)
    connecting = spin { value(1) }
    client = server.accept
    snooze
    connecting.stop(:stopped)
    assert_equal :stopped, connecting.await
    assert_equal 0, stat(:busy)
  ensure
    [client, server].each { |io| io&.close }
  end

  # Some versions of Active Record 7.2 would use it without knowing the types of the server.
  def test_a_stop_while_a_connection_is_set_up_leaves_none_that_is_half_ready
    connect(pool: 1)
    points = cancel_everywhere(turns: 1_000_000) do |run|
      run.scenario { pool.disconnect!; value(1) }
      run.check { assert_equal [0, 2], [stat(:busy), value(2)] }
    end
    assert_operator points, :>, 4
  end

  def test_cancelling_at_every_wait_point_leaks_no_connection_and_shows_nobody_elses_rows
    connect(pool: 2)
    points = cancel_everywhere(turns: 1_000_000) do |run|
      run.scenario { Record.transaction { value(1); value(2) } }
      run.beside { assert_equal 3, value(3) }
      run.check do
        assert_equal [0, 0], stat(:busy, :dead)
        assert_empty left_open, 'a transaction that nobody knows of: what others write on that connection is lost'
        assert_equal [4, 5], Fiber.await(Array.new(2) { |i| spin { value(4 + i) } })
      end
    end
    assert_operator points, :>, 4
  end

  # @return [Array<Integer>] states of the connections that the server takes for being in a transaction
  def left_open
    Record.connection_pool.connections.filter_map do |connection|
      state = connection.instance_variable_get(:@raw_connection)&.transaction_status
      state if state&.positive?
    end
  end

  # Stopped when the server has begun the transaction, and its answer is there.
  def test_a_begin_that_is_stopped_when_it_is_done_leaves_no_transaction_behind
    connect(pool: 1)
    Record.with_connection { |connection| connection.execute('create table if not exists begun (n int); truncate begun') }
    stopped = spin { Record.transaction { value(1); suspend } }
    snooze # it runs, up to where it waits for the answer
    snooze until stopped.state == :runnable
    stopped.stop
    stopped.await
    Record.with_connection { |connection| connection.execute('insert into begun values (1)') }
    assert_equal '1', postgres.exec('select count(*) from begun').getvalue(0, 0), 'written, and not committed'
  ensure
    Record.connection_pool.disconnect! # with what it may have locked
    postgres.exec('drop table if exists begun')
  end

  def test_random_programs_with_cancels_see_their_own_rows
    connect(pool: 3, checkout_timeout: 30)
    random = Random.new(Minitest.seed || 1)
    workers = Array.new(40) do |i|
      spin do
        6.times do |j|
          number = (100 * i) + j
          got = move_on_after(random.rand * 0.01) { Record.transaction { value("#{number} + 0 * length(pg_sleep(0.002)::text)") } }
          assert_includes [nil, number], got
        end
      end
    end
    Fiber.await(workers)
    assert_equal [0, 0], stat(:busy, :dead)
    assert_equal [1, 2, 3], Fiber.await((1..3).map { |i| spin { value(i) } })
  end

  def test_a_second_fiber_on_the_same_connection_is_told
    connect
    lock
    Record.lease_connection
    asking = spin(:asking) { Record.with_connection { |connection| @connection = connection; ask } }
    await_waiting
    error = assert_raises(Polyphony::Adapters::ConnectionInUse) { @connection.select_value('select 1') }
    assert_match(/PostgreSQLAdapter \d+ is in use by .*asking/, error.message)
    unlock
    assert_equal 42, asking.await
  end

  # What goes wrong -------------------------------------------------------------------------------

  def test_a_session_that_was_ended_is_replaced
    connect(pool: 1)
    lock
    broken = spin { assert_raises(ActiveRecord::StatementInvalid) { Record.transaction { value(0); ask } } }
    await_waiting
    postgres.exec_params('select pg_terminate_backend(pid) from pg_locks where locktype = $1 and not granted', ['advisory'])
    broken.await
    unlock
    assert_equal 1, spin { value(1) }.await
    assert_equal 0, stat(:busy)
  end

  def test_a_server_that_is_killed_and_comes_back
    server = Polyphony::OrmCase.expendable
    connect(**server.tcp_settings.transform_keys(dbname: :database, user: :username), pool: 2, checkout_timeout: 30)
    asking = Array.new(5) { spin { assert_raises(ActiveRecord::ActiveRecordError) { value('length(pg_sleep(20)::text)') } } }
    await_that { stat(:waiting) == 3 && pool.connections.all?(&:connected?) }
    sleep 0.01
    server.kill
    Fiber.await(asking)
    server.start
    assert_equal [0, 1, 2], Fiber.await(Array.new(3) { |i| spin { value(i) } })
    assert_equal 0, stat(:busy)
  end

  def test_a_frozen_server_does_not_hold_a_stopped_fiber
    server = Polyphony::OrmCase.expendable
    connect(**server.settings.transform_keys(dbname: :database, user: :username), pool: 1, checkout_timeout: 0.2)
    asked = Polyphony::Event.new
    fiber = spin { Record.transaction { Record.transaction(requires_new: true) { value(1); asked.signal; sleep } } }
    asked.await
    server.frozen do
      fiber.stop
      cancel_after(10) { fiber.await }
      assert_equal 0, stat(:busy)
    end
    assert_equal 1, value(1)
  end

  def test_a_query_to_a_frozen_server_has_a_time_limit
    connect(**Polyphony::OrmCase.expendable.settings.transform_keys(dbname: :database, user: :username), pool: 1)
    assert_equal 1, value(1)
    Polyphony::OrmCase.expendable.frozen do
      assert_equal [nil, nil], Fiber.await(Array.new(2) { spin { move_on_after(0.05) { value(1) } } })
      assert_equal 0, stat(:busy)
    end
    assert_equal 1, value(1)
  end

  # What Active Record offers ----------------------------------------------------------------------

  def test_asynchronous_queries
    with_table do
      Thing.create!(a: 1)
      ActiveRecord.async_query_executor = :multi_thread_pool
      connect(pool: 4, min_threads: 2, max_threads: 2)
      lock
      things = Array.new(2) { Thing.from("(#{WAITING}) as waited, things").select('things.*, answer').load_async }
      await_waiting(2)
      assert_equal [42, 42], assert_yields(-> { unlock }) { things.map { |relation| relation.first.answer } }
    ensure
      ActiveRecord.async_query_executor = nil
      pool.async_executor.shutdown
      pool.async_executor.wait_for_termination(10)
    end
  end

  def test_the_query_cache_belongs_to_the_fiber
    with_table do
      value(1)
      Record.cache do
        assert_equal 0, Thing.count
        spin { Thing.create!(a: 1); assert_equal 1, Thing.count }.await
        assert_equal 0, Thing.count
        assert_equal 1, Thing.uncached { Thing.count }
      end
    end
  end

  def test_a_forked_child_has_connections_of_its_own
    connect(pool: 1)
    mine = value('pg_backend_pid()')
    reader, writer = IO.pipe
    child = Polyphony.fork { writer.puts(value('pg_backend_pid()')) }
    writer.close
    ::Process.wait(child)
    refute_equal mine, Integer(reader.read)
    assert_equal mine, value('pg_backend_pid()')
  ensure
    [reader, writer].each { |io| io&.close }
  end

  def test_disconnecting_waits_for_those_who_have_one
    connect(pool: 2)
    free = Polyphony::Event.new
    holder = spin { Record.with_connection { free.await } }
    snooze
    assert_yields(-> { free.signal }) { pool.disconnect }
    holder.await
    assert_equal 0, stat(:connections)
    assert_equal 1, value(1)
  end

  def test_a_pinned_connection_is_used_by_all_fibers_in_turn
    connect
    pool.pin_connection!(true)
    assert_equal [1, 2, 3], Fiber.await((1..3).map { |i| spin { value(i) } })
  ensure
    pool.unpin_connection!
  end

  def test_sqlite
    Dir.mktmpdir do |folder|
      connect(adapter: 'sqlite3', database: File.join(folder, 'things.db'), pool: 2)
      Record.with_connection { |connection| connection.create_table(:things) { |t| t.integer :a } }
      Thing.reset_column_information
      Fiber.await(Array.new(20) { |i| spin { Thing.create!(a: i) } })
      assert_equal [20, 190], [Thing.count, Thing.sum(:a)]
      stopped = spin { Thing.transaction { Thing.create!(a: 1000); sleep } }
      await_that { stat(:busy) == 1 && stopped.state == :waiting }
      stopped.stop
      stopped.await
      assert_equal [19, 0], [Thing.maximum(:a), stat(:busy)]
      disconnect
    end
  end

  test_with_sqlite_adapter(:a_long_statement_is_stopped_and_its_transaction_rolled_back) do
    connect(adapter: 'sqlite3', database: ':memory:', pool: 1)
    Record.with_connection { |connection| connection.create_table(:things) { |t| t.integer :a } }
    Thing.reset_column_information
    assert_nil(move_on_after(0.05) { Thing.transaction { Thing.create!(a: 1); Record.with_connection { |connection| connection.select_value(LONG) } } })
    assert_equal [0, 0], [Thing.count, stat(:busy)]
  end

  def test_the_example_runs
    assert_match(/stopped: nothing was written: true/, output_of("load 'examples/active_record.rb'"))
  end

  def test_it_is_loaded_by_itself
    program = "require 'polyphony/adapters/auto'; require 'active_record'; ActiveRecord::Base; " \
              'puts ActiveRecord::ConnectionAdapters::ConnectionPool.ancestors.first, ActiveSupport::IsolatedExecutionState.isolation_level'
    assert_match(/^Polyphony::Adapters::ActiveRecord::Pool\nfiber$/, output_of(program))
  end

  private

  def connect(**options)
    settings = { adapter: 'postgresql', **cluster.settings.transform_keys(dbname: :database, user: :username), variables: { statement_timeout: '20s' },
                 reaping_frequency: 0 } # a thread with descriptors of its own, see the test of the reaper
    Record.establish_connection(**settings, **options)
    @connected = true
  end

  def disconnect
    pool.disconnect!
  end

  def pool
    Record.connection_pool
  end

  def value(sql)
    Record.with_connection { |connection| connection.select_value("select #{sql}") }
  end

  def ask
    Record.with_connection { |connection| connection.select_value(WAITING) }
  end

  def stat(*names)
    all = pool.stat
    names.size == 1 ? all.fetch(names.first) : all.values_at(*names)
  end

  def with_table
    connect(pool: 2)
    postgres.exec('drop table if exists things; create table things (id serial primary key, a int)')
    Thing.reset_column_information
    yield
  ensure
    postgres.exec('drop table if exists things')
  end
end
