# frozen_string_literal: true

require 'open3'
require_relative 'adapter_case'
require_relative 'mariadb_server'
require_relative 'postgres_cluster'

module Polyphony
  # For tests of what is built on database drivers.
  class OrmCase < AdapterCase
    # Where a driver has no adapter yet, it yields in spun fibers only.
    def self.test_where_it_yields(driver, name, &block)
      return test_in_both(name, &block) if File.exist?(File.expand_path("../../lib/polyphony/adapters/#{driver}.rb", __dir__))

      define_method("test_#{name}_in_spun") { WHERE[:spun].call(-> { instance_exec(&block) }) }
    end

    # Of SQLite's: minutes.
    LONG = 'with recursive c(x) as (values(1) union all select x + 1 from c where x < 5000000000) select count(*) from c'

    # A statement of SQLite's stops the thread where its driver has no adapter yet.
    def self.test_with_sqlite_adapter(name, &block)
      test_in_both(name, &block) if File.exist?(File.expand_path('../../lib/polyphony/adapters/sqlite3.rb', __dir__))
    end

    # @return [PostgresCluster] one to be killed and frozen; each test leaves it running
    def self.expendable
      @@expendable ||= begin # rubocop:disable Style/ClassVars -- one for all classes
        owner = ::Process.pid
        PostgresCluster.start.tap { |server| Minitest.after_run { server.remove if ::Process.pid == owner } }
      end
    end

    private

    # What a program prints that requires what it needs by itself.
    def output_of(program)
      out, status = Open3.capture2e({ 'RUBYOPT' => "#{ENV['RUBYOPT']} -W1" }, RbConfig.ruby, '-Ilib', '-e', program)
      assert_predicate status, :success?, out
      out
    end

    # A second way to the server, which the tested pool does not know.
    def postgres
      @postgres ||= PG.connect(**cluster.settings, options: '-c client_min_messages=warning')
    end

    def cluster
      PostgresCluster.shared
    end

    # A query that waits for the lock of +lock+.
    WAITING = 'select 42 as answer from (select pg_advisory_xact_lock_shared(7)) as locked'

    def lock
      postgres.exec('select pg_advisory_lock(7)')
    end

    def unlock
      postgres.exec('select pg_advisory_unlock(7)')
    end

    # Waits, in the fibers of the test, until so many sessions of the server stand in that query.
    def await_waiting(count = 1)
      cancel_after(10) do
        sleep 0.002 until Integer(postgres.exec("select count(*) from pg_locks where locktype = 'advisory' and not granted").getvalue(0, 0)) >= count
      end
    end

    def teardown
      super
      @postgres&.close
    end

    # Lets the fibers that are ready run until the block is true.
    def await_that(seconds = 10)
      cancel_after(seconds) { sleep 0.001 until yield }
    end
  end
end
