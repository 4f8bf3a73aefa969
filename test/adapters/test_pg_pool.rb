# frozen_string_literal: true

require_relative '../support/pg_case'
require 'open3'

# Many users, few connections, and a server that fails.
class TestPGPool < Polyphony::PGCase
  gems 'pg'

  def teardown
    @pool&.close unless @pool&.closed?
    super
  end

  def pool(limit: 2, **settings)
    @pool ||= Polyphony::Adapters::PG::Pool.new({ **server.settings, **settings }, limit: limit)
  end

  def test_settings
    assert_raises(ArgumentError) { Polyphony::Adapters::PG::Pool.new }
    assert_raises(ArgumentError) { Polyphony::Adapters::PG::Pool.new(server.url) { flunk } }
    [Polyphony::Adapters::PG::Pool.new(limit: 1) { PG.connect(server.url, application_name: 'mine') },
     Polyphony::Adapters::PG::Pool.new(**server.settings, application_name: 'mine', limit: 1),
     Polyphony::Adapters::PG::Pool.new(server.settings, application_name: 'mine'),
     Polyphony::Adapters::PG::Pool.new(server.url, application_name: 'mine')].each do |made|
      assert_equal [['mine']], made.exec('show application_name').values
      made.close
    end
    assert_match(/limt/, assert_raises(PG::Error) { Polyphony::Adapters::PG::Pool.new(server.url, limt: 2).exec('select 1') }.message)
    [-1, 'x', nil, Complex(1, 1)].each do |bad|
      error = assert_raises(ArgumentError) { Polyphony::Adapters::PG.drain_time = bad }
      assert_match(/got #{Regexp.escape(bad.inspect)}/, error.message)
    end
  end

  def test_five_hundred_fibers_share_five_connections
    @pool = Polyphony::Adapters::PG::Pool.new(server.settings, limit: 5)
    answers = Fiber.map(1..500) { |id| pool.exec_params('select $1::int', [id]).getvalue(0, 0).to_i }
    assert_equal [*1..500], answers
    assert_equal 5, pool.size
  end

  # Each is told in time who has the connections, and nothing is lost by it.
  def test_five_hundred_fibers_find_the_pool_exhausted
    lock
    holders = %i[first second].map { |tag| spin(tag) { pool.exec(WAIT).values } }
    sleep BEAT until pool.available.zero? && control.exec("select 1 from pg_stat_activity where wait_event = 'advisory'").ntuples == 2
    errors = Fiber.map(1..500) { assert_raises(Polyphony::ResourcePool::Exhausted) { pool.acquire(timeout: 0.01) { flunk } } }
    assert_equal 500, errors.size
    assert_match(/no resource was free within 0.01 s: .*2 of 2 in use.*first.*has .*second.*has /m, errors.last.message)
    unlock
    assert_equal [[['mine']]] * 2, holders.map(&:await)
    assert_equal [*1..500], Fiber.map(1..500) { |id| pool.exec("select #{id}").getvalue(0, 0).to_i }
    assert_equal [2, 2], [pool.size, pool.available]
  end

  def test_threads_share_it
    threads = Array.new(4) { |i| Thread.new { Array.new(20) { |j| pool.exec("select #{i * 100 + j}").getvalue(0, 0).to_i } } }
    threads.each_with_index { |thread, i| assert_equal Array.new(20) { |j| i * 100 + j }, thread.value }
  end

  def test_what_comes_back_is_put_in_order
    @pool = Polyphony::Adapters::PG::Pool.new(server.settings, limit: 1)
    pool.exec('create temp table kept (n int)')
    [->(c) { c.exec('begin; insert into kept values (1)') }, ->(c) { c.exec('begin'); c.exec('selekt') rescue nil }, # rubocop:disable Style/RescueModifier -- short
     ->(c) { c.send_query(LONG) }, ->(c) { c.exec('begin'); c.send_query(LONG) }, ->(c) { c.exec('copy kept from stdin') },
     ->(c) { c.exec('copy (select generate_series(1, 100000)) to stdout') },
     ->(c) { c.enter_pipeline_mode; c.send_query_params(LONG, []) }].each do |use|
      pool.acquire(&use)
      pool.acquire { |connection| assert_at_rest connection }
      assert_equal [['0']], pool.exec('select count(*) from kept').values # the table is there, so it is the same connection
    end
  end

  def test_broken_connections_are_replaced
    @pool = Polyphony::Adapters::PG::Pool.new(server.settings, limit: 1)
    pool.acquire(&:finish)
    assert_equal [['0']], pool.exec('select 0').values
    pool.acquire do |connection|
      terminate connection.backend_pid
      assert_raises(PG::Error) { connection.exec('select 1') }
    end
    assert_equal [['1']], pool.exec('select 1').values
    pool.acquire { pool.discard!.finish }
    assert_equal [['2']], pool.exec('select 2').values
  end

  # Nobody notices that the server has closed what nobody used.
  def test_connections_closed_meanwhile
    terminate pool.backend_pid
    assert_equal [['1']], pool.exec('select 1').values
  end

  def test_a_connection_thrown_away_is_replaced
    Polyphony::Adapters::PG.drain_time = 0
    assert_equal :over, move_on_after(0.01, with_value: :over) { pool.exec(LONG) }
    assert_equal 0, pool.size
    assert_equal [['1']], pool.exec('select 1').values
  end

  def test_a_server_that_is_killed
    mine = Polyphony::PostgresCluster.start
    @pool = Polyphony::Adapters::PG::Pool.new(mine.settings, limit: 3)
    pool.fill!
    asked = 0
    users = Array.new(12) { Fiber.current.spin { asked += 1; pool.exec(LONG) rescue $! } } # rubocop:disable Style/RescueModifier -- short
    sleep BEAT until asked == 12 && mine_sleeping(mine) == 3
    mine.kill
    users.each { |user| assert_kind_of PG::Error, user.await }
    mine.start
    assert_equal [['1']], pool.exec('select 1').values
    pool.close
  ensure
    mine&.remove
  end

  def test_a_network_that_is_cut
    with_link do |link|
      @pool = Polyphony::Adapters::PG::Pool.new(via(link), limit: 2)
      pid = error = nil
      user = spin { pool.acquire { |connection| pid = connection.backend_pid; connection.exec(LONG) } rescue error = $! } # rubocop:disable Style/RescueModifier -- short
      sleep BEAT until pid && control.exec("select 1 from pg_stat_activity where wait_event = 'PgSleep' and pid = #{pid}").ntuples == 1
      link.cut
      user.await
      assert_kind_of PG::ConnectionBad, error
      assert_equal [['1']], pool.exec('select 1').values
      connection = connect(via(link))
      connection.socket_io.shutdown(:RDWR)
      assert_raises(PG::Error) { connection.exec('select 1') }
      pool.close
      terminate pid
    end
  end

  def test_a_child_does_not_log_its_parent_out
    connection = connect(server.tcp_settings, sslmode: 'require')
    pid = pool.backend_pid
    reader, writer = IO.pipe
    child = fork do
      reader.close
      said = begin
        connection.exec('select 1')
      rescue PG::ConnectionBad => e
        e.message
      end
      writer.puts said, pool.exec('select 2').getvalue(0, 0)
      connection.finish
      GC.start
      exit
    end
    writer.close
    Process.wait(child)
    lines = reader.read.lines
    reader.close
    assert_match(/connection is closed: it was made by process #{Process.pid}/, lines[0])
    assert_equal "2\n", lines[1]
    assert_equal pid, pool.backend_pid
    assert_at_rest connection
  end

  def test_a_child_that_forks_in_a_transaction
    connection = connect
    connection.transaction do
      child = fork { exit }
      Process.wait(child)
      assert_equal [['1']], connection.exec('select 1').values
    end
    assert_at_rest connection
  end

  # connection_pool closes what it has in a forked child, in its place among the hooks.
  def test_a_pool_of_others_does_not_log_the_parent_out_in_a_child
    out, status = Open3.capture2e(RbConfig.ruby, '-Ilib', '-rbundler/setup', '-e', <<~'RUBY', server.url)
      %w[connection_pool polyphony/adapters/pg].each { |name| require name }
      pool = ConnectionPool.new(size: 2) { PG.connect(ARGV[0]) }
      pid = pool.with(&:backend_pid)
      Process.wait(fork { puts pool.with(&:backend_pid) == pid })
      puts pool.with { |connection| connection.exec('select pg_backend_pid()').getvalue(0, 0).to_i } == pid
    RUBY
    assert_predicate status, :success?, out
    assert_equal %w[false true], out.lines(chomp: true).last(2), out
  end

  # libpq has closed the socket, and the number may be somebody else's by now.
  def test_a_child_leaves_alone_what_has_got_the_number_of_a_closed_socket
    connection = connect
    connection.exec('create temporary table lines (line text)')
    connection.exec('copy lines from stdin')
    number = connection.socket_io.fileno
    terminate connection.backend_pid
    assert_raises(PG::Error) { loop { connection.put_copy_data("#{'line' * 1000}\n") } }
    refute_predicate connection, :finished?
    reader, writer = pipe_pair until [reader, writer].compact.any? { |io| io.fileno == number }
    Process.wait(fork { writer.write("#{reader.stat.ftype} #{writer.stat.ftype}"); exit! })
    writer.close
    assert_equal 'fifo fifo', reader.read
  end

  def test_auto
    ['require "polyphony/adapters/auto"; require "pg"', 'require "polyphony/adapters/postgres"'].each do |requires|
      script = "#{requires}; puts PG::Connection.include?(Polyphony::Adapters::Exclusive), Polyphony::Adapters::PG::Pool"
      out, status = Open3.capture2(RbConfig.ruby, '-Ilib', '-rbundler/setup', '-e', script, err: File::NULL)
      assert_predicate status, :success?, out
      assert_equal "true\nPolyphony::Adapters::PG::Pool\n", out
    end
  end

  private

  # The kernel closes what is left when the process is gone.
  def terminate(pid)
    control.exec("select pg_terminate_backend(#{pid})")
    sleep BEAT while File.exist?("/proc/#{pid}")
  end

  def mine_sleeping(mine)
    @looking ||= connect(mine.settings)
    @looking.exec("select 1 from pg_stat_activity where wait_event = 'PgSleep'").ntuples
  end
end
