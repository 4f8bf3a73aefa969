# frozen_string_literal: true

require_relative '../support/pg_case'

# That the gem pg works in fibers: whatever waits for the server lets other fibers run.
class TestPG < Polyphony::PGCase
  gems 'pg'

  WAITING = {
    exec: ->(c) { c.exec(WAIT).values },
    async_exec: ->(c) { c.async_exec(WAIT).values },
    query: ->(c) { c.query(WAIT).values },
    exec_with_a_block: ->(c) { c.exec(WAIT) { |result| result.values } },
    exec_params: ->(c) { c.exec_params(WAIT, []).values },
    async_exec_params: ->(c) { c.async_exec_params(WAIT, []).values },
    exec_prepared: ->(c) { c.prepare('waiting', WAIT); c.exec_prepared('waiting').values },
    async_exec_prepared: ->(c) { c.async_prepare('waiting', WAIT); c.async_exec_prepared('waiting').values },
    sync_exec: ->(c) { c.sync_exec(WAIT).values },
    sync_exec_params: ->(c) { c.sync_exec_params(WAIT, []).values },
    sync_exec_prepared: ->(c) { c.sync_prepare('waiting', WAIT); c.sync_exec_prepared('waiting').values },
    get_result: ->(c) { c.send_query(WAIT); c.get_result.values.tap { c.get_result } },
    async_get_result: ->(c) { c.send_query_params(WAIT, []); c.async_get_result.values.tap { c.get_result } },
    sync_get_result: ->(c) { c.send_query(WAIT); c.sync_get_result.values.tap { c.sync_get_result } },
    get_last_result: ->(c) { c.send_query("select 0; #{WAIT}"); c.get_last_result.values },
    sync_get_last_result: ->(c) { c.send_query("select 0; #{WAIT}"); c.sync_get_last_result.values },
    block: ->(c) { c.send_query(WAIT); c.block; c.get_last_result.values },
    block_with_time: ->(c) { c.send_query(WAIT); c.block(30); c.get_last_result.values },
    discard_results: ->(c) { c.send_query(WAIT); c.discard_results; [['mine']] },
    copy_data: ->(c) { c.copy_data("copy (#{WAIT}) to stdout") { [[c.get_copy_data.chomp].tap { c.get_copy_data }] } && [['mine']] },
    get_copy_data: ->(c) { c.exec("copy (#{WAIT}) to stdout"); [[c.get_copy_data.chomp]].tap { c.get_copy_data; c.get_last_result } },
    sync_get_copy_data: ->(c) { c.exec("copy (#{WAIT}) to stdout"); [[c.sync_get_copy_data.chomp]].tap { c.get_copy_data; c.get_last_result } },
    put_copy_end: lambda { |c|
      c.exec('create temp table copied (word text)')
      c.exec("create function pg_temp.waits() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock_shared(#{KEY}); return new; end'")
      c.exec('create trigger waits before insert on copied for each row execute function pg_temp.waits()')
      c.copy_data('copy copied from stdin') { c.put_copy_data("mine\n") }
      c.exec('select * from copied').values
    },
    single_rows: ->(c) { c.send_query(WAIT); c.set_single_row_mode; c.get_result.stream_each_row.to_a.tap { c.get_result } },
    stream_each: lambda { |c|
      c.send_query("select '0' as word union all (#{WAIT})")
      c.set_single_row_mode
      rows = []
      c.get_result.stream_each { |row| rows << row['word'] }
      c.get_result
      [[rows.last]]
    },
    stream_each_tuple: lambda { |c|
      c.send_query("select '0' as word union all (#{WAIT})")
      c.set_single_row_mode
      rows = []
      c.get_result.stream_each_tuple { |row| rows << row['word'] }
      c.get_result
      [[rows.last]]
    },
    pipeline: lambda { |c|
      c.enter_pipeline_mode
      c.send_query_params(WAIT, [])
      c.send_query_params("select 'other'", [])
      c.pipeline_sync
      first = c.get_result.values
      assert_nil c.get_result
      assert_equal [['other']], c.get_result.values
      assert_nil c.get_result
      assert_equal PG::PGRES_PIPELINE_SYNC, c.get_result.result_status
      c.exit_pipeline_mode
      first
    },
    transaction: ->(c) { c.transaction { c.exec(WAIT).values } },
    notice: ->(c) { c.set_notice_receiver { nil }; c.exec("set client_min_messages = notice; do 'begin raise notice ''x''; end'; #{WAIT}").values }
  }.freeze

  WAITING.each do |name, call|
    test_in_both(name) do
      connection = connect
      assert_equal([['mine']], assert_waits { instance_exec(connection, &call) })
      assert_at_rest connection
    end

    # What OpenSSL has read already is not to be waited for.
    define_method("test_#{name}_over_tls") do
      connection = connect_over_tls
      assert_equal([['mine']], assert_waits { instance_exec(connection, &call) })
      assert_at_rest connection
    end
  end

  test_in_both(:small_calls) do
    connection = connect
    connection.prepare('one', 'select $1::int as n')
    assert_equal 'n', connection.describe_prepared('one').fname(0)
    assert_equal 'n', connection.sync_describe_prepared('one').fname(0)
    connection.transaction do
      connection.exec('declare porter cursor for select 1 as p')
      assert_equal 'p', connection.describe_portal('porter').fname(0)
    end
    connection.set_client_encoding('LATIN1')
    assert_equal Encoding::ISO_8859_1, connection.internal_encoding
    connection.internal_encoding = 'utf-8'
    assert_equal Encoding::UTF_8, connection.internal_encoding
    assert_match(/\ASCRAM-SHA-256/, connection.encrypt_password('secret', 'postgres'))
    assert_match(/\ASCRAM-SHA-256/, connection.sync_encrypt_password('secret', 'postgres', 'scram-sha-256'))
    assert_raises(PG::SyntaxError) { connection.exec('selekt') }
    assert_raises(TypeError) { connection.exec(1) }
    assert_at_rest connection
  end

  test_in_both(:wait_for_notify) do
    connection = connect
    connection.exec('listen news')
    told = nil
    name = assert_yields(-> { control.exec("notify news, 'rain'") }) do
      connection.wait_for_notify(30) { |*news| told = news }
    end
    assert_equal ['news', ['news', control.backend_pid, 'rain']], [name, told]
    assert_nil connection.wait_for_notify(0.005)
    move_on_after(0.005) { connection.wait_for_notify } # a listener that is stopped loses nothing
    control.exec("notify news, 'sun'")
    assert_equal('sun', connection.wait_for_notify { |*, payload| told = payload } && told)
    assert_at_rest connection
  end

  test_in_both(:connecting) do
    with_link do |link|
      %w[disable require].each do |sslmode|
        link.hold
        connection = assert_yields(-> { link.release }) { connect(via(link), connect_timeout: 4, sslmode: sslmode) }
        assert_equal sslmode == 'require', connection.ssl_in_use?
        assert_at_rest connection

        link.hold
        assert_yields(-> { link.release }) { connection.reset }
        assert_at_rest connection
      end
    end
  end

  test_in_both(:ping) do
    with_link do |link|
      link.hold
      assert_equal PG::PQPING_OK, assert_yields(-> { link.release }) { PG::Connection.ping(via(link)) }
      assert_equal PG::PQPING_OK, PG::Connection.sync_ping(server.settings)
      assert_equal PG::PQPING_NO_RESPONSE, PG::Connection.ping(host: '/nowhere')
    end
  end

  def test_ways_to_connect
    [server.settings, server.tcp_settings, server.tcp_settings.merge(host: 'localhost'),
     server.tcp_settings.merge(host: 'nowhere.invalid,127.0.0.1'), server.settings.merge(host: "/nowhere,#{server.folder}"),
     { **server.tcp_settings, sslmode: 'require' }].each { |settings| assert_at_rest connect(settings) }
    assert_at_rest keep(PG.connect(server.url))
    assert_at_rest keep(PG::Connection.new(server.url))
    assert_at_rest keep(PG::Connection.sync_connect(server.url))
    assert_equal(1, PG.connect(server.url) { |connection| connection.exec('select 1').getvalue(0, 0).to_i })
    error = assert_raises(PG::ConnectionBad) { PG.connect(**server.tcp_settings, host: 'nowhere.invalid') }
    assert_match(/could not translate host name "nowhere.invalid"/, error.message)
  end

  def test_a_cancelled_connect_leaves_no_descriptor
    with_link do |link|
      link.hold
      assert_equal :over, move_on_after(0.02, with_value: :over) { PG.connect(via(link)) }
      assert_raises(Timeout::Error) { Timeout.timeout(0.02) { PG.connect(via(link)) } }
    end
  end

  # A query that the server does not take in at once.
  test_in_both(:sending) { check_sending('disable') }
  test_in_both(:sending_over_tls) { check_sending('require') }

  def check_sending(sslmode)
    with_link do |link|
      connection = connect(via(link), sslmode: sslmode)
      connection.exec('create temp table copied (word text)')
      big = 'x' * 5_000_000
      [-> { connection.exec_params('select length($1)', [big]).values }, -> { connection.exec("select length('#{big}')").values },
       lambda {
         connection.send_query_params('select length($1)', [big])
         connection.get_last_result.values
       },
       lambda {
         connection.copy_data('copy copied from stdin') { connection.put_copy_data("#{big}\n"); connection.flush }
         connection.exec('select length(word) from copied').values
       }].each do |call|
        link.hold
        assert_equal [[big.size.to_s]], assert_yields(-> { link.release }, &call)
        assert_at_rest connection
      end
    end
  end

  test_in_both(:large_results) { check_large_results(connect) }
  test_in_both(:large_results_over_tls) { check_large_results(connect_over_tls) }

  def check_large_results(connection)
    assert_equal 100_000, connection.exec('select generate_series(1, 100000)').ntuples
    connection.send_query('select generate_series(1, 20000)')
    connection.set_single_row_mode
    assert_equal 20_000, connection.get_result.stream_each_row.count
    connection.get_result
    out = 0
    connection.copy_data('copy (select generate_series(1, 20000)) to stdout') { out += 1 while connection.get_copy_data }
    assert_equal 20_000, out
    connection.exec('create temp table copied (n int)')
    coder = PG::TextEncoder::CopyRow.new
    connection.copy_data('copy copied from stdin', coder) { 5_000.times { |i| connection.put_copy_data([i.to_s]) } }
    assert_equal [['5000']], connection.exec('select count(*) from copied').values
    # Rows that are larger than a record of TLS, and than libpq's buffer.
    sizes = [8_191, 16_384, 100_000, 3_000_000]
    rows = "select repeat('x', size) from unnest(array#{sizes}) as size"
    assert_equal sizes, connection.exec(rows).column_values(0).map(&:size)
    connection.send_query(rows)
    connection.set_single_row_mode
    assert_equal(sizes, connection.get_result.stream_each_row.map { |(row)| row.size })
    connection.get_result
    out = []
    connection.copy_data("copy (#{rows}) to stdout") { while (row = connection.get_copy_data) do out << row.chomp.size end }
    assert_equal sizes, out
    assert_at_rest connection
  end

  test_in_both(:large_objects) do
    connection = connect
    Dir.mktmpdir do |folder|
      connection.transaction do
        object = connection.lo_creat
        handle = connection.lo_open(object, PG::INV_READ | PG::INV_WRITE)
        assert_equal 6, connection.lo_write(handle, "ab\0\xffcd".b)
        assert_equal 1, connection.lo_lseek(handle, 1, PG::SEEK_SET)
        assert_equal "b\0\xFFcd".b, connection.lo_read(handle, 100)
        assert_nil connection.lo_read(handle, 100)
        assert_equal 6, connection.lo_tell(handle)
        connection.lo_truncate(handle, 2)
        connection.lo_close(handle)
        connection.lo_export(object, "#{folder}/out")
        assert_equal 'ab', File.binread("#{folder}/out")
        copy = connection.lo_import("#{folder}/out")
        connection.lo_export(copy, "#{folder}/again")
        assert_equal 'ab', File.binread("#{folder}/again")
        [object, copy].each { |oid| connection.lo_unlink(oid) }
        assert_raises(PG::Error) { connection.lo_import("#{folder}/missing") }
      end
      assert_raises(PG::Error) { connection.lo_open(1) }
    end
    assert_at_rest connection
  end

  test_in_both(:large_objects_yield) do
    connection = connect
    object = connection.lo_create(0)
    control.exec('begin; lock table pg_largeobject_metadata')
    assert_yields(-> { control.exec('rollback') }) { connection.lo_unlink(object) }
  end

  def test_two_fibers_on_one_connection
    connection = connect
    lock
    asking = spin(:asking) { connection.exec(WAIT).values }
    wait_until_held connection, "wait_event_type = 'Lock'"
    [-> { connection.exec('select 1') }, -> { connection.get_result }, -> { connection.transaction { flunk } },
     -> { connection.send_query('select 1') }, -> { connection.finish }, -> { connection.reset },
     -> { connection.wait_for_notify(1) }, -> { connection.copy_data('copy x to stdout') { flunk } }].each do |call|
      error = assert_raises(Polyphony::Adapters::ConnectionInUse, &call)
      assert_match(/asking/, error.message)
    end
    unlock
    assert_equal [['mine']], asking.await
    assert_at_rest connection
  end

  def test_another_fiber_may_cancel
    connection = connect
    asking = spin { assert_raises(PG::QueryCanceled) { connection.exec(LONG) } }
    wait_until_held connection, "wait_event = 'PgSleep'"
    assert_nil connection.cancel
    asking.await
    assert_nil connection.sync_cancel # nothing to cancel
    assert_at_rest connection
  end

  # An error of the caller's must not end it.
  def test_a_pipeline_survives_bad_arguments
    connection = connect
    connection.enter_pipeline_mode
    connection.send_query_params('select 1', [])
    assert_raises(TypeError) { connection.send_query_params(2, []) }
    connection.send_query_params('select $1::int', [3])
    connection.pipeline_sync
    assert_equal [['1']], connection.get_result.values
    assert_nil connection.get_result
    assert_equal [['3']], connection.get_result.values
    assert_nil connection.get_result
    assert_equal PG::PGRES_PIPELINE_SYNC, connection.get_result.result_status
    connection.exit_pipeline_mode
    assert_at_rest connection
  end

  def test_enumerators
    connection = connect
    connection.send_query('select generate_series(1, 9)')
    connection.set_single_row_mode
    rows = connection.get_result.stream_each_row
    assert_equal [['1'], ['2']], [rows.next, rows.next]
    assert_equal [['next']], connection.exec("select 'next'").values
    assert_at_rest connection
    assert_raises(PG::NoResultError) { rows.next }
  end

  def test_a_stream_left_with_break_can_be_read_on
    connection = connect
    connection.send_query('select generate_series(1, 3)')
    connection.set_single_row_mode
    assert_equal(['1'], connection.get_result.stream_each_row { |row| break row })
    assert_equal [['2']], connection.get_result.values
    assert_equal [['next']], connection.exec("select 'next'").values
    assert_at_rest connection
  end

  def test_nonblocking_mode_is_left_alone
    connection = connect
    connection.setnonblocking(true)
    connection.send_query('select 1')
    sleep 0.001 until connection.flush
    sleep 0.001 while connection.consume_input || connection.is_busy
    assert_equal [['1']], connection.get_last_result.values
    connection.setnonblocking(false)
    assert_at_rest connection
  end
end
