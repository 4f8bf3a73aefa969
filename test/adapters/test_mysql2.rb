# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/mysql_tests'

# mysql2 against a real server.
class TestMysql2 < Polyphony::AdapterCase
  gems 'mysql2', 'polyphony/adapters/mysql2'
  include Polyphony::MysqlTests

  ROWS = 'SELECT seq FROM seq_1_to_1000'
  ENDLESS = "SELECT seq, REPEAT('x', 1000) FROM seq_1_to_10000000"

  def connect(**settings)
    Mysql2::Client.new(settings)
  end

  def ask(connection, sql)
    connection.query(sql, as: :array).to_a
  end

  def lost
    Mysql2::Error
  end
  alias error_class lost

  def tls
    { ssl_mode: :required }
  end

  def stream(connection, sql, **options)
    connection.query(sql, stream: true, cache_rows: false, as: :array, **options)
  end

  # --- what another thread raises, in the middle ---------------------------------------------

  # Raises or kills when a method of mysql2's own has returned, before anything could be noted of it.
  def ended_after(method, how, &work)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      ends = TracePoint.new(:c_return) do |call|
        next unless call.method_id == method && call.self.is_a?(Mysql2::Client)

        ends.disable
        Thread.new { how == :kill ? thread.kill : thread.raise(KeyError, 'mine') }.join
      end
      ends.enable(target_thread: Thread.current, &work)
    end
    thread.join
  rescue KeyError => e
    assert_equal 'mine', e.message
  end

  %i[kill raise].product(%i[_query async_result]).each do |how, method|
    define_method("test_a_#{how}_just_after_#{method}_leaves_a_connection_that_works") do
      connection = open
      ended_after(method, how) { ask(connection, 'SELECT 1') }
      assert_equal [[2]], ask(connection, 'SELECT 2')
      ended_after(method, how) { stream(connection, ROWS).each { nil } }
      assert_equal [[3]], ask(connection, 'SELECT 3')
    end
  end

  # --- what waits --------------------------------------------------------------------------

  test_in_both(:a_prepared_statement_yields) do
    statement = open.prepare("SELECT ? + GET_LOCK('statement', #{LIMIT}) AS sum")
    rows = assert_yields(gate('statement')) { statement.execute(41).to_a }
    assert_equal [{ 'sum' => 42 }], rows
  end

  test_in_both(:preparing_yields) do
    connection = open(read_timeout: LIMIT)
    statement = frozen_until_released { |release| assert_yields(release) { connection.prepare('SELECT ?') } }
    assert_equal 1, statement.param_count
  end

  test_in_both(:select_db_yields) do
    connection = open(read_timeout: LIMIT)
    frozen_until_released { |release| assert_yields(release) { connection.select_db('mysql') } }
    assert_equal [['mysql']], ask(connection, 'SELECT DATABASE()')
  end

  test_in_both(:each_row_of_a_stream_yields) do
    connection = open
    result = stream(connection, "SELECT seq, REPEAT('x', 1000), IF(seq = 3000, GET_LOCK('row', #{LIMIT}), 0) FROM seq_1_to_3000")
    seen = []
    assert_yields(gate('row')) { result.each { |row| seen << row.first } }
    assert_equal (1..3000).to_a, seen
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  test_in_both(:each_row_of_a_streamed_statement_yields) do
    connection = open(read_timeout: LIMIT)
    result = connection.prepare(ROWS).execute(stream: true, cache_rows: false, as: :array)
    seen = []
    frozen_until_released { |release| assert_yields(release) { result.each { |row| seen.concat(row) } } }
    assert_equal (1..1000).to_a, seen
  end

  test_in_both(:an_asynchronous_result_yields) do
    connection, release = open, gate('async')
    assert_nil connection.query("SELECT 1 + GET_LOCK('async', #{LIMIT})", async: true, as: :array)
    assert_equal [[2]], assert_yields(release) { connection.async_result.to_a }
    assert_nil connection.async_result
  end

  test_in_both(:the_next_result_yields) do
    connection, release = open(flags: Mysql2::Client::MULTI_STATEMENTS), gate('next')
    assert_equal [[1]], ask(connection, "SELECT 1; SELECT 1 + GET_LOCK('next', #{LIMIT}); SELECT 3")
    assert assert_yields(release) { connection.next_result }
    assert_equal [[2]], connection.store_result.to_a
    assert connection.next_result
    assert_equal [[3]], connection.store_result.to_a
    refute connection.next_result
  end

  test_in_both(:results_that_are_abandoned_yield) do
    connection, release = open(flags: Mysql2::Client::MULTI_STATEMENTS), gate('abandoned')
    ask(connection, "SELECT 1; SELECT 1 + GET_LOCK('abandoned', #{LIMIT}); SELECT 3")
    assert_yields(release) { connection.abandon_results! }
    assert_equal [[4]], ask(connection, 'SELECT 4')
  end

  test_in_both(:reconnecting_yields) do
    connection = open(reconnect: true, read_timeout: LIMIT, connect_timeout: LIMIT)
    id = connection.thread_id
    ask(open, "KILL #{id}")
    frozen_until_released { |release| assert_yields(release) { assert connection.ping } }
    refute_equal id, connection.thread_id
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  # --- answers of every size and shape ------------------------------------------------------

  def test_answers_are_whole
    connection = open
    [0, 1, 2, 250, 251, 4000, 4090, 5000, 70_000, 2_000_000].each do |length|
      assert_equal ['x' * length], ask(connection, "SELECT REPEAT('x', #{length})").flatten
    end
    assert_equal [[nil, '', nil]], ask(connection, "SELECT NULL, '', NULL")
    assert_equal [], ask(connection, 'SELECT 1 FROM DUAL WHERE FALSE')
    assert_equal (1..300).to_a, ask(connection, "SELECT #{(1..300).to_a.join(',')}").flatten
  end

  def test_statements_without_rows
    connection = open
    assert_nil connection.query('CREATE OR REPLACE TABLE numbers (id INT AUTO_INCREMENT PRIMARY KEY, n INT)')
    assert_nil connection.query('INSERT INTO numbers (n) VALUES (1), (2), (3)')
    assert_equal [3, 1], [connection.affected_rows, connection.last_id]
    statement = connection.prepare('INSERT INTO numbers (n) VALUES (?)')
    assert_nil statement.execute(4)
    assert_equal 4, statement.last_id
  end

  def test_a_file_of_ours_can_be_loaded
    connection = open(local_infile: true)
    connection.query('CREATE OR REPLACE TABLE loaded (n INT)')
    connection.query('SET GLOBAL local_infile = 1')
    Tempfile.create('rows') do |file|
      file.write("1\n2\n3\n")
      file.flush
      connection.query("LOAD DATA LOCAL INFILE '#{file.path}' INTO TABLE loaded")
    end
    assert_equal [[6]], ask(connection, 'SELECT CAST(SUM(n) AS SIGNED) FROM loaded')
  end

  def test_what_is_no_text_is_refused_as_ever
    connection = open
    assert_raises(TypeError) { connection.query(42) }
    assert_raises(Mysql2::Error) { connection.prepare('SELECT ?').execute(1, 2) }
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  def test_a_read_timeout_is_an_error_of_mysql2
    connection = open(read_timeout: 1)
    error = assert_raises(Mysql2::Error::TimeoutError) { ask(connection, slow) }
    assert_match(/waited 1 seconds/, error.message)
    assert_predicate connection, :closed?
  end

  def test_a_connection_that_is_cut_is_an_error_and_closed
    connection = open
    fiber = spin { assert_raises(Mysql2::Error::ConnectionError) { ask(connection, slow) } }
    underway
    BasicSocket.for_fd(connection.socket).tap { |socket| socket.autoclose = false }.shutdown
    fiber.await
    assert_predicate connection, :closed?
    assert_raises(Mysql2::Error) { connection.query('SELECT 1') }
  end

  def test_a_killed_thread_leaves_the_connection_in_order
    connection = open
    thread = Thread.new { ask(connection, slow) }
    underway
    thread.kill.join
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  def test_the_example_shows_what_it_promises
    heavy
    env = { 'MYSQL_SOCKET' => @server.socket, 'MYSQL_USER' => 'tester', 'MYSQL_PASSWORD' => 'secret', 'MYSQL_DATABASE' => 'test' }
    out, err, = run_ruby('load ARGV.shift', File.join(POLYPHONY_ROOT, 'examples/mysql.rb'), env: env, options: ['-W2', *bundled])
    assert_empty err
    assert_equal <<~TEXT, out
      squares: 1 4 9 16 25 36 49 64 81, with 3 connections
      nine times 0.1 s took less than 0.9 s: true
      slow query: given up, and then: 42
      rows after a rollback: 0
    TEXT
  end

  # --- streams --------------------------------------------------------------------------------

  def test_a_stream_that_was_left_goes_on
    connection = open
    result = stream(connection, ROWS)
    assert_equal [[1], [2], [3]], result.first(3)
    assert_equal (4..1000).to_a, result.map(&:first)
    assert_raises(Mysql2::Error) { result.each { flunk } }
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  def test_rows_that_nobody_wants_are_in_nobodys_way
    connection = open
    stream(connection, ROWS).first(3)
    assert_equal [[1]], ask(connection, 'SELECT 1')
    result = stream(connection, ENDLESS)
    result.free
    assert_equal [[2]], ask(connection, 'SELECT 2')
    assert_raises(IOError) { stream(connection, ROWS).each { raise IOError, 'mine' } }
    assert_equal [[3]], ask(connection, 'SELECT 3')
  end

  def test_a_stream_is_stopped_between_rows
    connection = open
    fiber = spin { stream(connection, "#{ENDLESS} WHERE '#{name}' <> ''").each { snooze } }
    underway
    fiber.stop
    fiber.await
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  def test_no_statement_while_rows_are_being_read
    connection = open
    error = assert_raises(Mysql2::Error) { stream(connection, ROWS).each { ask(connection, 'SELECT 1') } }
    assert_match(/being read/, error.message)
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  def test_closed_in_the_middle_of_a_stream
    connection = open
    result = stream(connection, ENDLESS)
    connection.close
    assert_predicate connection, :closed?
    assert_raises(Mysql2::Error) { result.each { flunk } }
  end

  def test_ended_at_every_wait_point_a_stream_leaves_the_connection_in_order
    connection = open
    cancel_everywhere do |run|
      run.scenario { stream(connection, 'SELECT seq FROM seq_1_to_105').each { |row| row } }
      run.check { assert_equal [[run.point]], ask(connection, "SELECT #{run.point}") }
    end
  end

  # The thread that fetches rows is held when it has handed over all of a part, and is about to end. Five rows are left then, and
  # whoever reads does not know yet.
  # @yield [read] reads the rows
  # @yieldreturn [Polyphony::Fiber, Thread] who does
  def between_two_parts_of_a_stream(connection)
    go_on, taken = Thread::Queue.new, 0
    holder = TracePoint.new(:return) { |call| go_on.pop if call.method_id == :fetch_some }
    holder.enable
    reader = spin { stream(connection, 'SELECT seq FROM seq_1_to_105').each { taken += 1 } }
    sleep 0.001 until taken == 100 && reader.backtrace.grep(/join'/).any?
    yield reader
    go_on.close
    reader.await
  ensure
    go_on.close
    holder.disable
  end

  def test_ended_between_two_parts_a_stream_leaves_the_connection_in_order
    connection = open
    between_two_parts_of_a_stream(connection, &:stop)
    assert_equal [[1]], ask(connection, 'SELECT 1')
    assert_raises(KeyError) { between_two_parts_of_a_stream(connection) { |reader| reader.raise(KeyError) } }
    assert_equal [[2]], ask(connection, 'SELECT 2')
    refute_predicate connection, :closed?
  end

  # mysql2 raises in the middle of the rows.
  def test_a_row_that_cannot_be_read_leaves_the_connection_in_order
    connection = open
    ask(connection, "SET sql_mode = ''")
    sql = "SELECT CAST(IF(seq IN (2, 3), '2026-00-05', '2026-11-05') AS DATE) FROM seq_1_to_205"
    assert_raises(error_class) { stream(connection, sql).each { nil } }
    assert_equal [[1]], ask(connection, 'SELECT 1')
    assert_raises(Date::Error) { connection.prepare(sql).execute(stream: true, cache_rows: false, as: :array).each { nil } }
    assert_equal [[2]], ask(connection, 'SELECT 2')
    refute_predicate connection, :closed?
  end

  def test_a_stream_whose_server_reports_an_error_leaves_the_connection_in_order
    connection = open
    ended = "SELECT seq, IF(seq = 3000, (SELECT 1 UNION SELECT 2), REPEAT('x', 1000)) FROM seq_1_to_5000"
    assert_match(/more than 1 row/, assert_raises(error_class) { stream(connection, ended).each { nil } }.message)
    assert_equal [[1]], ask(connection, 'SELECT 1')
    error = assert_raises(error_class) { connection.prepare(ended).execute(stream: true, cache_rows: false).each { nil } }
    assert_match(/more than 1 row/, error.message)
    assert_equal [[2]], ask(connection, 'SELECT 2')
  end

  def test_a_connection_that_is_lost_in_the_middle_of_a_stream_is_closed
    connection, other = open, open
    error = assert_raises(error_class) do
      stream(connection, ENDLESS).each { |seq, _| ask(other, "KILL CONNECTION #{connection.thread_id}") if seq == 200 }
    end
    refute_match(/out of sync/, error.message)
    assert_predicate connection, :closed?
  end

  %i[__kill __settle].each do |method|
    define_method("test_raised_anew_in_#{method}_a_stream_costs_the_connection_and_not_more") do
      connection = open
      answer_after_being_raised_in(method, connection) { stream(connection, ENDLESS).each { raise IOError } }
        .then { |answer| assert_right_or_lost(answer) }
    end
  end

  # --- when the patience is over --------------------------------------------------------------

  def test_without_patience_a_stream_leaves_the_connection_in_order_or_closed
    without_patience { |connection| stream(connection, 'SELECT seq FROM seq_1_to_105').each { |row| row } }
  end

  def shut_down?(connection)
    socket = BasicSocket.for_fd(connection.socket).tap { |own| own.autoclose = false }
    socket.recv_nonblock(1, Socket::MSG_PEEK, exception: false).to_s.empty?
  end

  # A server may send half of an answer and no more.
  def test_who_reads_what_is_left_is_cut_off_when_the_patience_is_over
    connection, go_on = open, Thread::Queue.new
    connection.query("SELECT REPEAT('x', 5000)", async: true)
    reader = TracePoint.new(:c_return) { |call| go_on.pop if call.method_id == :async_result }
    reader.enable
    settling = spin { connection.__send__(:__settle, Polyphony::Adapters.const_get(:Call).new { nil }.here) }
    sleep 0.001 until go_on.num_waiting == 1
    settling.stop
    deadline(LIMIT) { sleep 0.001 until shut_down?(connection) }
    refute_predicate settling, :dead?
    go_on.close
    settling.await
  ensure
    go_on.close
    reader.disable
  end

  # --- statements -----------------------------------------------------------------------------

  def test_ended_at_every_wait_point_a_statement_leaves_the_connection_in_order
    connection = open
    cancel_everywhere do |run|
      run.scenario { connection.prepare('SELECT ?, SLEEP(0.001)').execute(run.point).to_a }
      run.check { assert_equal [[run.point]], ask(connection, "SELECT #{run.point}") }
    end
  end

  def test_a_cancelled_statement_can_be_executed_again
    statement = open.prepare('SELECT ? AS n, SLEEP(?) AS s')
    assert_nil(move_on_after(0.02) { statement.execute(1, 30).to_a })
    assert_equal [{ 'n' => 2, 's' => 0 }], statement.execute(2, 0).to_a
    statement.close
    assert_raises(Mysql2::Error) { statement.execute(3, 0) }
  end

  def test_statements_that_are_dropped_are_closed
    heavy
    connection = open
    prepared = -> { ask(connection, "SHOW STATUS LIKE 'Com_stmt_close'")[0][1].to_i }
    600.times { |i| connection.prepare("SELECT #{i}") }
    assert_operator prepared.call, :>, 100
    assert_equal [[1]], ask(connection, 'SELECT 1')
  end

  # --- several results --------------------------------------------------------------------------

  # A server that is told to stop between two statements promises a result that does not come.
  def test_ended_at_every_wait_point_several_results_leave_the_connection_in_order_or_closed
    patience(1)
    connection = open(flags: Mysql2::Client::MULTI_STATEMENTS)
    cancel_everywhere do |run|
      run.scenario do
        connection.query('SELECT 1; SELECT SLEEP(0.005); SELECT 3')
        connection.store_result while connection.next_result
      end
      run.check do
        connection = open(flags: Mysql2::Client::MULTI_STATEMENTS) if connection.closed?
        assert_equal [[run.point]], ask(connection, "SELECT #{run.point}")
      end
    end
  end

  def test_results_that_nobody_took_are_in_nobodys_way
    connection = open(flags: Mysql2::Client::MULTI_STATEMENTS)
    assert_equal [[1]], ask(connection, 'SELECT 1; SELECT 2; SELECT 3')
    assert_equal [[4]], ask(connection, 'SELECT 4; SELECT 5')
    connection.next_result
    assert_equal [[6]], ask(connection, 'SELECT 6')
  end
end

# Whether an answer is there to its end, by its bytes.
class TestMysql2Answer < Polyphony::AdapterCase
  gems 'mysql2', 'polyphony/adapters/mysql2'

  def packets(*payloads)
    payloads.each_with_index.map { |payload, i| [payload.bytesize, i + 1].pack('VC').then { |h| h[0, 3] + h[4] } + payload }.join.b
  end

  def whole?(bytes)
    Polyphony::Adapters::Mysql2.const_get(:Answer).whole?(bytes)
  end

  END_OF_LIST = "\xfe\0\0\2\0".b

  def test_answers_without_rows
    assert whole?(packets("\0\1\2\2\0\0\0"))
    assert whole?(packets("\xff\x15\x04#42000You have".b))
    refute whole?(packets("\xfbfile"))
  end

  def test_no_answer_is_whole_before_its_last_byte
    answer = packets("\2", 'column', 'column', END_OF_LIST, "\1a\1b", "\xfb\1b".b, END_OF_LIST)
    assert whole?(answer)
    answer.bytesize.times { |length| refute whole?(answer[0, length]), "#{length} bytes" }
    assert whole?(packets("\1", 'column', END_OF_LIST, "\xff\x25\x05#70100interrupted".b))
    assert whole?(packets("\1", 'column', END_OF_LIST, END_OF_LIST))
  end

  def test_what_is_not_understood_is_not_whole
    refute whole?(nil)
    refute whole?(:wait_readable)
    refute whole?('')
    refute whole?("\x17\x03\x03\x00\x20#{'x' * 32}".b) # TLS
    refute whole?(packets("\1", 'column', "\1a", "\xfe\0\0\2\0\0\0".b)[0..-2])
  end
end
