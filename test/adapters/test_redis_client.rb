# frozen_string_literal: true

require_relative '../support/redis_case'

# redis-client in fibers.
class TestRedisClient < Polyphony::RedisCase
  on_every_driver
  gems 'polyphony/adapters/redis_client'

  class Interrupted < StandardError; end

  # Every call that waits lets others run.

  test_in_both :a_connection_and_its_greeting_yield do
    greeted = Polyphony::Event.new
    port = scripted_server do |socket|
      read_command(socket)
      greeted.await
      socket << "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
      read_command(socket)
      socket << "+PONG\r\n"
    end
    redis = keep RedisClient.new(host: '127.0.0.1', port: port, timeout: LIMIT)
    assert_equal 'PONG', assert_yields(-> { greeted.signal }) { redis.call('PING') }
  ensure
    stop_scripts
  end

  test_in_both :commands_yield do
    redis = client
    assert_equal 'OK', assert_writing_yields { redis.call('SET', 'a', 1) }
    assert_equal 'OK', assert_writing_yields { redis.call_once('SET', 'a', 2) }
    assert_equal '2', redis.call('GET', 'a')
  end

  test_in_both :pipelines_and_transactions_yield do
    redis = client
    assert_equal %w[OK 1], assert_writing_yields { redis.pipelined { |all| all.call('SET', 'a', 1); all.call('GET', 'a') } }
    assert_equal [2, 3], assert_writing_yields { redis.multi { |all| 2.times { all.call('INCR', 'a') } } }
    assert_equal [4], assert_writing_yields { redis.multi(watch: ['a']) { |all| all.call('INCR', 'a') } }
  end

  test_in_both :blocking_commands_yield do
    redis = client
    assert_equal %w[queue element], assert_yields(-> { @admin.call('RPUSH', 'queue', 'element') }) { redis.blocking_call(0, 'BLPOP', 'queue', LIMIT) }
    assert_equal %w[queue other], assert_yields(-> { @admin.call('RPUSH', 'queue', 'other') }) { redis.blocking_call(LIMIT, 'BLPOP', 'queue', LIMIT) }
    assert_nil redis.blocking_call(LIMIT, 'BLPOP', 'queue', 0.01)
    short = client.tap { |one| one.call('PING') } # a connect may take longer
    short.read_timeout = 0.01
    assert_raises(RedisClient::ReadTimeoutError) { short.call('BLPOP', 'queue', 0) }
    assert_equal 'PONG', redis.call('PING')
  end

  test_in_both :scripts_and_scans_yield do
    redis = client
    assert_equal 6, assert_writing_yields { redis.call('EVAL', "return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, 'n', 6) }
    @admin.call('MSET', *(1..100).flat_map { |i| ["key#{i}", i] })
    assert_equal 100, while_server_stands { redis.scan(match: 'key*', count: 10).to_a.uniq.size }
  end

  test_in_both :subscriptions_yield do
    news = keep(client.pubsub)
    news.call('SUBSCRIBE', 'channel')
    assert_equal ['subscribe', 'channel', 1], news.next_event
    assert_equal %w[message channel hello], assert_yields(-> { @admin.call('PUBLISH', 'channel', 'hello') }) { news.next_event(LIMIT) }
    assert_nil news.next_event(0.01)
  end

  test_in_both :large_writes_yield_while_the_server_does_not_read do
    redis = client
    redis.call('PING')
    large = 'x' * 8_000_000
    assert_equal 8_000_000, while_server_stands { redis.call('SET', 'large', large); redis.call('STRLEN', 'large') }
  end

  def test_configurations_of_sentinels_are_taken
    found = RedisClient.sentinel(name: 'mymaster', sentinels: [{ host: '127.0.0.1', port: 1 }], timeout: 0.1, reconnect_attempts: 0)
    assert_predicate found, :sentinel?
    assert_respond_to found, :new_shared
    assert_raises(RedisClient::CannotConnectError) { found.new_client.call('PING') }
  end

  # A cancelled command leaves nothing behind.

  CANCELS = {
    a_limit: ->(work) { move_on_after(0.005, &work) },
    an_error_of_a_limit: ->(work) { cancel_after(0.005, with_exception: Interrupted, &work) },
    a_timeout: ->(work) { Timeout.timeout(0.005) { work.call } },
    a_stop: ->(work) { spin(&work).tap { sleep 0.005 }.stop.await },
    a_raise: ->(work) { spin(&work).tap { sleep 0.005 }.raise(Interrupted).await }
  }.freeze

  COMMANDS = {
    a_command: ->(redis) { redis.call('BLPOP', 'none', 0) },
    a_blocking_command: ->(redis) { redis.blocking_call(0, 'BLPOP', 'none', 0) },
    a_pipeline: ->(redis) { redis.pipelined { |all| all.call('PING'); all.call('BLPOP', 'none', 0); all.call('PING') } },
    a_watched_transaction: ->(redis) { redis.multi(watch: ['w']) { |_all| sleep } }
  }.freeze

  COMMANDS.each do |what, command|
    CANCELS.each do |how, cancel|
      define_method("test_#{what}_ended_by_#{how}_leaves_no_reply") do
        redis = client
        begin
          instance_exec(-> { command.call(redis) }, &cancel)
        rescue Interrupted, Timeout::Error
          nil
        end
        eventually_blocked 0 # although the connection has not been used again
        @admin.call('INCR', 'w')
        assert_equal %w[mine], redis.multi { |all| all.call('ECHO', 'mine') }
        assert_equal 'and mine', redis.call('ECHO', 'and mine')
      end
    end
  end

  def test_no_element_goes_to_a_cancelled_BLPOP
    redis = client
    move_on_after(0.005) { redis.call('BLPOP', 'queue', 0) }
    eventually_blocked 0
    @admin.call('RPUSH', 'queue', 'element')
    assert_equal %w[queue element], redis.call('BLPOP', 'queue', 1)
  end

  def test_a_thread_that_is_interrupted_leaves_no_reply
    redis = client
    thread = Thread.new do
      redis.call('BLPOP', 'none', 0)
    rescue Interrupted
      redis.call('ECHO', 'mine')
    end
    eventually_blocked 1
    thread.raise(Interrupted)
    assert_equal 'mine', thread.value
  end

  def test_a_block_that_is_left_watches_no_more
    redis = client
    catch(:out) { redis.multi(watch: ['w']) { throw :out } }
    @admin.call('INCR', 'w')
    assert_equal ['OK'], redis.multi { |all| all.call('SET', 'a', 1) }
  end

  def test_an_error_of_a_command_does_not_close_the_connection
    redis = client
    number = redis.call('CLIENT', 'ID')
    assert_raises(RedisClient::CommandError) { redis.call('FOO') }
    assert_raises(RedisClient::CommandError) { redis.pipelined { |all| all.call('FOO'); all.call('PING') } }
    assert_raises(ZeroDivisionError) { redis.multi(watch: ['w']) { |_all| 1 / 0 } }
    assert_equal number, redis.call('CLIENT', 'ID')
  end

  def test_a_pipeline_that_is_cancelled_while_it_is_written_leaves_no_reply
    redis = client
    redis.call('PING')
    large = 'x' * 100_000
    @server.frozen { move_on_after(0.05) { redis.pipelined { |all| 100.times { |i| all.call('SET', 'large', "#{large}#{i}") } } } }
    assert_equal 'mine', redis.call('ECHO', 'mine')
  end

  def test_a_command_can_be_cancelled_anywhere
    heavy
    points = cancel_everywhere do |run|
      redis = client
      run.scenario { redis.call('SET', 'a', 1); redis.pipelined { |all| 2.times { |i| all.call('ECHO', i) } } }
      run.check { assert_equal 'mine', redis.call('ECHO', 'mine') }
    end
    assert_operator points, :>=, 4
  end

  def test_a_pool_can_be_cancelled_anywhere
    heavy
    points = cancel_everywhere do |run|
      pool = keep config.new_pool(size: 1, timeout: LIMIT)
      run.beside { pool.with { |redis| snooze; assert_equal 'a', redis.call('ECHO', 'a') } }
      run.scenario { pool.call('ECHO', 'b'); pool.with { |redis| redis.multi(watch: ['w']) { |all| all.call('ECHO', 'c') } } }
      run.beside { assert_equal 'd', pool.call('ECHO', 'd') }
      run.check { assert_equal 'mine', pool.call('ECHO', 'mine') }
    end
    assert_operator points, :>=, 4
  end

  # News.

  # In bytes, one at a time: an event can be broken off between any two.
  def test_an_event_that_comes_in_pieces_is_read_to_its_end_however_often_it_is_cancelled
    event = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n"
    go_on = Polyphony::Queue.new
    port = scripted_server do |socket|
      2.times { event.each_char { |byte| go_on.shift; socket << byte } }
      go_on.shift
    end
    news = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_client.pubsub
    ways = [-> { move_on_after(0.001) { news.next_event(0) } }, -> { news.next_event(0.001) }]
    got = Array.new(event.size * 2) { |i| go_on << true; ways[i % 2].call }.compact
    eventually('for two events') { got.concat([news.next_event(0.01)].compact).size == 2 }
    assert_equal [%w[message c hello]] * 2, got
  ensure
    stop_scripts
  end

  def test_a_subscription_does_not_take_the_connection_from_another_fiber
    redis = client
    waiting = spin { redis.blocking_call(0, 'BLPOP', 'queue', 0) }
    eventually_blocked 1
    news = keep(redis.pubsub)
    news.call('SUBSCRIBE', 'channel')
    assert_equal ['subscribe', 'channel', 1], news.next_event
    assert redis.connected?
    @admin.call('RPUSH', 'queue', 1)
    assert_equal %w[queue 1], waiting.await
  end

  # One fiber at a time.

  def test_a_second_fiber_is_refused
    redis = client
    waiting = spin(:first) { redis.blocking_call(0, 'BLPOP', 'queue', 0) }
    eventually_blocked 1
    error = assert_raises(Polyphony::Adapters::ConnectionInUse) { redis.call('PING') }
    assert_match(/first/, error.message)
    @admin.call('RPUSH', 'queue', 1)
    assert_equal %w[queue 1], waiting.await
    assert_equal 'PONG', redis.call('PING')
  end

  def test_a_forked_child_is_not_refused
    redis = client
    waiting = spin { redis.blocking_call(0, 'BLPOP', 'queue', 0) }
    eventually_blocked 1
    reader, writer = IO.pipe
    pid = ::Process.fork { writer << redis.call('ECHO', 'child'); writer.close; exit!(0) }
    writer.close
    assert_equal 'child', reader.read
    ::Process.wait(pid)
    @admin.call('RPUSH', 'queue', 1)
    assert_equal %w[queue 1], waiting.await
  ensure
    reader&.close
  end

  # Pools.

  def test_two_hundred_fibers_share_five_connections_in_order
    heavy
    pool = keep config.new_pool(size: 5, timeout: LIMIT)
    before = @admin.call('INFO', 'stats')[/total_connections_received:(\d+)/, 1].to_i
    order = []
    fibers = Array.new(200) { |i| spin { pool.with { |redis| order << i; redis.call('PING'); sleep 0.0005; redis.call('ECHO', i) } } }
    assert_equal (0..199).map(&:to_s), Fiber.await(*fibers)
    assert_equal (0..199).to_a, order
    assert_equal 5, @admin.call('INFO', 'stats')[/total_connections_received:(\d+)/, 1].to_i - before
  end

  def test_who_uses_a_pool_again_and_again_lets_others_in
    pool = keep config.new_pool(size: 1, timeout: LIMIT)
    turns = []
    greedy = spin { loop { pool.call('PING'); turns << :greedy } }
    eventually { turns.size > 2 }
    turns.clear
    10.times { pool.call('PING'); turns << :other }
    assert_operator turns.count(:greedy), :<=, 11
  ensure
    greedy&.stop
    greedy&.await
  end

  def test_an_exhausted_pool_says_so_in_time_and_heals
    pool = keep config.new_pool(size: 2, timeout: 0.02)
    waiting = Array.new(2) { spin { pool.blocking_call(0, 'BLPOP', 'queue', 0) } }
    eventually_blocked 2
    assert_raises(RedisClient::CheckoutTimeoutError) { pool.call('PING') }
    assert_equal :over, move_on_after(0.001, with_value: :over) { pool.call('PING') }
    waiting.each(&:stop)
    waiting.each(&:await)
    assert_equal %w[PONG] * 10, Fiber.map(1..10, limit: 2) { pool.call('PING') }
  end

  def test_every_reply_belongs_to_its_caller_whoever_is_cancelled
    heavy
    random = Random.new(Minitest.seed)
    pool = keep config.new_pool(size: 3, timeout: LIMIT)
    replies = 0
    fibers = Array.new(40) do |number|
      spin do
        25.times do |i|
          token = "#{number}:#{i}"
          limit = random.rand(4).zero? ? random.rand(0.002) : LIMIT
          got = move_on_after(limit, with_value: :over) { ask(pool, token, random.rand(4)) }
          replies += 1 unless got == :over
          assert_includes [:over, token], got
        end
      end
    end
    stopped = fibers.sample(8, random: random)
    sleep 0.01
    stopped.each(&:stop)
    Fiber.await(*fibers)
    assert_operator replies, :>, 300
  end

  def ask(pool, token, way)
    case way
    when 0 then pool.call('ECHO', token)
    when 1 then pool.pipelined { |all| all.call('ECHO', 'x'); all.call('ECHO', token) }.last
    when 2 then pool.multi { |all| all.call('ECHO', token); all.call('ECHO', 'x') }.first
    else pool.with { |redis| redis.multi(watch: [token]) { |all| all.call('ECHO', token) } }.first
    end
  end

  # Servers that go away.

  def test_a_server_that_is_killed_fails_all_who_wait_and_comes_back
    heavy
    server = Polyphony::RedisServer.start
    pool = keep RedisClient.config(path: server.socket, timeout: LIMIT).new_pool(size: 20, timeout: LIMIT)
    fibers = Array.new(20) { spin { pool.blocking_call(0, 'BLPOP', 'none', 0) rescue $!.class } }
    watch = keep RedisClient.config(path: server.socket).new_client
    eventually { watch.call('INFO', 'clients')[/blocked_clients:(\d+)/, 1] == '20' }
    server.kill
    assert_equal [RedisClient::ConnectionError] * 20, Fiber.await(*fibers)
    assert_raises(RedisClient::CannotConnectError) { pool.call('PING') }
    server.start
    assert_equal ['PONG'] * 20, Fiber.map(1..20) { pool.call('PING') }
  ensure
    server&.remove
  end

  def test_a_connection_that_ends_in_the_middle_of_a_reply
    port = scripted_server do |socket|
      read_command(socket)
      socket << "*2\r\n$5\r\nhello\r\n$5\r\nwo"
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_client
    2.times { assert_raises(RedisClient::ConnectionError) { redis.call('GET', 'a') } }
    2.times { assert_raises(RedisClient::ConnectionError) { redis.pipelined { |all| 2.times { all.call('GET', 'a') } } } }
  ensure
    stop_scripts
  end

  def test_a_frozen_server_is_given_up_in_time
    heavy
    redis = client
    redis.call('PING')
    redis.read_timeout = 0.02
    @server.frozen { assert_raises(RedisClient::ReadTimeoutError) { redis.call('PING') } }
    redis.read_timeout = LIMIT
    assert_equal 'mine', redis.call('ECHO', 'mine')
  end

  def test_five_hundred_fibers_have_a_connection_each
    heavy
    got = Fiber.map(1..500) do |i|
      redis = config.new_client
      [redis.call('ECHO', i), redis.call('ECHO', -i)]
    ensure
      redis&.close
    end
    assert_equal (1..500).map { |i| [i.to_s, (-i).to_s] }, got
  end

  def test_an_unknown_version_is_used_as_it_comes
    assert_empty Polyphony::Adapters::RedisClient.__missing
  end
end
