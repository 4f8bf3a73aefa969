# frozen_string_literal: true

require_relative '../support/redis_case'

# redis (redis-rb) in fibers.
class TestRedis < Polyphony::RedisCase
  on_every_driver
  gems 'polyphony/adapters/redis'

  def redis(**options)
    keep Redis.new(path: @server.socket, timeout: LIMIT, **options)
  end

  test_in_both :commands_yield do
    mine = redis
    assert_equal 'OK', assert_writing_yields { mine.set('a', 1) }
    assert_equal %w[OK 2], assert_writing_yields { mine.pipelined { |all| all.set('a', 2); all.get('a') } }
    assert_equal [3, 4], assert_writing_yields { mine.multi { |all| 2.times { all.incr('a') } } }
    assert_equal [5], assert_writing_yields { mine.watch('a') { mine.multi { |all| all.incr('a') } } }
    assert_equal %w[queue x], assert_yields(-> { @admin.call('RPUSH', 'queue', 'x') }) { mine.blpop('queue', timeout: LIMIT) }
    assert_nil mine.blpop('queue', timeout: 0.01)
    assert_equal ['a'], while_server_stands { mine.scan_each(match: 'a').to_a }
  end

  test_in_both :a_subscription_yields_until_it_is_ended do
    mine = redis
    heard = []
    publish = -> { @admin.call('PUBLISH', 'channel', 'hello') }
    assert_yields(publish) do
      mine.subscribe('channel') do |on|
        on.subscribe { |channel, count| heard << [channel, count] }
        on.message { |channel, text| heard << [channel, text]; mine.unsubscribe }
        on.unsubscribe { |channel, count| heard << [channel, count] }
      end
    end
    assert_equal [['channel', 1], %w[channel hello], ['channel', 0]], heard
    assert_equal 'PONG', mine.ping
  end

  def test_a_cancelled_subscription_is_gone
    mine = redis
    move_on_after(0.01) { mine.subscribe('channel') { |on| on.message { flunk } } }
    eventually('for the end of the subscription') { @admin.call('PUBLISH', 'channel', 'hello').zero? }
    assert_equal 'PONG', mine.ping
    assert_equal %w[x], mine.pipelined { |all| all.echo('x') }
  end

  def test_another_fiber_ends_a_subscription
    mine = redis
    subscribed = Polyphony::Event.new
    listener = spin { mine.subscribe('channel') { |on| on.subscribe { subscribed.signal } } }
    subscribed.await
    assert_equal 'PONG', mine.ping
    mine.unsubscribe('channel')
    listener.await
  end

  def test_fibers_wait_for_each_other_in_order
    mine = redis
    first = spin { mine.blpop('queue', timeout: LIMIT) }
    eventually_blocked 1
    order = []
    others = Array.new(50) { |i| spin { mine.echo(i.to_s).tap { order << i } } }
    @admin.call('RPUSH', 'queue', 'x')
    assert_equal %w[queue x], first.await
    assert_equal (0..49).map(&:to_s), Fiber.await(*others)
    assert_equal (0..49).to_a, order
  end

  def test_a_fiber_that_is_cancelled_while_it_waits_for_another_disturbs_nobody
    mine = redis
    first = spin { mine.blpop('queue', timeout: LIMIT) }
    eventually_blocked 1
    assert_equal :over, move_on_after(0.005, with_value: :over) { mine.ping }
    @admin.call('RPUSH', 'queue', 'x')
    assert_equal %w[queue x], first.await
  end

  def test_a_cancelled_command_leaves_no_reply
    mine = redis(reconnect_attempts: 0)
    [-> { mine.blpop('none', timeout: 0) }, -> { mine.watch('w') { sleep } }, -> { mine.call('BLPOP', 'none', 0) },
     -> { mine.pipelined { |all| all.ping; all.call('BLPOP', 'none', 0) } }].each do |command|
      move_on_after(0.005, &command)
      eventually_blocked 0
      @admin.call('INCR', 'w')
      assert_equal %w[mine], mine.multi { |all| all.echo('mine') }
      assert_equal 'mine', mine.echo('mine')
    end
  end

  def test_a_subscription_beside_a_command_has_its_own_connection
    mine = redis
    waiting = spin { mine.blpop('queue', timeout: LIMIT) }
    eventually_blocked 1
    mine.subscribe('channel') { |on| on.subscribe { mine.unsubscribe } }
    @admin.call('RPUSH', 'queue', 'x')
    assert_equal %w[queue x], waiting.await
  end

  def test_errors_are_those_of_the_gem
    assert_raises(Redis::CommandError) { redis.call('FOO') }
    assert_raises(Redis::CannotConnectError) { Redis.new(path: '/nowhere', reconnect_attempts: 0).ping }
    assert_raises(Redis::TimeoutError) { redis(timeout: 0.01, reconnect_attempts: 0).call('BLPOP', 'none', 0) }
  end

  def test_every_reply_belongs_to_its_caller_whoever_is_cancelled
    heavy
    mine = redis
    random = Random.new(Minitest.seed)
    Fiber.map(1..20) do |number|
      20.times do |i|
        token = "#{number}:#{i}"
        limit = random.rand(3).zero? ? random.rand(0.003) : LIMIT
        assert_includes [:over, token], move_on_after(limit, with_value: :over) { mine.echo(token) }
      end
    end
  end
end
