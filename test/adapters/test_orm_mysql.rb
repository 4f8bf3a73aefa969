# frozen_string_literal: true

require_relative '../support/orm_case'
require 'polyphony/testing'
require_relative '../support/kills'

# Sequel and Active Record with mysql2 and with trilogy, against MariaDB.
class TestOrmMysql < Polyphony::OrmCase
  include Polyphony::Testing::CancelEverywhere

  # The same words for both.
  class SequelWorld
    def initialize(driver, server, size)
      @db = ::Sequel.connect(adapter: driver, **server.settings.transform_keys(username: :user), max_connections: size, pool_timeout: 30)
    end

    def value(sql)
      @db.fetch("select #{sql}").get
    end

    def run(sql)
      @db.run(sql)
    end

    def transaction(&block)
      @db.transaction(&block)
    end

    def busy
      @db.pool.holders.size
    end

    def close
      @db.disconnect
      ::Sequel.synchronize { ::Sequel::DATABASES.delete(@db) }
    end
  end

  # And here.
  class RecordWorld
    def initialize(driver, server, size)
      @base = Class.new(::ActiveRecord::Base) do
        self.abstract_class = true
        define_singleton_method(:name) { 'MysqlRecord' }
      end
      @base.establish_connection(adapter: driver, **server.settings, pool: size, checkout_timeout: 30, reaping_frequency: 0)
    end

    def value(sql)
      @base.with_connection { |connection| connection.select_value("select #{sql}") }
    end

    def run(sql)
      @base.with_connection { |connection| connection.execute(sql) }
    end

    def transaction(&block)
      @base.transaction(&block)
    end

    def busy
      @base.connection_pool.stat[:busy]
    end

    def close
      @base.connection_pool.disconnect!
      @base.remove_connection
    end
  end

  WORLDS = { sequel: [SequelWorld, 'sequel'], active_record: [RecordWorld, 'active_record'] }.freeze
  DRIVERS = %w[mysql2 trilogy].freeze

  # In a spun fiber: the drivers themselves are tried in both kinds elsewhere.
  def self.test_in_all(title, &block)
    WORLDS.to_a.product(DRIVERS).each do |(name, (world, feature)), driver|
      define_method("test_#{name}_on_#{driver}_#{title}") { in_world(world, feature, driver) { spin { instance_exec(&block) }.await } }
    end
  end

  def teardown
    Fiber.current.shutdown_all_children
    @world&.close
    @helper&.close
    super
  end

  test_in_all(:a_query_yields) do
    lock
    assert_equal 1, assert_yields(-> { unlock }) { @world.value("get_lock('orm', 20)") }
  end

  test_in_all(:a_query_that_is_broken_off_leaves_nothing_to_the_next) do
    lock
    asking = Array.new(2) { spin { @world.value("get_lock('orm', 20)") } }
    await_waiting(2)
    asking.each(&:stop)
    Fiber.await(asking)
    assert_equal [5, 6, 7], Fiber.await([5, 6, 7].map { |i| spin { @world.value(i) } })
    unlock
    assert_equal 0, @world.busy
  end

  test_in_all(:a_transaction_stopped_in_a_query_is_rolled_back) do
    with_table do
      lock
      writing = spin { @world.transaction { @world.run('insert into things values (1)'); @world.value("get_lock('orm', 20)") } }
      await_waiting
      writing.stop(:stopped)
      assert_equal :stopped, writing.await
      unlock
      assert_equal [0, 0], [@world.busy, @world.value('count(*) from things')]
    end
  end

  test_in_all(:a_stopped_transaction_is_rolled_back) do
    with_table do
      written = Polyphony::Event.new
      writing = spin { @world.transaction { @world.run('insert into things values (1)'); written.signal; sleep } }
      written.await
      writing.stop
      writing.await
      assert_equal [0, 0], [@world.busy, @world.value('count(*) from things')]
    end
  end

  # Sequel asks for the version of the server in the middle of its first one.
  DRIVERS.each do |driver|
    define_method("test_sequel_on_#{driver}_a_first_transaction_that_is_ended_anywhere") do
      in_world(SequelWorld, 'sequel', driver) do
        cancel_everywhere(turns: 1_000_000) do |run|
          world = SequelWorld.new(driver, @server, 1)
          run.scenario { world.transaction { world.value(1) } }
          run.check do
            assert_equal [2, 0], [world.value(2), world.busy]
            world.close
          end
        end
      end
    end
  end

  Polyphony::Kills::WAYS.each do |name, way|
    test_in_all(:"a_transaction_is_rolled_back_in_a_killed_#{name}") do
      Polyphony::Kills.need(self, name)
      with_table do
        way.call(->(pause) { @world.transaction { @world.run('insert into things values (1)'); pause.call } })
        assert_equal 0, @world.value('count(*) from things')
      end
    end
  end

  test_in_all(:sessions_that_were_ended_are_replaced) do
    ask = ->(sql) { Fiber.await(Array.new(4) { spin { outcome { @world.value(sql).to_i } } }) }
    ask.call('connection_id() + 0 * sleep(0.01)').uniq.each { |id| @helper.query("kill #{id}") }
    failed = Array.new(5) { ask.call('1 + 0 * sleep(0.01)') }.flatten - [1]
    assert_operator failed.size, :<=, 2, 'an error each'
    assert_equal 0, @world.busy
  end

  test_in_all(:nothing_is_done_outside_of_a_transaction_that_was_broken_off) do
    with_table do
      lock
      assert_raises(StandardError) do
        @world.transaction do
          @world.run('insert into things values (1)')
          assert_nil(move_on_after(0.05) { @world.value("get_lock('orm', 20)") })
          @world.run('insert into things values (2)')
        end
      end
      unlock
      assert_equal [0, 0], [@world.busy, @world.value('count(*) from things')]
    end
  end

  test_in_all(:random_programs_with_cancels_see_their_own_rows) do
    random = Random.new(Minitest.seed || 1)
    workers = Array.new(12) do |i|
      spin do
        4.times do |j|
          number = (100 * i) + j + 1
          got = move_on_after(random.rand * 0.02) { @world.transaction { @world.value("#{number} + sleep(0.002)") } }
          assert_includes [nil, number], got&.to_i
        end
      end
    end
    Fiber.await(workers)
    assert_equal [1, 2, 3], Fiber.await((1..3).map { |i| spin { @world.value(i) } })
    assert_equal 0, @world.busy
  end

  private

  def in_world(world, feature, driver)
    [driver, feature].each { |name| require name }
    require "polyphony/adapters/#{feature}"
    @server = Polyphony::MariadbServer.shared
    @world = world.new(driver, @server, 2)
    @helper = helper
    yield
  rescue LoadError => e
    skip "#{e.message} (bin/setup --all installs the gems of test/adapters)"
  end

  def outcome
    yield
  rescue StandardError => e
    e
  end

  # A second way to the server.
  def helper
    require 'mysql2'
    Mysql2::Client.new(**@server.settings)
  end

  def lock
    @helper.query("select get_lock('orm', 20)")
  end

  def unlock
    @helper.query("select release_lock('orm')")
  end

  def await_waiting(count = 1)
    sql = "select count(*) as n from information_schema.processlist where state like 'User lock%'"
    cancel_after(10) { sleep 0.002 until @helper.query(sql).first['n'] >= count }
  end

  def with_table
    @helper.query('drop table if exists things')
    @helper.query('create table things (a int) engine = innodb')
    yield
  ensure
    @helper.query('drop table if exists things')
  end
end
