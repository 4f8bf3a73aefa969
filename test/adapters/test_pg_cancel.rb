# frozen_string_literal: true

require_relative '../support/pg_case'
require 'polyphony/testing'
require_relative '../support/kills'

# What becomes of a connection when whoever uses it is cancelled: the next user never sees anything of it.
class TestPGCancel < Polyphony::PGCase
  include Polyphony::Testing::CancelEverywhere
  extend Polyphony::Kills
  gems 'pg'
  time_limit 90

  class Enough < StandardError; end

  # What is cancelled, when the server waits for a lock in it.
  STATES = {
    exec: ->(c) { c.exec(WAIT) },
    exec_params: ->(c) { c.exec_params(WAIT, []) },
    sync_exec: ->(c) { c.sync_exec(WAIT) },
    prepared: ->(c) { c.prepare('waiting', WAIT); c.exec_prepared('waiting') },
    several: ->(c) { c.exec("select 'old'; #{WAIT}; select 'old'") },
    get_result: ->(c) { c.send_query(WAIT); c.get_result },
    get_last_result: ->(c) { c.send_query(WAIT); c.get_last_result },
    block: ->(c) { c.send_query(WAIT); c.block },
    discard: ->(c) { c.send_query(WAIT); c.discard_results },
    rows: ->(c) { c.exec("select repeat('old', 1000) from generate_series(1, 10000) union all (#{WAIT})") },
    single_rows: lambda { |c|
      c.send_query("select 'old' from generate_series(1, 10) union all (#{WAIT})")
      c.set_single_row_mode
      c.get_result.stream_each { nil }
    },
    in_the_block_of_a_stream: lambda { |c|
      c.send_query("select 'old' from generate_series(1, 10)")
      c.set_single_row_mode
      c.get_result.stream_each { sleep }
    },
    copy_out: ->(c) { c.copy_data("copy (select 'old' from generate_series(1, 10) union all (#{WAIT})) to stdout") { nil while c.get_copy_data } },
    copy_out_without_block: ->(c) { c.exec("copy (#{WAIT}) to stdout"); c.get_copy_data },
    copy_out_in_block: ->(c) { c.copy_data("copy (select repeat('old', 1000) from generate_series(1, 10000)) to stdout") { c.get_copy_data; sleep } },
    copy_in: ->(c) { c.copy_data('copy words from stdin') { c.put_copy_data("old\n"); c.flush; sleep } },
    copy_in_that_ends: lambda { |c|
      c.exec("create function pg_temp.waits() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock_shared(#{KEY}); return new; end'")
      c.exec('create trigger waits before insert on words for each row execute function pg_temp.waits()')
      c.copy_data('copy words from stdin') { c.put_copy_data("old\n") }
    },
    copy_in_with_a_coder: ->(c) { c.copy_data('copy words from stdin', PG::TextEncoder::CopyRow.new) { c.put_copy_data(['old']); sleep } },
    pipeline: lambda { |c|
      c.enter_pipeline_mode
      c.send_query_params("select 'old'", [])
      c.send_query_params(WAIT, [])
      c.send_query_params("select 'old'", [])
      c.pipeline_sync
      c.send_query_params("select 'old'", [])
      c.pipeline_sync
      c.get_result while true # rubocop:disable Style/InfiniteLoop -- loop would end with StopIteration
    },
    pipeline_without_sync: ->(c) { c.enter_pipeline_mode; c.send_query_params(WAIT, []); c.send_flush_request; c.get_result },
    transaction: ->(c) { c.transaction { c.exec("insert into words values ('old')"); c.exec(WAIT) } },
    transaction_that_sleeps: ->(c) { c.transaction { c.exec("insert into words values ('old')"); sleep } },
    transaction_with_a_query_under_way: ->(c) { c.transaction { c.exec("insert into words values ('old')"); c.send_query(WAIT); sleep } }
  }.freeze

  # How it is cancelled. Each calls the block, which waits, and returns :cancelled when that was ended.
  WAYS = {
    stop: lambda { |ready, work|
      fiber = Fiber.current.spin { work.call }
      ready.call
      fiber.stop(:cancelled)
      fiber.await
    },
    raise: lambda { |ready, work|
      fiber = Fiber.current.spin { work.call rescue $!.is_a?(Enough) ? :cancelled : $! } # rubocop:disable Style/RescueModifier -- short
      ready.call
      fiber.raise(Enough)
      fiber.await
    },
    an_error_of_pg: lambda { |ready, work|
      fiber = Fiber.current.spin { work.call rescue $!.message == 'mine' ? :cancelled : $! } # rubocop:disable Style/RescueModifier -- short
      ready.call
      fiber.raise(PG::Error, 'mine')
      fiber.await
    }
  }.freeze

  # That the way makes no difference is looked at where the gem does something of its own with errors.
  SENSITIVE = %i[exec get_last_result single_rows copy_out copy_in pipeline transaction].freeze

  STATES.each do |state, work|
    WAYS.each do |way, cancel|
      next unless way == :stop || SENSITIVE.include?(state)

      define_method("test_#{state}_ended_by_#{way}") { check_state(connect, cancel, work) }
    end

    define_method("test_#{state}_ended_over_tls") { check_state(connect_over_tls, WAYS[:stop], work) }
  end

  def check_state(connection, cancel, work)
    Polyphony::Adapters::PG.drain_time = 10 # on a busy machine a second may not be enough
    connection.exec('create temp table words (word text)')
    lock
    ready = -> { wait_until_stuck(connection) }
    assert_equal :cancelled, cancel.call(ready, -> { instance_exec(connection, &work) })
    assert_at_rest connection
    assert_equal [['0']], connection.exec('select count(*) from words').values
    unlock
  end

  # In the main fiber, and with the other ways to limit a time.
  LIMITS = {
    move_on_after: ->(work) { move_on_after(0.03, with_value: :cancelled, &work) },
    cancel_after: ->(work) { begin; cancel_after(0.03, &work); rescue Polyphony::Cancel; :cancelled; end },
    deadline: ->(work) { begin; deadline(0.03, &work); rescue Polyphony::DeadlineExceeded; :cancelled; end },
    timeout: ->(work) { begin; Timeout.timeout(0.03) { work.call }; rescue Timeout::Error; :cancelled; end },
    error_of_pg: ->(work) { begin; cancel_after(0.03, with_exception: PG::Error, &work); rescue PG::Error; :cancelled; end }
  }.freeze

  LIMITS.each do |name, limit|
    test_in_both(name) do
      connection = connect
      assert_equal :cancelled, instance_exec(-> { connection.exec(LONG) }, &limit)
      assert_at_rest connection
      assert_equal :cancelled, instance_exec(-> { connection.transaction { connection.exec(LONG) } }, &limit)
      assert_at_rest connection
    end
  end

  def test_thread_raise_and_kill
    connection = connect
    [->(thread) { thread.raise(Enough) }, ->(thread) { thread.kill }].each do |way|
      thread = Thread.new { connection.transaction { connection.exec(LONG) } }
      thread.report_on_exception = false
      wait_until_held connection, "wait_event = 'PgSleep'"
      way.call(thread)
      thread.join rescue assert_instance_of(Enough, $!) # rubocop:disable Style/RescueModifier -- short
      assert_at_rest connection
    end
  end

  test_killed(:a_transaction_is_rolled_back) do |way|
    control.exec('drop table if exists killed; create table killed (n int)')
    connection = connect
    way.call(->(pause) { connection.transaction { connection.exec('insert into killed values (1)'); pause.call } })
    assert_at_rest connection
    assert_equal '0', control.exec('select count(*) from killed').getvalue(0, 0)
  end

  def test_a_killed_fiber_in_the_middle_of_a_query
    connection = connect
    raw = Fiber.new { connection.transaction { connection.exec(LONG) } }
    resumer = spin { raw.resume }
    wait_until_held connection, "wait_event = 'PgSleep'"
    raw.kill
    resumer.await
    assert_at_rest connection
  end

  # What was not sent whole is not run.
  def test_in_the_middle_of_sending
    with_link do |link|
      control.exec('create table if not exists sent (n int)')
      big = 'x' * 5_000_000
      pids = []
      [->(c) { c.exec_params('insert into sent select length($1)', [big]) },
       ->(c) { c.send_query("insert into sent select length('#{big}')") },
       ->(c) { c.enter_pipeline_mode; c.send_query_params('insert into sent select length($1)', [big]) }].each do |send|
        connection = connect(via(link))
        pids << connection.backend_pid
        link.hold
        assert_equal :over, move_on_after(0.03, with_value: :over) { send.call(connection) }
        link.release
        assert_predicate connection, :finished?
        error = assert_raises(PG::ConnectionBad) { connection.exec('select 1') }
        assert_match(/connection is closed: what was under way on it was cancelled/, error.message)
      end
      wait_until_gone(pids)
      assert_equal [['0']], control.exec('select count(*) from sent').values
    end
  end

  def test_in_the_middle_of_a_copy_that_is_not_taken
    with_link do |link|
      connection = connect(via(link))
      connection.exec('create temp table words (word text)')
      line = "#{'x' * 10_000}\n"
      link.hold
      copying = spin { connection.copy_data('copy words from stdin') { link.hold; loop { connection.put_copy_data(line) } } }
      link.release
      sleep BEAT until copying.state == :waiting && copying.inspect && stuck_in_flush?(copying)
      later = spin { sleep 0.05; link.release }
      copying.stop
      copying.await
      later.await
      assert_at_rest connection
      assert_equal [['0']], connection.exec('select count(*) from words').values
    end
  end

  def test_a_server_that_does_not_answer
    Polyphony::Adapters::PG.drain_time = 0.05
    connection = connect
    server.frozen do
      assert_equal :over, move_on_after(0.01, with_value: :over) { connection.exec('select 1') }
      assert_predicate connection, :finished?
    end
    error = assert_raises(PG::ConnectionBad) { connection.transaction { flunk } }
    assert_match(/did not end within 0.05 s/, error.message)
    assert_same connection, error.connection
    [-> { connection.reset }, -> { connection.send_query('select 1') }, -> { connection.wait_for_notify(1) }].each do |call|
      assert_match(/did not end/, assert_raises(PG::ConnectionBad, &call).message)
    end
    assert_nil connection.finish
    refute connection.discard_results
    assert_match(/did not end/, connection.cancel)
  end

  def test_a_rollback_that_is_not_answered
    Polyphony::Adapters::PG.drain_time = 0.05
    control.exec('create table if not exists kept (n int)')
    connection = connect
    transaction = spin { connection.transaction { connection.exec('insert into kept values (1)'); sleep } }
    wait_until_held connection, "state = 'idle in transaction'"
    server.frozen do
      transaction.stop(:stopped)
      assert_equal :stopped, transaction.await
    end
    assert_predicate connection, :finished?
    assert_equal [['0']], control.exec('select count(*) from kept').values
  end

  # There is no end to it that could be waited for.
  def test_a_replication
    connection = keep PG.connect(**server.settings, replication: 'true')
    place = connection.exec('IDENTIFY_SYSTEM').getvalue(0, 2)
    following = spin { connection.exec("START_REPLICATION #{place}"); loop { connection.get_copy_data } }
    wait_until_held connection, "wait_event = 'WalSenderMain'"
    following.stop
    following.await
    assert_predicate connection, :finished?
  end

  def test_the_errors_of_a_transaction
    connection = connect
    assert_equal 1, connection.transaction { 1 }
    assert_nil(connection.transaction { raise PG::RollbackTransaction }) if PG.const_defined?(:RollbackTransaction) # not in the first versions of 1.5
    assert_raises(PG::SyntaxError) { connection.transaction { connection.exec('selekt') } }
    assert_raises(Enough) { connection.transaction { raise Enough } }
    assert_raises(PG::ConnectionBad) { connection.transaction { connection.finish; connection.exec('select 1') } }
  end

  # A user who leaves in the middle of it all, without a word.
  def test_the_next_user_finds_nothing
    connection = connect
    [-> { connection.send_query("select 'old'") }, -> { connection.exec('copy (select 1) to stdout') },
     -> { connection.enter_pipeline_mode; connection.send_query_params("select 'old'", []) },
     -> { connection.send_query("select 'old' from generate_series(1, 100)"); connection.set_single_row_mode; connection.get_result }].each do |leave|
      spin(&leave).await
      assert_equal [['next']], connection.exec("select 'next'").values
      spin(&leave).await
      connection.send_query("select 'next'")
      assert_equal [['next']], connection.get_last_result.values
      spin(&leave).await
      connection.enter_pipeline_mode
      connection.send_query_params("select 'next'", [])
      connection.pipeline_sync
      assert_equal [['next']], connection.get_result.values
      2.times { connection.get_result }
      connection.exit_pipeline_mode
      assert_at_rest connection
    end
  end

  def test_ended_at_each_wait_point
    connection = connect
    cancel_everywhere do |run|
      run.scenario { connection.transaction { connection.exec("select 'old'") } }
      run.check { assert_at_rest connection }
    end
  end

  def test_a_pipeline_ended_at_each_wait_point
    connection = connect
    cancel_everywhere do |run|
      run.scenario do
        connection.enter_pipeline_mode
        connection.send_query_params("select 'old'", [])
        connection.pipeline_sync
        3.times { connection.get_result }
        connection.exit_pipeline_mode
      end
      run.check { assert_at_rest connection }
    end
  end

  def test_a_copy_ended_at_each_wait_point
    connection = connect
    connection.exec('create temp table words (word text)')
    cancel_everywhere do |run|
      run.scenario do
        connection.copy_data('copy words from stdin') { connection.put_copy_data("old\n"); connection.flush; snooze }
        connection.copy_data('copy words to stdout') { nil while connection.get_copy_data }
      end
      run.check { assert_at_rest connection }
    end
  end

  def test_connecting_ended_at_each_wait_point
    cancel_everywhere do |run|
      connection = nil
      run.scenario { connection = PG.connect(server.tcp_settings) }
      run.check { connection&.finish }
    end
  end

  # Many fibers, few connections, cancelled by chance in all kinds of use. Each asks for its own number.
  FIBERS = 120
  SEED = Integer(ENV.fetch('POLYPHONY_SEED', rand(1 << 30)))

  QUESTIONS = [
    ->(c, id) { c.exec("select #{id} from pg_sleep(#{id % 3 * 0.002})").getvalue(0, 0) },
    ->(c, id) { c.exec_params('select $1::int from generate_series(1, 500)', [id]).column_values(0).uniq.then { |all| all.size == 1 ? all[0] : all } },
    ->(c, id) { c.transaction { c.exec("create temp table t#{id} (n int) on commit drop"); c.exec("select #{id}").getvalue(0, 0) } },
    ->(c, id) { c.send_query("select #{id}; select #{id}"); c.get_last_result.getvalue(0, 0) },
    lambda { |c, id|
      c.send_query("select #{id} from generate_series(1, 50)")
      c.set_single_row_mode
      seen = []
      c.get_result.stream_each_row { |(n)| seen << n; snooze }
      c.get_result
      seen.uniq == [id.to_s] ? id.to_s : seen
    },
    lambda { |c, id|
      seen = []
      c.copy_data("copy (select #{id} from generate_series(1, 200)) to stdout") { while (row = c.get_copy_data) do seen << row.chomp end }
      seen.uniq == [id.to_s] ? id.to_s : seen
    },
    lambda { |c, id|
      c.exec('create temp table if not exists words (n int)')
      c.copy_data('copy words from stdin') { 150.times { c.put_copy_data("#{id}\n") } }
      c.exec('truncate words')
      c.exec("select #{id}").getvalue(0, 0)
    },
    lambda { |c, id|
      c.enter_pipeline_mode
      3.times { c.send_query_params('select $1::int', [id]) }
      c.pipeline_sync
      seen = Array.new(3) { c.get_result.getvalue(0, 0).tap { c.get_result } }
      c.get_result
      c.exit_pipeline_mode
      seen.uniq == [id.to_s] ? id.to_s : seen
    }
  ].freeze

  def test_nobody_sees_the_rows_of_another
    check_rows_of_many { connect }
  end

  def test_nobody_sees_the_rows_of_another_over_tls
    check_rows_of_many { connect_over_tls }
  end

  # @yield connects
  def check_rows_of_many(&connect)
    random = Random.new(SEED)
    pool = Polyphony::ResourcePool.new(limit: 3, &connect)
    answers = Array.new(FIBERS)
    fibers = Array.new(FIBERS) do |id|
      limit = random.rand < 0.6 ? random.rand * 0.01 : nil
      question = QUESTIONS[random.rand(QUESTIONS.size)]
      spin do
        pool.acquire do |connection|
          answers[id] = move_on_after(limit, with_value: :cancelled) { question.call(connection, id) }
        rescue PG::ConnectionBad # of somebody before, who was cancelled when the machine was slow
          pool.discard!
          pool.acquire { |another| connection = another }
          retry
        rescue StandardError => e
          raise e.class, "#{e.message} (question #{QUESTIONS.index(question)} of fiber #{id}, seed #{SEED})"
        end
      end
    end
    fibers.each(&:await)
    answers.each_with_index { |answer, id| assert_includes [:cancelled, id.to_s], answer, "seed #{SEED}" }
    assert_includes answers, :cancelled
    3.times { |i| pool.acquire { |connection| assert_at_rest connection; assert_equal i.to_s, connection.exec("select #{i}").getvalue(0, 0) } }
  end

  private

  # Until the server waits for us, or for the lock, so that the fiber is in the middle of it.
  def wait_until_stuck(connection)
    wait_until_held connection, "(wait_event_type = 'Lock' or wait_event_type = 'Client' and state <> 'idle' or " \
                         "wait_event_type = 'Client' and query like 'select ''old'' from%')"
    20.times { snooze }
  end

  def stuck_in_flush?(fiber)
    50.times { sleep BEAT; return false unless fiber.state == :waiting }
    true
  end

  # Until the server has noticed that they have hung up.
  def wait_until_gone(pids)
    sql = "select 1 from pg_stat_activity where pid in (#{pids.join(', ')})"
    sleep BEAT until control.exec(sql).ntuples.zero?
  end
end
