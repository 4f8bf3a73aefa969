# frozen_string_literal: true

require 'minitest/mock'
require_relative '../support/redis_case'

# One connection for many fibers.
class TestSharedRedis < Polyphony::RedisCase
  on_every_driver
  gems 'polyphony/adapters/redis_client'

  class Interrupted < StandardError; end

  def setup
    super
    @redis = shared
  end

  def shared(limit: 1000, **options)
    keep config(**options).new_shared(limit: limit)
  end

  # How many connections the server has had.
  def connections
    @admin.call('INFO', 'stats')[/total_connections_received:(\d+)/, 1].to_i
  end

  # How often the server has read from a client.
  def reads
    @admin.call('INFO', 'stats')[/total_reads_processed:(\d+)/, 1].to_i
  end

  # --- calls ---

  test_in_both :calls_yield do
    assert_equal 'OK', assert_writing_yields { @redis.call('SET', 'a', 1) }
    assert_equal %w[OK 2], assert_writing_yields { @redis.pipelined { |all| all.call('SET', 'a', 2); all.call('GET', 'a') } }
    assert_equal [3, 4], assert_writing_yields { @redis.multi { |all| 2.times { all.call('INCR', 'a') } } }
    assert_equal ['a'], while_server_stands { @redis.scan(match: 'a').to_a }
  end

  def test_it_has_the_methods_of_a_client
    assert_equal 'OK', @redis.call_v(%w[SET a 1])
    assert_equal 2, @redis.call_once('INCR', 'a')
    assert_equal(-2, @redis.call('GET', 'a') { |value| -value.to_i })
    assert_equal [true, nil], @redis.pipelined { |all| all.call('EXISTS', 'a') { |n| n == 1 }; all.call('GET', 'none') }
    assert_empty(@redis.pipelined { nil })
    assert_empty(@redis.multi { nil })
    @redis.call('HSET', 'h', { 'x' => 1, 'y' => 2 })
    assert_equal({ 'x' => '1', 'y' => '2' }, @redis.call('HGETALL', 'h'))
    assert_equal [%w[x 1], %w[y 2]], @redis.hscan('h').to_a.sort
    assert_equal 6, @redis.call('EVAL', 'return ARGV[1] * 2', 0, 3)
    assert_kind_of Float, @redis.measure_round_trip_delay
    assert_equal 'PONG', @redis.with { |redis| redis.call('PING') }
    assert_match(/SharedRedis .*, 0 of 1000 outstanding/, @redis.inspect)
    assert_equal 'a' * 300_000, @redis.call('ECHO', 'a' * 300_000)
    assert_equal "\xFF\r\n".b, @redis.call('ECHO', "\xFF\r\n".b)
  end

  def test_it_is_made_from_options_too
    redis = keep Polyphony::Adapters::SharedRedis.new(path: @server.socket, db: 3, limit: 5)
    redis.call('SET', 'a', 1)
    assert_nil @redis.call('GET', 'a')
    assert_equal 5, redis.limit
    [0, -1, nil, 1.5].each { |limit| assert_raises(ArgumentError) { config.new_shared(limit: limit) } }
  end

  def test_another_driver_is_refused
    other = config
    other.instance_variable_set(:@driver, Class.new)
    assert_match(/say driver: :ruby/, assert_raises(ArgumentError) { other.new_shared }.message)
  end

  def test_many_fibers_have_one_connection_and_few_writes
    heavy
    @redis.call('PING')
    connected = connections
    before = reads
    got = Fiber.map(1..500) { |i| [@redis.call('ECHO', i), @redis.call('ECHO', -i)] }
    assert_equal (1..500).map { |i| [i.to_s, (-i).to_s] }, got
    assert_equal connected, connections
    assert_operator reads - before, :<, 60
  end

  def test_errors_go_to_their_caller_alone
    outcomes = Fiber.map(1..30) do |i|
      i % 3 == 0 ? @redis.call('FOO', i) : @redis.call('ECHO', i)
    rescue RedisClient::CommandError => e
      [e.command, e.message[/unknown command/]]
    end
    assert_equal (1..30).map { |i| i % 3 == 0 ? [['FOO', i.to_s], 'unknown command'] : i.to_s }, outcomes
    error = assert_raises(RedisClient::CommandError) { @redis.pipelined { |all| all.call('PING'); all.call('FOO'); all.call('PING') } }
    assert_equal %w[FOO], error.command
    @redis.call('SET', 's', 'x')
    assert_raises(RedisClient::CommandError) { @redis.multi { |all| all.call('INCR', 's'); all.call('PING') } }
    assert_equal 'PONG', @redis.call('PING')
  end

  def test_a_transaction_stays_together
    Fiber.map(1..50) do |i|
      got = @redis.multi { |all| 3.times { all.call('RPUSH', 'list', i) } }
      assert_equal [got.first, got.first + 1, got.first + 2], got
    end
    assert(@redis.call('LRANGE', 'list', 0, -1).each_slice(3).all? { |slice| slice.uniq.size == 1 })
  end

  def test_middlewares_see_every_command
    seen = []
    middleware = Module.new do
      define_method(:call) { |command, config, &block| seen << command.first; super(command, config, &block) }
      define_method(:call_pipelined) { |commands, config, &block| seen << commands.map(&:first); super(commands, config, &block) }
    end
    redis = shared(middlewares: [middleware])
    redis.call('PING')
    redis.pipelined { |all| all.call('ECHO', 1) }
    assert_equal ['PING', ['ECHO']], seen - [['HELLO']]
  end

  # --- refusals ---

  REFUSED = {
    %w[BLPOP q 0] => /new_pool/, %w[brpop q 0] => /new_client/, %w[XREAD BLOCK 0 STREAMS s $] => /new_client/,
    %w[XREADGROUP GROUP g c block 0 STREAMS s >] => /new_client/, %w[WAIT 1 0] => /new_client/,
    %w[MULTI] => /multi \{/, %w[EXEC] => /multi \{/, %w[DISCARD] => /multi \{/, %w[WATCH k] => /new_client/,
    %w[SUBSCRIBE c] => /pubsub/, %w[psubscribe c] => /pubsub/, %w[MONITOR] => /pubsub/, %w[AUTH secret] => /configuration/,
    %w[HELLO 3] => /configuration/, %w[select 1] => /configuration/, %w[QUIT] => /configuration/, %w[RESET] => /configuration/,
    %w[CLIENT REPLY OFF] => /new_client/, %w[client tracking on] => /new_client/, %w[SCRIPT DEBUG YES] => /new_client/
  }.freeze

  def test_what_concerns_all_is_refused_with_a_way_out
    REFUSED.each do |command, way_out|
      error = assert_raises(Polyphony::Adapters::SharedRedis::Refused, command.join(' ')) { @redis.call_v(command) }
      assert_match(/\A#{command.first} .*cannot be used on a shared connection/i, error.message)
      assert_match way_out, error.message
      assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.pipelined { |all| all.call('PING'); all.call_v(command) } }
    end
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.blocking_call(1, 'BLPOP', 'q', 1) }
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.blocking_call_v(1, %w[BLPOP q 1]) }
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.pipelined { |all| all.blocking_call(1, 'BLPOP', 'q', 1) } }
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.multi(watch: ['a']) { nil } }
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.multi { |all| all.call('SELECT', 1) } }
    assert_raises(Polyphony::Adapters::SharedRedis::Refused) { @redis.pipelined { |all| all.call('MULTI'); all.call('EXEC') } }
    assert_equal 0, @redis.outstanding
  end

  def test_what_looks_like_it_is_not_refused
    @redis.call('XADD', 'BLOCK', '*', 'a', 1)
    assert_equal ['BLOCK'], @redis.call('XREAD', 'STREAMS', 'BLOCK', 0).map(&:first)
    assert_kind_of Integer, @redis.call('CLIENT', 'ID')
    assert_equal [1], @redis.call('SCRIPT', 'EXISTS', @redis.call('SCRIPT', 'LOAD', 'return 1'))
  end

  def test_a_subscription_has_a_connection_of_its_own
    news = keep(@redis.pubsub)
    news.call('SUBSCRIBE', 'channel')
    assert_equal 'subscribe', news.next_event.first
    assert_equal 1, @redis.call('PUBLISH', 'channel', 'hello')
    assert_equal %w[message channel hello], news.next_event
  end

  # --- cancels ---

  def test_the_reply_of_a_cancelled_caller_is_dropped
    @redis.call('PING') # it waits for the reply then, not for a connection
    held_back do
      cancelled_in_flight(@redis) { @redis.call('SET', 'a', 1) }
      assert_equal 1, @redis.outstanding
    end
    assert_equal 'mine', @redis.call('ECHO', 'mine')
    assert_equal 0, @redis.outstanding
    assert_equal '1', @redis.call('GET', 'a')
  end

  # Ends the block when its command has been sent.
  def cancelled_in_flight(redis)
    before = redis.outstanding
    fiber = spin { yield }
    eventually { redis.outstanding > before && fiber.state == :waiting }
    fiber.stop
    fiber.await
  end

  # @yield while the server holds writes back
  def held_back
    @admin.call('CLIENT', 'PAUSE', LIMIT * 500, 'WRITE')
    yield
  ensure
    @admin.call('CLIENT', 'UNPAUSE')
  end

  def test_who_reads_for_all_can_be_cancelled
    fibers = nil
    held_back do
      fibers = Array.new(5) { |i| spin { @redis.call('SET', 'a', i); @redis.call('ECHO', i) } }
      eventually { @redis.outstanding == 5 && fibers.all? { |fiber| fiber.state == :waiting } }
      fibers.first(3).each(&:stop)
      fibers.first(3).each(&:await)
    end
    assert_equal %w[3 4], fibers.last(2).map(&:await)
    assert_equal connections, connections
    assert_equal 'PONG', @redis.call('PING')
  end

  def test_calls_can_be_cancelled_anywhere
    heavy
    points = cancel_everywhere do |run|
      redis = shared
      others = []
      run.scenario { redis.call('ECHO', 1); redis.pipelined { |all| 3.times { |i| all.call('ECHO', i) } } }
      3.times { |i| run.beside { others << redis.call('ECHO', i).to_i << redis.call('ECHO', i + 10).to_i } }
      run.check do
        assert_equal [0, 1, 2, 10, 11, 12], others.sort
        assert_equal 'mine', redis.call('ECHO', 'mine')
        assert_equal 0, redis.outstanding
        redis.close
      end
    end
    assert_operator points, :>=, 4
  end

  # The replies come byte by byte, and whoever is reading is cancelled in between.
  def test_a_reader_can_be_cancelled_in_the_middle_of_a_reply
    go_on = Polyphony::Queue.new
    answer = "*2\r\n$2\r\nab\r\n:42\r\n"
    port = scripted_server do |socket|
      4.times { read_command(socket) }
      (answer * 4).each_char { |byte| go_on.shift; socket << byte }
      go_on.shift
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_shared
    fibers = Array.new(4) { spin { redis.call('GET', 'a') } }
    eventually { redis.outstanding == 4 && fibers.all? { |fiber| fiber.state == :waiting } }
    (answer.size * 4).times do |i|
      go_on << true
      sleep 0.0005
      fibers[i / 5].stop if i % 5 == 3 && i < 15
    end
    assert_equal ['ab', 42], fibers.last.await
  ensure
    fibers&.each(&:stop)
    stop_scripts
  end

  def test_every_reply_belongs_to_its_caller_whoever_is_cancelled
    heavy
    random = Random.new(Minitest.seed)
    redis = shared(limit: 20)
    replies = 0
    fibers = Array.new(60) do |number|
      spin do
        20.times do |i|
          token = "#{number}:#{i}"
          limit = random.rand(3).zero? ? random.rand(0.002) : LIMIT
          got = move_on_after(limit, with_value: :over) { ask(redis, token, random.rand(4)) }
          replies += 1 unless got == :over
          assert_includes [:over, token], got
        end
      rescue Interrupted
        nil
      end
    end
    sleep 0.005
    fibers.sample(10, random: random).each { |fiber| random.rand(2).zero? ? fiber.stop : fiber.raise(Interrupted) }
    Fiber.await(*fibers)
    assert_operator replies, :>, 300
    assert_equal 'mine', redis.call('ECHO', 'mine')
    assert_equal 0, redis.outstanding
  end

  def ask(redis, token, way)
    case way
    when 0 then redis.call('ECHO', token)
    when 1 then redis.pipelined { |all| all.call('ECHO', 'x'); all.call('ECHO', token) }.last
    when 2 then redis.multi { |all| all.call('ECHO', token); all.call('ECHO', 'x') }.first
    else redis.call('FOO', token)
    end
  rescue RedisClient::CommandError => e
    e.command.last
  end

  # --- limits ---

  def test_who_comes_when_all_places_are_taken_waits_in_order
    redis = shared(limit: 3)
    order = []
    held_back do
      fibers = Array.new(10) { |i| spin { redis.call('SET', 'a', i); order << i } }
      eventually { redis.outstanding == 3 && fibers.all? { |fiber| fiber.state == :waiting } }
      @admin.call('CLIENT', 'UNPAUSE')
      Fiber.await(*fibers)
    end
    assert_equal (0..9).to_a, order
  end

  def test_a_pipeline_larger_than_the_limit_goes_alone
    redis = shared(limit: 3)
    fibers = Array.new(20) { |i| spin { redis.call('ECHO', i) } }
    assert_equal (0..9).map(&:to_s), redis.pipelined { |all| 10.times { |i| all.call('ECHO', i) } }
    assert_equal (0..19).map(&:to_s), Fiber.await(*fibers)
  end

  def test_places_of_cancelled_callers_become_free
    redis = shared(limit: 2)
    redis.call('PING') # they wait for replies then, not for a connection
    held_back do
      2.times { cancelled_in_flight(redis) { redis.call('SET', 'a', 1) } }
      assert_equal 2, redis.outstanding
      move_on_after(0.002) { redis.call('PING') }
      waiting = Array.new(3) { |i| spin { redis.call('ECHO', i) } }
      snooze
      @admin.call('CLIENT', 'UNPAUSE')
      assert_equal %w[0 1 2], Fiber.await(*waiting)
    end
  end

  # --- broken connections ---

  def test_a_broken_connection_fails_all_who_wait_and_the_next_connects_again
    connected = connections
    @redis.call('PING') # they wait for replies then, not for a connection
    held_back do
      fibers = Array.new(10) { |i| spin { @redis.call('SET', 'a', i) rescue $! } }
      eventually { @redis.outstanding == 10 && fibers.all? { |fiber| fiber.state == :waiting } }
      @admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
      errors = Fiber.await(*fibers)
      assert_equal [RedisClient::ConnectionError] * 10, errors.map(&:class)
      assert_equal 10, errors.uniq(&:object_id).size
    end
    assert_equal 'PONG', @redis.call('PING')
    assert_equal 2, connections - connected
  end

  def test_commands_are_tried_again_where_the_configuration_says_so
    redis = shared(reconnect_attempts: 1)
    number = redis.call('CLIENT', 'ID')
    held_back do
      fibers = Array.new(5) { |i| spin { redis.call('SET', "a#{i}", i) } }
      once = spin { redis.call_once('SET', 'b', 1) rescue $!.class }
      eventually { redis.outstanding == 6 && fibers.all? { |fiber| fiber.state == :waiting } }
      @admin.call('CLIENT', 'KILL', 'ID', number)
      assert_equal RedisClient::ConnectionError, once.await
      @admin.call('CLIENT', 'UNPAUSE')
      assert_equal ['OK'] * 5, Fiber.await(*fibers)
    end
  end

  def test_a_server_that_is_killed_and_comes_back
    heavy
    server = Polyphony::RedisServer.start
    redis = keep RedisClient.config(path: server.socket, timeout: LIMIT).new_shared
    redis.call('PING')
    server.frozen do
      fibers = Array.new(50) { spin { redis.call('PING') rescue $!.class } }
      eventually { redis.outstanding == 50 && fibers.all? { |fiber| fiber.state == :waiting } }
      server.kill
      assert_equal [RedisClient::ConnectionError] * 50, Fiber.await(*fibers)
      assert_equal [RedisClient::CannotConnectError] * 5, Fiber.map(1..5) { redis.call('PING') rescue $!.class }
      server.start
    end
    assert_equal ['PONG'] * 5, Fiber.map(1..5) { redis.call('PING') }
  ensure
    server&.remove
  end

  def test_a_frozen_server_is_given_up_in_time
    heavy
    redis = shared(timeout: 0.05)
    redis.call('PING')
    @server.frozen do
      errors = Fiber.map(1..20) { redis.call('PING') rescue $!.class }
      assert_equal [RedisClient::ReadTimeoutError], errors.uniq
    end
    redis.read_timeout = redis.connect_timeout = LIMIT
    assert_equal 0, redis.outstanding
    eventually { redis.call('PING') == 'PONG' rescue false }
  end

  def test_a_large_batch_is_written_whole_although_the_writer_is_cancelled
    @redis.call('PING')
    writer = other = nil
    @server.frozen do
      writer = spin { @redis.call('SET', 'large', 'x' * 8_000_000) }
      other = spin { @redis.call('ECHO', 'other') }
      eventually { @redis.outstanding == 2 && [writer, other].all? { |fiber| fiber.state == :waiting } }
      writer.stop
    end
    writer.await
    assert_equal 'other', other.await
    assert_equal 8_000_000, @redis.call('STRLEN', 'large')
  end

  def test_a_connection_that_ends_in_the_middle_of_a_reply
    port = scripted_server do |socket|
      read_command(socket)
      socket << "$5\r\nhe"
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_shared
    2.times do
      assert_equal [RedisClient::ConnectionError] * 3, Fiber.map(1..3) { redis.call('GET', 'a') rescue $!.class }
      assert_equal 0, redis.outstanding
    end
  ensure
    stop_scripts
  end

  def test_a_version_that_keeps_its_buffer_elsewhere_is_refused
    Polyphony::Adapters::RedisClient::Resumable.stub(:wrap, ->(connection) { connection }) do
      errors = Fiber.map(1..2) { @redis.call('PING') rescue $!.message }
      assert_match(/keeps its buffer where it cannot be shared: use config.new_pool/, errors.uniq.join)
    end
    assert_equal 'PONG', @redis.call('PING')
  end

  def test_a_server_that_is_not_there
    redis = keep RedisClient.config(path: '/nowhere').new_shared
    errors = Fiber.map(1..5) { redis.call('PING') rescue $! }
    assert_equal [RedisClient::CannotConnectError], errors.map(&:class).uniq
    assert_equal 0, redis.outstanding
  end

  def test_who_connects_can_be_cancelled
    greeted = Polyphony::Event.new
    clients = 0
    port = scripted_server do |socket|
      clients += 1
      read_command(socket)
      greeted.await if clients == 1
      socket << "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
      loop { socket << "+#{read_command(socket).last}\r\n" }
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, timeout: LIMIT).new_shared
    fibers = Array.new(3) { |i| spin { redis.call('ECHO', i) } }
    eventually { clients == 1 }
    fibers.first.stop
    assert_equal %w[1 2], fibers.last(2).map(&:await)
  ensure
    stop_scripts
  end

  def test_closing_fails_those_who_wait
    held_back do
      fibers = Array.new(3) { |i| spin { @redis.call('SET', 'a', i) rescue $! } }
      eventually { @redis.outstanding == 3 && fibers.all? { |fiber| fiber.state == :waiting } }
      @redis.close
      errors = Fiber.await(*fibers)
      assert_equal [RedisClient::ConnectionError] * 3, errors.map(&:class)
      assert_match(/closed/, errors.first.message)
      refute_predicate @redis, :connected?
    end
    assert_equal 'PONG', @redis.call('PING')
    assert_predicate @redis, :connected?
  end

  def test_news_that_nobody_asked_for_is_dropped
    port = scripted_server do |socket|
      socket << ">2\r\n+invalidate\r\n*1\r\n+a\r\n"
      loop { socket << "+#{read_command(socket).last}\r\n>1\r\n+news\r\n" }
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_shared
    assert_equal %w[0 1 2], Fiber.map(0..2) { |i| redis.call('ECHO', i) }
    assert_equal 'x', redis.call('ECHO', 'x')
  ensure
    stop_scripts
  end

  def test_garbage_fails_all_and_the_next_connects_again
    first = true
    port = scripted_server do |socket|
      2.times { read_command(socket) } if first
      socket << "?what\r\n" if first
      first = false
      loop { socket << "+#{read_command(socket).last}\r\n" }
    end
    redis = keep RedisClient.config(host: '127.0.0.1', port: port, protocol: 2, timeout: LIMIT).new_shared
    assert_equal [RedisClient::ProtocolError] * 2, Fiber.map(1..2) { |i| redis.call('ECHO', i) rescue $!.class }
    assert_equal 'x', redis.call('ECHO', 'x')
  ensure
    stop_scripts
  end

  # --- threads and processes ---

  def test_each_thread_has_a_connection
    heavy
    number = @redis.call('CLIENT', 'ID')
    numbers = Array.new(3) { Thread.new { Fiber.map(1..20) { @redis.call('CLIENT', 'ID') }.uniq } }.map(&:value)
    assert_equal [1] * 3, numbers.map(&:size)
    assert_equal 4, [number, *numbers.flatten].uniq.size
    assert_equal number, @redis.call('CLIENT', 'ID')
  end

  def test_connections_of_ended_threads_are_closed
    number = Thread.new { @redis.call('CLIENT', 'ID') }.value
    Thread.new { @redis.call('PING') }.join
    eventually { @admin.call('CLIENT', 'LIST').lines.none? { |line| line[/\Aid=(\d+)/, 1].to_i == number } }
  end

  def test_another_thread_closes
    error = nil
    held_back do
      thread = Thread.new { @redis.call('SET', 'a', 1) rescue error = $! }
      eventually { @admin.call('CLIENT', 'LIST')[/cmd=set/] }
      @redis.close
      thread.join
    end
    assert_kind_of RedisClient::ConnectionError, error
    assert_equal 'PONG', @redis.call('PING')
  end

  def test_a_forked_child_has_its_own
    waiting = nil
    number = @redis.call('CLIENT', 'ID')
    held_back do
      waiting = spin { @redis.call('SET', 'a', 1) }
      eventually { @redis.outstanding == 1 && waiting.state == :waiting }
      reader, writer = IO.pipe
      pid = ::Process.fork { writer << @redis.call('CLIENT', 'ID'); writer.close; exit!(0) }
      writer.close
      refute_equal number.to_s, reader.read
      reader.close
      ::Process.wait(pid)
    end
    assert_equal 'OK', waiting.await
    assert_equal number, @redis.call('CLIENT', 'ID')
  end
end
