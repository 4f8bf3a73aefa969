# frozen_string_literal: true

require_relative 'mariadb_server'
require 'polyphony/testing'
require_relative 'kills'

module Polyphony
  # What holds for mysql2 as for trilogy. Whoever includes it has +connect(settings)+, +ask(connection, sql)+, which returns arrays,
  # +lost+ and +error_class+, classes of errors, and +tls+, settings.
  module MysqlTests
    include Testing::CancelEverywhere

    LIMIT = 5 # seconds, for what should never take that long

    def setup
      super
      @server = MariadbServer.shared
      @opened = []
      patience(20)
    end

    def teardown
      patience(1)
      @opened&.each(&:close)
      super
    end

    # After how many seconds a connection is closed whose statement does not end. On a busy machine a server may be slow to.
    def patience(seconds)
      Adapters.const_get(:MySQL).patience = seconds
    end

    # @return [Object] a connection that is closed after the test
    def open(settings = @server.settings, **options)
      connect(**settings, **options).tap { |connection| @opened << connection }
    end

    # Holds a lock of the server's, for which others wait, until it is called.
    # @return [Proc]
    def gate(name)
      holder = open
      ask(holder, "SELECT GET_LOCK('#{name}', 0)")
      -> { ask(holder, "SELECT RELEASE_LOCK('#{name}')") }
    end

    # Lets the server stand still until the proc is called, at the latest when LIMIT is over.
    # @yield [Proc]
    def frozen_until_released(server = @server)
      rescuer = ::Process.spawn("sleep #{LIMIT}; kill -CONT #{server.pid}")
      release, standing = Event.new, Event.new
      freezer = spin { server.frozen { standing.signal; release.await } }
      standing.await
      yield -> { release.signal; freezer.await }
    ensure
      ::Process.kill(:KILL, rescuer)
      ::Process.wait(rescuer)
    end

    # Broken connections do not go back.
    def with(pool)
      pool.acquire do |connection|
        yield connection
      ensure
        pool.discard! if connection.closed?
      end
    end

    # @return [String] a statement that takes long and that no other test has
    def slow
      "SELECT SLEEP(30), '#{name}'"
    end

    # Waits until the server is at that.
    # @return [Integer] on which connection
    def underway
      @watcher ||= open
      sql = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%#{name}%' AND ID <> CONNECTION_ID()"
      sleep 0.002 until (id, = ask(@watcher, sql).first)
      id
    end

    # @return [Fiber] which waits for the answer to a slow query on that connection
    def asking(connection)
      spin(:asking) { ask(connection, slow) }.tap { underway }
    end

    def self.included(base)
      base.test_in_both(:a_query_yields) do
        connection = open
        rows = assert_yields(gate('query')) { ask(connection, "SELECT 1 + GET_LOCK('query', #{LIMIT})") }
        assert_equal [[2]], rows
      end

      base.test_in_both(:queries_and_cancels_over_tls) do
        connection = open(@server.tcp_settings, **tls)
        refute_empty ask(connection, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
        rows = assert_yields(gate('tls')) { ask(connection, "SELECT 1 + GET_LOCK('tls', #{LIMIT})") }
        assert_equal [[2]], rows
        assert_equal [['x' * 200_000]], ask(connection, "SELECT REPEAT('x', 200000)")
        assert_nil(move_on_after(0.02) { ask(connection, slow) })
        assert_equal [[3]], ask(connection, 'SELECT 3')
        frozen_until_released { |release| assert_yields(release) { open(@server.tcp_settings, connect_timeout: LIMIT, read_timeout: LIMIT, **tls) } }
      end

      base.test_in_both(:connecting_yields) do
        frozen_until_released { |release| assert_yields(release) { open(connect_timeout: LIMIT, read_timeout: LIMIT) } }
      end

      base.test_in_both(:connecting_by_tcp_yields) do
        frozen_until_released { |release| assert_yields(release) { open(@server.tcp_settings, connect_timeout: LIMIT, read_timeout: LIMIT) } }
      end

      base.test_in_both(:a_ping_yields) do
        connection = open(read_timeout: LIMIT)
        assert frozen_until_released { |release| assert_yields(release) { connection.ping } }
      end

      base.test_in_both(:a_large_query_yields_while_it_is_sent) do
        connection = open(read_timeout: LIMIT, write_timeout: LIMIT)
        sql = "SELECT LENGTH('#{'x' * 4_000_000}')"
        rows = frozen_until_released { |release| assert_yields(release) { ask(connection, sql) } }
        assert_equal [[4_000_000]], rows
      end

      base.test_in_both(:a_large_answer_yields_while_it_arrives) do
        connection = open
        # The first rows are on their way while the last one waits.
        sql = "SELECT seq, REPEAT('x', 1000), IF(seq = 3000, GET_LOCK('answer', #{LIMIT}), 0) FROM seq_1_to_3000"
        rows = assert_yields(gate('answer')) { ask(connection, sql) }
        assert_equal [3000, 'x' * 1000, 1], rows.last
        assert_equal (1..3000).to_a, rows.map(&:first)
      end
    end

    # --- two fibers, one connection -----------------------------------------------------------

    def test_a_second_fiber_is_told_that_the_connection_is_in_use
      connection = open
      fiber = asking(connection)
      error = assert_raises(Adapters::ConnectionInUse) { ask(connection, 'SELECT 1') }
      assert_match(/asking/, error.message)
      assert_raises(Adapters::ConnectionInUse) { connection.close }
      fiber.stop
      fiber.await
      assert_equal [[1]], ask(connection, 'SELECT 1')
    end

    # --- what ends a wait ---------------------------------------------------------------------

    def test_the_connection_is_in_order_after_each_way_of_cancelling
      connection = open
      assert_equal :over, move_on_after(0.02, with_value: :over) { ask(connection, slow) }
      assert_equal [[1]], ask(connection, 'SELECT 1')
      assert_raises(Cancel) { cancel_after(0.02) { ask(connection, slow) } }
      assert_equal [[2]], ask(connection, 'SELECT 2')
      assert_raises(Timeout::Error) { Timeout.timeout(0.02) { ask(connection, slow) } }
      assert_equal [[3]], ask(connection, 'SELECT 3')
      asking(connection).tap(&:stop).await
      assert_equal [[4]], ask(connection, 'SELECT 4')
      assert_raises(DeadlineExceeded) { deadline(0.02) { ask(connection, slow) } }
      assert_equal [[5]], ask(connection, 'SELECT 5')
      refute_predicate connection, :closed?
    end

    def test_an_exception_raised_in_the_thread_leaves_the_connection_in_order
      connection = open
      thread = Thread.new { ask(connection, slow) }
      thread.report_on_exception = false
      underway
      thread.raise(IOError, 'enough')
      assert_raises(IOError) { thread.value }
      assert_equal [[1]], ask(connection, 'SELECT 1')
    end

    # Raises anew in the middle of bringing a statement to its end, when that method is called. Another thread can do that, in spite of
    # a shield.
    # @return [Object] what the next question then gets, an error or rows
    def answer_after_being_raised_in(method, connection, &work)
      again = TracePoint.new(:call) do |call|
        next unless call.method_id == method && call.self.equal?(connection)

        again.disable
        raise KeyError, 'anew'
      end
      assert_raises(KeyError) { again.enable(target_thread: Thread.current, &work) }
      deadline(LIMIT) { outcome_of { ask(connection, 'SELECT 1') } }
    end

    # Nobody knows what it will say, so nobody listens any more.
    def assert_right_or_lost(answer)
      return assert_equal [[1]], answer unless answer.is_a?(Exception)

      assert_kind_of error_class, answer
      refute_match(/out of sync/, answer.message)
    end

    %i[__kill __settle].each do |method|
      define_method("test_raised_anew_in_#{method}_a_statement_costs_the_connection_and_not_more") do
        connection = open
        answer_after_being_raised_in(method, connection) { move_on_after(0.02) { ask(connection, slow) } }
          .then { |answer| assert_right_or_lost(answer) }
      end
    end

    def test_the_server_does_not_go_on_with_a_cancelled_statement
      connection = open
      move_on_after(0.02) { ask(connection, slow) }
      assert_equal [[0]], ask(open, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%#{name}%' AND ID <> CONNECTION_ID()")
    end

    def test_a_fiber_of_rubys_that_is_killed_in_a_statement_leaves_the_connection_in_order
      connection = open
      raw = Fiber.new { ask(connection, slow) }
      resumer = spin { raw.resume }
      underway
      raw.kill
      resumer.await
      assert_equal [[1]], ask(connection, 'SELECT 1')
    end

    # Ruby's own kill, which no rescue sees.
    def test_a_fiber_that_is_killed_can_roll_back
      Kills.need(self, :fiber)
      connection = open
      ask(connection, 'CREATE OR REPLACE TABLE accounts (balance INT) ENGINE=InnoDB')
      Fiber.new do
        ask(connection, 'BEGIN')
        ask(connection, 'INSERT INTO accounts VALUES (1)')
        Fiber.yield
      ensure
        ask(connection, 'ROLLBACK')
      end.tap(&:resume).kill
      assert_equal [[0]], ask(connection, 'SELECT COUNT(*) FROM accounts')
    end

    def test_a_transaction_can_be_rolled_back_after_a_stop
      connection = open
      ask(connection, 'CREATE OR REPLACE TABLE accounts (balance INT) ENGINE=InnoDB')
      fiber = spin do
        ask(connection, 'BEGIN')
        ask(connection, 'INSERT INTO accounts VALUES (1)')
        ask(connection, slow)
      ensure
        ask(connection, 'ROLLBACK')
        ask(connection, 'INSERT INTO accounts VALUES (2)')
      end
      underway
      fiber.stop
      fiber.await
      assert_equal [[2]], ask(connection, 'SELECT balance FROM accounts')
    end

    def test_ended_at_every_wait_point_the_connection_answers_the_next_question
      connection = open
      cancel_everywhere do |run|
        rows = nil
        run.scenario { rows = ask(connection, 'SELECT 1, SLEEP(0.001)') }
        run.check do |finished|
          assert_equal [[1, 0]], rows if finished
          assert_equal [[run.point]], ask(connection, "SELECT #{run.point}")
        end
      end
    end

    # A connection that is not in order in time is closed, and seen to be.
    # @yield [connection] what is ended
    def without_patience(&scenario)
      [0, 0.001].each do |seconds|
        patience(seconds)
        connection = open
        cancel_everywhere do |run|
          run.scenario { scenario.call(connection) }
          run.check do
            connection = open if connection.closed?
            assert_equal [[run.point]], ask(connection, "SELECT #{run.point}")
          end
        end
      end
    end

    def test_without_patience_a_connection_answers_the_next_question_or_is_closed
      without_patience { |connection| ask(connection, 'SELECT 1, SLEEP(0.001)') }
    end

    def test_connecting_can_be_ended_at_every_wait_point
      cancel_everywhere do |run|
        run.scenario { open.close }
        run.check { @opened.clear }
      end
    end

    # Ways to end a question that takes too long, for a random program.
    WAYS_OUT = {
      none: ->(_limit, &work) { work.call },
      move_on: ->(limit, &work) { move_on_after(limit, &work) },
      cancel: lambda do |limit, &work|
        cancel_after(limit, &work)
      rescue Cancel
        nil
      end,
      timeout: lambda do |limit, &work|
        Timeout.timeout(limit, &work)
      rescue Timeout::Error
        nil
      end,
      stop: lambda do |limit, &work|
        fiber = spin(&work)
        move_on_after(limit) { fiber.await }
      ensure
        fiber.stop
        fiber.await
      end
    }.freeze

    # Ten fibers, three connections. Each question has its own number, and takes about as long as it may.
    def test_nobody_sees_the_rows_of_another
      heavy
      pool = ResourcePool.new(limit: 3) { open }
      answers = Array.new(10) { |i| spin { ask_at_random(pool, Random.new(i), i) } }.flat_map(&:await)
      answered = answers.select(&:last)
      assert_empty(answered.reject { |number, rows| rows == [[number, 0]] || rows == [[number, 0], [-number, 0]] })
      assert_operator answered.size, :<, answers.size
      assert_operator answered.size, :>, answers.size / 5
      assert_equal((0..9).to_a, Array.new(10) { |i| spin { with(pool) { |db| ask(db, "SELECT #{i}") } } }.map { |f| f.await[0][0] })
    end

    # @return [Array<Array(Integer, Array)>] number and rows; nil if it took too long
    def ask_at_random(pool, random, i)
      Array.new(15) do |k|
        number = (i * 100) + k + 1
        pause, limit = random.rand(0.003), random.rand(0.006)
        sql = "SELECT #{number}, SLEEP(#{pause})"
        sql += " UNION ALL SELECT -#{number}, SLEEP(#{pause})" if random.rand < 0.3
        way = WAYS_OUT.values.sample(random: random)
        rows = nil
        with(pool) { |db| way.call(limit) { rows = ask(db, sql) } }
        [number, rows]
      end
    end

    # --- servers and networks that fail ---------------------------------------------------------

    def test_a_frozen_server_costs_the_connection_and_not_more
      patience(0.5)
      connection = open
      began = clock
      @server.frozen do
        assert_nil(move_on_after(0.02) { ask(connection, 'SELECT 1') })
        assert_operator clock - began, :<, patient(4)
        assert_predicate connection, :closed?
        assert_raises(lost) { ask(connection, 'SELECT 2') }
      end
      assert_equal [[3]], ask(open, 'SELECT 3')
    end

    def test_connecting_to_a_frozen_server_can_be_given_up
      @server.frozen do
        assert_equal :over, move_on_after(0.02, with_value: :over) { connect(**@server.settings) }
        assert_equal :over, move_on_after(0.02, with_value: :over) { connect(**@server.tcp_settings) }
      end
    end

    def test_a_lost_connection_is_an_error_for_its_user_alone
      first, second = open, open
      fiber = spin { assert_raises(lost) { ask(first, slow) } }
      ask(second, "KILL CONNECTION #{underway}")
      fiber.await
      assert_predicate first, :closed?
      assert_equal [[1]], ask(second, 'SELECT 1')
    end

    def test_the_pool_heals_after_a_crash_of_the_server
      heavy
      server = MariadbServer.start
      pool = ResourcePool.new(limit: 3) { open(server.settings) }
      results = Array.new(6) { spin { outcome_of { with(pool) { |db| ask(db, 'SELECT SLEEP(20)') } } } }
      sleep 0.002 until pool.size == 3 && busy(server) == 3
      server.kill
      assert_equal [true], results.map { |fiber| fiber.await.is_a?(lost) }.uniq
      server.start
      assert_equal((0..5).to_a, Array.new(6) { |i| spin { with(pool) { |db| ask(db, "SELECT #{i}") } } }.map { |f| f.await[0][0] })
    ensure
      pool&.close(&:close)
      server&.remove
    end

    def busy(server)
      connection = connect(**server.settings)
      ask(connection, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO = 'SELECT SLEEP(20)'")[0][0]
    ensure
      connection&.close
    end

    def outcome_of
      yield
    rescue StandardError => e
      e
    end

    def test_five_hundred_fibers_share_five_connections
      heavy
      pool = ResourcePool.new(limit: 5) { open }
      fibers = Array.new(500) { |i| spin { pool.acquire { |db| ask(db, "SELECT #{i}") } } }
      assert_equal((0...500).map { |i| [[i]] }, fibers.map(&:await))
      assert_equal 5, pool.size
    end

    # --- elsewhere ------------------------------------------------------------------------------

    def test_a_forked_child_leaves_the_connection_of_its_parent_alone
      connection = open
      pid = fork do
        said = outcome_of { ask(connection, 'SELECT 1') }
        connection = nil
        GC.start
        exit!(said.is_a?(Adapters::ForkedConnection) && ask(connect(**@server.settings), 'SELECT 7') == [[7]] ? 0 : 1)
      end
      ::Process.wait(pid)
      assert_predicate $?, :success?
      assert_equal [[2]], ask(connection, 'SELECT 2')
    end

    # The server has the login, and its answer is on the way.
    def test_a_forked_child_leaves_a_connection_alone_that_is_being_made
      proxy = track(TCPServer.new('127.0.0.1', 0))
      making = spin { connect(**@server.tcp_settings, port: proxy.local_address.ip_port) }
      client, server = track(proxy.accept, TCPSocket.new('127.0.0.1', @server.port))
      client << server.readpartial(4096)
      server << client.readpartial(4096)
      answer = server.readpartial(4096)
      ::Process.wait(fork { exit })
      client << answer
      [[client, server], [server, client]].each { |from, to| spin { outcome_of { loop { to << from.readpartial(4096) } } } }
      connection = making.await
      assert_equal [[2]], ask(connection, 'SELECT 2')
      connection.close
    end

    # It has been made, in a thread perhaps, and whoever wants it has not had its turn.
    def test_a_forked_child_leaves_a_connection_alone_that_has_just_been_made
      making = spin { connect(**@server.settings) }
      snooze
      Watchdog::STOCK_SLEEP.bind_call(self, 0.2)
      ::Process.wait(fork { exit })
      connection = making.await
      assert_equal [[2]], ask(connection, 'SELECT 2')
      connection.close
    end

    def test_threads_have_connections_of_their_own
      threads = Array.new(3) do |i|
        Thread.new do
          connection = connect(**@server.settings)
          fibers = Array.new(3) { |k| spin { sleep 0.001 * k; i } }
          [ask(connection, "SELECT #{i}, SLEEP(0.01)"), fibers.map(&:await)]
        ensure
          connection&.close
        end
      end
      assert_equal Array.new(3) { |i| [[[i, 0]], [i] * 3] }, threads.map(&:value)
    end

    def test_in_an_enumerator
      connection = open
      rows = Enumerator.new { |y| 3.times { |i| y << ask(connection, "SELECT #{i}, SLEEP(0.002)") } }
      assert_equal [[[0, 0]], [[1, 0]], [[2, 0]]], Array.new(3) { rows.next }
    end

    def test_the_adapter_comes_by_itself_before_and_after_the_gem
      library = self.class.name.delete_prefix('Test').downcase
      adapted = library == 'trilogy' ? 'Trilogy' : 'Mysql2::Client'
      asks = "print #{adapted}.ancestors.map(&:name).grep(/Polyphony::Adapters::#{adapted}/).size"
      auto, gem = "require 'polyphony/adapters/auto'", "require '#{library}'"
      results = run_rubies(*[[auto, gem], [gem, auto]].map { |both| ["#{both.join('; ')}; #{asks}", { options: bundled }] })
      assert_equal [['1', '']] * 2, results.map { |out, err, _| [out, err] }
    end

    # @return [Array<String>] options of Ruby for the gems of the bundle, without Bundler
    def bundled
      $LOAD_PATH.grep(%r{/vendor/apps/}).map { |path| "-I#{path}" }
    end

    def test_errors_of_the_server_leave_the_connection_open
      connection = open
      error = assert_raises(error_class) { ask(connection, 'SELECT FROM') }
      assert_match(/syntax/, error.message)
      assert(error.backtrace.any? { |line| line.include?(__FILE__) || line.include?(File.basename(__FILE__)) })
      assert_equal [[1]], ask(connection, 'SELECT 1')
    end
  end
end
