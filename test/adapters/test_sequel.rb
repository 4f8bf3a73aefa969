# frozen_string_literal: true

require_relative '../support/orm_case'
require 'tmpdir'
require 'polyphony/testing'
require_relative '../support/kills'

# Sequel with PostgreSQL and SQLite: the pool, transactions, what is cancelled.
class TestSequel < Polyphony::OrmCase
  include Polyphony::Testing::CancelEverywhere
  extend Polyphony::Kills

  gems 'pg', 'sqlite3', 'sequel', 'polyphony/adapters/sequel'

  def setup
    super
    @databases = []
  end

  def teardown
    @databases.each(&:disconnect)
    @databases.each { |database| Sequel.synchronize { Sequel::DATABASES.delete(database) } }
    super
  end

  # The pool -----------------------------------------------------------------------------------

  def test_connect_makes_a_pool_for_fibers
    assert_instance_of Polyphony::FiberConnectionPool, pg.pool
    assert_equal 4, pg.pool.max_size
    assert_equal :single, connect(single_threaded: true).pool.pool_type
    assert_equal :threaded, connect(pool_class: :threaded).pool.pool_type
    assert_raises(Sequel::Error) { connect(max_connections: 0) }
  end

  test_where_it_yields('pg', :a_query_yields) do
    lock
    assert_equal 42, assert_yields(-> { unlock }) { pg.get_answer }
  end

  test_in_both(:waiting_for_a_connection_yields) do
    db = pg(max_connections: 1)
    free = Polyphony::Event.new
    holder = spin { db.synchronize { free.await } }
    snooze
    assert_equal 1, assert_yields(-> { free.signal }) { db.get(1) }
    holder.await
  end

  def test_many_fibers_share_a_few_connections_in_order_of_arrival
    db = pg(max_connections: 5, pool_timeout: 30, preconnect: true)
    served = []
    Fiber.await(Array.new(200) { |i| spin { db.synchronize { served << i; assert_equal i, db.get(i) } } })
    assert_equal (0...200).to_a, served
    assert_operator db.pool.size, :<=, 5
    assert_empty db.pool.holders
  end

  def test_the_pool_tells_which_connections_are_in_use
    db = pg(max_connections: 2)
    db.synchronize do |connection|
      assert_equal [connection], db.pool.allocated.values
      assert_empty db.pool.available_connections.to_a
    end
    assert_empty db.pool.allocated.values
    assert_equal 1, db.pool.available_connections.to_a.size
  end

  def test_five_hundred_fibers_at_once_get_their_own_rows
    db = pg(max_connections: 20, pool_timeout: 30)
    assert_equal (0...500).to_a, Fiber.await(Array.new(500) { |i| spin { db.get(i) } })
    assert_equal 0, db.pool.num_waiting
  end

  def test_a_fiber_keeps_its_connection_within_the_block
    db = pg(max_connections: 1)
    db.synchronize do |outer|
      db.synchronize { |inner| assert_same outer, inner }
      db.transaction { assert_same outer, db.synchronize(&:itself) }
    end
  end

  def test_an_exhausted_pool_names_the_holders
    db = pg(max_connections: 2, pool_timeout: 0.02, name: 'books')
    holders = Array.new(2) { |i| spin(:"holder#{i}") { db.synchronize { sleep } } }
    snooze
    error = assert_raises(Sequel::PoolTimeout) { db.get(1) }
    assert_match(/\Atimeout: 0\.02, elapsed: 0\.\d+, server: default, database name: books: all 2 connections are in use$/, error.message)
    assert_match(/^  #<Fiber holder0:\d+ .*test_sequel\.rb:\d+> has one for \d\.\d s, spun at .*test_sequel\.rb:\d+$/, error.message)
    assert_match(/holder1/, error.message)
    holders.each(&:stop)
    Fiber.await(holders)
    assert_equal 1, db.get(1)
  end

  def test_threads_share_the_pool
    db = pg(max_connections: 2, pool_timeout: 30)
    results = Array.new(4) { |t| Thread.new { Fiber.await(Array.new(10) { |i| spin { db.get((10 * t) + i) } }) } }.flat_map(&:value)
    assert_equal (0...40).to_a, results.sort
    assert_operator db.pool.size, :<=, 2
  end

  def test_fibers_of_several_threads_are_cancelled_while_they_wait
    db = pg(max_connections: 2, pool_timeout: 30)
    threads = Array.new(3) do
      Thread.new { Fiber.await(Array.new(20) { |i| spin { move_on_after(0.001 * i) { db.synchronize { snooze } } } }) }
    end
    threads.each(&:join)
    assert_empty db.pool.holders
    assert_equal [0, 1, 2], Fiber.await(Array.new(3) { |i| spin { db.get(i) } })
  end

  def test_a_connection_that_cannot_be_made_leaves_its_place
    db = connect(host: '/nowhere', max_connections: 1, test: false)
    2.times { assert_raises(Sequel::DatabaseConnectionError) { db.get(1) } }
    assert_equal 0, db.pool.size
    assert_empty db.pool.holders
  end

  def test_a_connection_of_a_fiber_that_was_never_unwound_is_reclaimed
    db = pg(max_connections: 1)
    left = Fiber.new { db.synchronize { Fiber.yield } }
    left.resume
    left.define_singleton_method(:alive?) { false } # as one of a thread that is gone
    assert_equal 1, db.get(1)
  end

  def test_a_generator_has_a_connection_of_its_own
    db = pg
    db.synchronize do |mine|
      generator = Fiber.new { db.synchronize { |other| refute_same mine, other } }
      generator.resume
    end
    assert_empty db.pool.holders
  end

  # What is cancelled ----------------------------------------------------------------------------

  def test_a_query_that_is_broken_off_leaves_nothing_to_the_next
    db = pg(max_connections: 1)
    lock
    asking = spin { db.get_answer }
    await_waiting
    asking.stop
    asking.await
    assert_equal 1, spin { db.get(1) }.await
    unlock
    assert_equal [2, 3], [spin { db.get(2) }.await, db.get(3)]
    assert_equal 1, db.pool.size
  end

  def test_a_stopped_transaction_is_rolled_back
    with_table do |db|
      waiting = Polyphony::Event.new
      writing = spin { db.transaction { db[:things].insert(a: 1); waiting.signal; sleep } }
      waiting.await
      writing.stop
      writing.await
      assert_equal 0, db[:things].count
    end
  end

  test_killed(:a_transaction_is_rolled_back) do |way|
    with_table do |db|
      way.call(->(pause) { db.transaction { db[:things].insert(a: 1); db.transaction(savepoint: true) { db[:things].insert(a: 2); pause.call } } })
      assert_equal [0, []], [db[:things].count, db.pool.holders]
      assert_equal 0, sessions_in_transaction
    end
  end

  def test_a_transaction_stopped_in_a_query_is_rolled_back
    with_table do |db|
      lock
      writing = spin { db.transaction { db[:things].insert(a: 1); db.transaction(savepoint: true) { db.get_answer } } }
      await_waiting
      writing.stop(:stopped)
      assert_equal :stopped, writing.await
      unlock
      await_that { db[:things].count.zero? && sessions_in_transaction.zero? }
    end
  end

  def test_after_a_time_limit_inside_a_transaction_nothing_more_is_done_in_it
    with_table do |db|
      lock
      spin do
        assert_raises(Sequel::DatabaseError) do
          db.transaction do
            db[:things].insert(a: 1)
            assert_raises(Timeout::Error) { Timeout.timeout(0.05) { db.get_answer } }
            mark_as_interrupted_without_a_driver_adapter(db)
            db[:things].insert(a: 2)
          end
        end
      end.await
      unlock
      assert_equal 0, db[:things].count
    end
  end

  def test_a_stop_while_connecting_is_a_stop
    server = TCPServer.new('127.0.0.1', 0)
    db = connect(host: '127.0.0.1', port: server.local_address.ip_port, test: false, max_connections: 1)
    connecting = spin { db.get(1) }
    client = server.accept
    snooze
    connecting.stop(:stopped)
    assert_equal :stopped, connecting.await
    assert_empty db.pool.holders
  ensure
    [client, server].each { |io| io&.close }
  end

  def test_cancelling_at_every_wait_point_leaks_no_connection_and_shows_nobody_elses_rows
    db = pg(max_connections: 2)
    points = cancel_everywhere(turns: 1_000_000) do |run|
      run.scenario { db.transaction { db.get(1); db.get(2) } }
      run.beside { assert_equal 3, db.get(3) }
      run.check do
        assert_empty db.pool.holders
        db.pool.all_connections { |raw| assert_equal PG::PQTRANS_IDLE, raw.transaction_status, 'a transaction that nobody knows of' }
        assert_equal [4, 5], Fiber.await(Array.new(2) { |i| spin { db.get(4 + i) } })
      end
    end
    assert_operator points, :>, 4
  end

  # If the server has prepared a statement and Sequel does not know, nobody can use that name on that connection any more.
  def test_a_named_statement_that_is_stopped_while_it_is_prepared_can_be_prepared_again
    db = pg(max_connections: 1)
    count = 0
    points = cancel_everywhere(turns: 1_000_000) do |run|
      statement = db["select ?::int as a, #{count += 1}", :$a].prepare(:select, :"statement_#{count}")
      run.scenario { statement.call(a: 1) }
      run.check { assert_equal [2], statement.call(a: 2).map { |row| row[:a] } }
    end
    assert_operator points, :>, 4
  end

  def test_random_programs_with_cancels_see_their_own_rows
    db = pg(max_connections: 3, pool_timeout: 30)
    random = Random.new(Minitest.seed || 1)
    workers = Array.new(40) do |i|
      spin do
        6.times do |j|
          number = (100 * i) + j
          got = move_on_after(random.rand * 0.01) { db.transaction { db.get(Sequel.lit("#{number} + 0 * length(pg_sleep(0.002)::text)")) } }
          assert_includes [nil, number], got
        end
      end
    end
    Fiber.await(workers)
    assert_empty db.pool.holders
    assert_equal [1, 2, 3], Fiber.await((1..3).map { |i| spin { db.get(i) } })
  end

  def test_kept_connections_are_those_without_a_word_to_come
    db = pg(max_connections: 1)
    first = db.synchronize(&:backend_pid)
    assert_raises(IOError) { db.synchronize { raise IOError } }
    assert_equal first, db.synchronize(&:backend_pid)
    db.synchronize { |connection| connection.send_query('select 1') }
    refute_equal first, db.synchronize(&:backend_pid)
  end

  # What goes wrong -------------------------------------------------------------------------------

  def test_a_session_that_was_ended_is_replaced
    db = pg(max_connections: 1)
    lock
    asking = spin { assert_raises(Sequel::DatabaseDisconnectError) { db.get_answer } }
    await_waiting
    postgres.exec_params('select pg_terminate_backend(pid) from pg_locks where locktype = $1 and not granted', ['advisory'])
    asking.await
    unlock
    assert_equal 1, spin { db.get(1) }.await
  end

  def test_a_socket_that_was_cut_is_replaced
    db = pg(max_connections: 1)
    lock
    asking = spin { assert_raises(Sequel::DatabaseDisconnectError) { db.synchronize { |connection| @io = connection.socket_io; db.get_answer } } }
    await_waiting
    BasicSocket.for_fd(@io.fileno).tap { |socket| socket.autoclose = false }.shutdown
    asking.await
    unlock
    assert_equal 1, db.get(1)
  end

  def test_a_server_that_is_killed_and_comes_back
    server = Polyphony::OrmCase.expendable
    db = connect(**server.tcp_settings.transform_keys(dbname: :database), max_connections: 2)
    asking = Array.new(5) { spin { assert_raises(Sequel::DatabaseError) { db.get(Sequel.lit('length(pg_sleep(20)::text)')) } } }
    await_that { db.pool.num_waiting == 3 && db.pool.size == 2 }
    sleep 0.01
    server.kill
    Fiber.await(asking)
    server.start
    assert_equal [0, 1, 2], Fiber.await(Array.new(3) { |i| spin { db.get(i) } })
  end

  def test_a_frozen_server_does_not_hold_a_stopped_fiber
    server = Polyphony::OrmCase.expendable
    db = connect(**server.settings.transform_keys(dbname: :database), max_connections: 1, pool_timeout: 0.2)
    begun = Polyphony::Event.new
    fiber = spin { db.transaction { db.get(1); begun.signal; sleep } }
    begun.await
    server.frozen do
      fiber.stop
      fiber.await
      assert_empty db.pool.holders
    end
    assert_equal 1, db.get(1)
  end

  def test_a_query_to_a_frozen_server_has_a_time_limit
    server = Polyphony::OrmCase.expendable
    db = connect(**server.settings.transform_keys(dbname: :database), max_connections: 1)
    server.frozen do
      assert_equal [nil, nil], Fiber.await(Array.new(2) { spin { move_on_after(0.05) { db.get(1) } } })
      assert_empty db.pool.holders
    end
    assert_equal 1, db.get(1)
  end

  # What Sequel offers ----------------------------------------------------------------------------

  def test_connections_are_validated
    db = pg(max_connections: 2)
    db.extension(:connection_validator)
    db.pool.connection_validation_timeout = -1
    before = Fiber.await(Array.new(2) { spin { db.synchronize { |connection| sleep 0.002; connection.backend_pid } } })
    before.each { |pid| postgres.exec("select pg_terminate_backend(#{pid})") }
    await_that { postgres.exec("select 1 from pg_stat_activity where pid in (#{before.join(',')})").ntuples.zero? }
    after = Fiber.await(Array.new(2) { spin { db.synchronize { |connection| sleep 0.002; connection.backend_pid } } })
    assert_empty before & after
    assert_equal 2, db.pool.size
    assert_empty db.pool.holders
  end

  def test_connections_expire
    db = pg(max_connections: 1, test: false)
    db.extension(:connection_expiration)
    db.pool.connection_expiration_timeout = 0.05
    first = db.synchronize(&:backend_pid)
    sleep 0.06
    refute_equal first, db.synchronize(&:backend_pid)
    assert_equal 1, db.pool.size
  end

  def test_disconnect_closes_what_is_idle_now_and_the_rest_later
    db = pg(max_connections: 2)
    free = Polyphony::Event.new
    holder = spin { db.synchronize { |connection| free.await; connection } }
    snooze
    db.get(1)
    await_that { db.pool.size == 2 }
    db.disconnect
    assert_equal 1, db.pool.size
    free.signal
    assert_predicate holder.await, :finished?
    assert_equal 0, db.pool.size
    assert_equal 1, db.get(1)
    assert_raises(Sequel::Error) { db.disconnect(server: :nobody) }
  end

  def test_connections_are_set_up
    seen = []
    db = connect(max_connections: 2, after_connect: ->(connection) { seen << connection }, connect_sqls: ["set application_name = 'fibers'"],
                 preconnect: :concurrently)
    assert_equal 2, db.pool.size
    assert_equal 2, seen.size
    assert_equal 'fibers', db.fetch('show application_name').get
    assert_equal 2, connect(max_connections: 2, preconnect: true).pool.size
  end

  def test_shards_have_pools_of_their_own
    db = connect(max_connections: 1, servers: { other: { connect_sqls: ["set application_name = 'other'"] } }, pool_timeout: 0.02)
    db.extension(:server_block)
    db.synchronize do
      db.synchronize(:other) { |connection| assert_equal 'other', connection.exec('show application_name').getvalue(0, 0) }
      assert_equal 'other', db.with_server(:other) { db.fetch('show application_name').get }
      error = assert_raises(Sequel::PoolTimeout) { spin { db.get(1) }.await }
      assert_match(/server: default/, error.message)
      assert_equal 1, spin { db.synchronize(:other) { 1 } }.await
    end
    assert_equal %i[default other], db.servers
    db.add_servers(third: {})
    db.synchronize(:third) { db.remove_servers(:third) }
    assert_equal 0, db.pool.size(:third) - db.pool.size
    assert_equal [1, 1], [db.pool.size, db.pool.size(:other)]
  end

  def test_servers_may_be_named_by_their_settings
    db = connect(max_connections: 1, servers: {})
    db.extension(:arbitrary_servers)
    db.synchronize(connect_sqls: ["set application_name = 'arbitrary'"]) do |connection|
      assert_equal 'arbitrary', connection.exec('show application_name').getvalue(0, 0)
    end
    assert_empty db.pool.holders
  end

  def test_a_closed_connection_after_each_use
    db = pg(max_connections: 1, connection_handling: :disconnect)
    refute_equal db.synchronize(&:backend_pid), db.synchronize(&:backend_pid)
    assert_equal 0, db.pool.size
  end

  def test_a_frozen_database_works
    db = pg(max_connections: 2)
    db.freeze
    assert_equal [1, 2, 3], Fiber.await((1..3).map { |i| spin { db.get(i) } })
  end

  def test_all_connections_are_the_own_and_the_idle_ones
    db = pg(max_connections: 3)
    db.pool.send(:preconnect)
    seen = []
    stranger = spin { db.synchronize { sleep } }
    snooze
    db.synchronize { db.pool.all_connections { |connection| seen << connection } }
    assert_equal 2, seen.uniq.size
    stranger.stop
    stranger.await
    assert_match(/0 in use, at most 3/, db.pool.inspect)
  end

  def test_a_forked_child_has_connections_of_its_own
    db = pg(max_connections: 1)
    mine = db.synchronize(&:backend_pid)
    reader, writer = IO.pipe
    child = Polyphony.fork { writer.puts(db.synchronize(&:backend_pid)) }
    writer.close
    ::Process.wait(child)
    refute_equal mine, Integer(reader.read)
    assert_equal mine, db.synchronize(&:backend_pid)
  ensure
    [reader, writer].each { |io| io&.close }
  end

  def test_a_forked_child_that_uses_no_database_leaves_its_parents_alone
    db = pg(max_connections: 1)
    mine = db.synchronize(&:backend_pid)
    ::Process.wait(fork { exit })
    assert_equal mine, db.synchronize(&:backend_pid)
  end

  def test_a_connection_that_was_being_set_up_is_closed
    lock
    db = connect(max_connections: 1, test: false, connect_sqls: [WAITING])
    connecting = spin { db.get(1) }
    await_waiting
    connecting.stop(:stopped)
    assert_equal :stopped, connecting.await
    assert_equal [0, []], [db.pool.size, db.pool.holders]
    unlock
    assert_equal 1, spin { db.get(1) }.await
  end

  def test_a_database_in_memory_survives_a_stop
    db = keep(Sequel.sqlite)
    db.create_table(:things) { Integer :a }
    stopped = spin { db.transaction { db[:things].insert(a: 1); db[:things].each { sleep } } }
    snooze
    await_that { stopped.state == :waiting }
    stopped.stop
    stopped.await
    assert_equal 0, db[:things].count
    assert_equal 1, db[:things].insert(a: 2)
  end

  test_with_sqlite_adapter(:a_long_statement_is_stopped_and_its_transaction_rolled_back) do
    db = keep(Sequel.sqlite)
    db.create_table(:things) { Integer :a }
    assert_nil(move_on_after(0.02) { db.transaction { db[:things].insert(a: 1); db.fetch(LONG).get } })
    assert_equal 0, db[:things].count
    assert_empty db.pool.holders
  end

  test_with_sqlite_adapter(:an_end_while_a_transaction_begins_is_an_end) do
    Dir.mktmpdir do |folder|
      db, other = Array.new(2) { keep(Sequel.sqlite(File.join(folder, 'data.db'))) }
      other.transaction(mode: :exclusive) do
        assert_nil(move_on_after(0.02) { db.transaction(mode: :immediate) { flunk 'somebody else has the file' } })
        assert_raises(KeyError) { cancel_after(0.02, with_exception: KeyError) { db.transaction(mode: :immediate) { nil } } }
        thread = Thread.new { db.transaction(mode: :immediate) { nil } }
        thread.report_on_exception = false
        await_that { db.pool.size == 1 && thread.stop? }
        thread.kill.join
      end
      assert_equal 1, db.get(1)
      assert_empty db.pool.holders
    end
  end

  def test_the_example_runs
    assert_match(/stopped: nothing was written: true/, output_of("load 'examples/sequel.rb'"))
  end

  def test_it_is_loaded_by_itself
    program = "require 'polyphony/adapters/auto'; require 'sequel'; require 'sqlite3'; puts Sequel.sqlite.pool.class"
    assert_match(/^Polyphony::FiberConnectionPool$/, output_of(program))
  end

  private

  def keep(database)
    database.define_singleton_method(:get_answer) { fetch(Polyphony::OrmCase::WAITING).get }
    @databases << database
    database
  end

  def connect(**options)
    keep(Sequel.connect(adapter: 'postgres', **cluster.settings.transform_keys(dbname: :database),
                        driver_options: { options: '-c statement_timeout=20s' }, **options))
  end
  alias pg connect

  def with_table
    db = pg(max_connections: 2)
    postgres.exec('drop table if exists things; create table things (a int)')
    yield db
  ensure
    postgres.exec('drop table if exists things')
  end

  def sessions_in_transaction
    Integer(postgres.exec("select count(*) from pg_stat_activity where state like 'idle in transaction%'").getvalue(0, 0))
  end

  # One that has an adapter is asked to cancel, and can be used again.
  def mark_as_interrupted_without_a_driver_adapter(database)
    database.synchronize { |connection| Polyphony::Adapters::SequelDatabase.mark(connection) }
  end
end
