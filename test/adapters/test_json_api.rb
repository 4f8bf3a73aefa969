# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/app_process'
require_relative '../support/postgres_cluster'
require_relative '../support/redis_server'
require 'json'
require 'net/http'
require 'polyphony/testing'

# The full example, examples/json_api, as its users run it.
class TestJsonApi < Polyphony::AdapterCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  gems 'rack', 'pg', 'sqlite3', 'redis-client'

  SERVE = [File.join(POLYPHONY_ROOT, 'exe/polyphony'), 'serve', File.join(POLYPHONY_ROOT, 'examples/json_api/config.ru'),
           '--bind', 'http://127.0.0.1:0'].freeze

  def teardown
    @server&.stop
    super
  end

  def start(env = {})
    env = { 'POLYPHONY_BACKEND' => Thread.current.backend.kind.to_s, 'DATABASE_URL' => nil, 'REDIS_URL' => nil, **env }
    @server = Polyphony::AppProcess.new(*SERVE, gemfile: '../adapters/Gemfile', env: env, said: %r{listening\s+http://127\.0\.0\.1:(\d+)})
    @server.port
  end

  def get(path)
    parsed Net::HTTP.get_response('127.0.0.1', path, @server.port)
  end

  def post(path, body)
    parsed Net::HTTP.post(URI("http://127.0.0.1:#{@server.port}#{path}"), body)
  end

  def parsed(response)
    [response.code.to_i, JSON.parse(response.body)]
  end

  def assert_shop_works
    status, page = get('/customers/7')
    assert_equal 200, status, page
    assert_equal({ 'id' => 7, 'name' => 'customer 7' }, page['customer'])
    assert_equal [{ 'name' => 'thing 218', 'amount' => 1, 'price' => 342 }], page['orders']
    assert_equal [7, 8, 9, 10, 11], page['recommended'].map { |thing| thing['price'] }
    assert_equal [201, { 'ordered' => 3, 'amount' => 2 }], post('/customers/7/orders', '{"thing": 3, "amount": 2}')
    assert_equal 2, get('/customers/7').last['orders'].size
    assert_mistakes_are_named
  end

  def assert_mistakes_are_named
    assert_equal [404, { 'error' => 'there is no customer 7777' }], get('/customers/7777')
    assert_equal [404, { 'error' => 'nothing is at /x' }], get('/x')
    assert_equal [400, { 'error' => 'send an object with thing and amount, not Array' }], post('/customers/7/orders', '[]')
    assert_equal [400, { 'error' => 'thing and amount must be numbers, got nil and 1' }], post('/customers/7/orders', '{}')
    assert_equal 400, post('/customers/7/orders', '{').first
  end

  # It would answer with strings instead of numbers.
  def test_a_fiber_that_is_ended_while_it_connects_leaves_no_connection_that_is_half_ready
    require_relative '../../examples/json_api/on_postgres'
    require 'polyphony/adapters/pg'
    url = Polyphony::PostgresCluster.shared.url
    cancel_everywhere do |run|
      shop = Shop::OnPostgres.new(url)
      run.scenario do
        shop = Shop::OnPostgres.new(url)
        Shop::OnPostgres.instance_variable_set(:@types, nil)
        shop.query('SELECT 1 AS n')
      end
      run.check do
        assert_equal [{ 'n' => 1 }], shop.query('SELECT 1 AS n')
        shop.instance_variable_get(:@pg).close
      end
    end
  end

  def test_with_sqlite_and_without_a_cache
    start
    assert_shop_works
    assert_predicate @server.stop, :success?, @server.output
  end

  # What a test changes in a database or a server that all share would be seen by others.
  def with_servers
    database = Polyphony::PostgresCluster.start
    redis = Polyphony::RedisServer.start
    start('DATABASE_URL' => "#{database.url}&application_name=shop", 'REDIS_URL' => "redis://127.0.0.1:#{redis.port}")
    yield database, redis
  ensure
    @server&.stop
    [database, redis].each { |server| server&.remove }
  end

  def test_with_postgresql_and_redis
    with_servers do |database, redis|
      assert_shop_works
      admin = PG.connect(database.settings)
      assert_equal '3', admin.exec("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shop'").getvalue(0, 0)
      assert_cached(admin)
      assert_others_are_served(admin)
      admin.finish
      redis.kill
      assert_equal 200, get('/customers/8').first # without the cache
      assert_heals(database)
    end
  end

  def assert_cached(admin)
    first = get('/customers/9')
    admin.exec("UPDATE customers SET name = 'renamed' WHERE id = 9")
    assert_equal first, get('/customers/9')
  end

  # A query that waits keeps nobody else.
  def assert_others_are_served(admin)
    get('/customers/11')
    admin.exec('BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE')
    waiting = spin { get('/customers/10') }
    snooze_until_blocked(admin)
    assert_equal 200, get('/customers/11').first # from the cache
    assert_equal 404, get('/x').first
    refute_predicate waiting, :dead?
    admin.exec('COMMIT')
    assert_equal 200, waiting.await.first
  end

  def snooze_until_blocked(admin)
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shop' AND wait_event_type = 'Lock'"
    sleep 0.01 until admin.exec(blocked).getvalue(0, 0) == '1'
  end

  def assert_heals(database)
    database.kill
    assert_equal 500, Net::HTTP.get_response('127.0.0.1', '/customers/12', @server.port).code.to_i
    database.start
    # Each connection of the pool learns in its own turn that it has been lost.
    tries = (1..10).take_while { Net::HTTP.get_response('127.0.0.1', '/customers/12', @server.port).code != '200' }
    assert_operator tries.size, :<, 10, @server.output
  end
end
