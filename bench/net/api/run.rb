# frozen_string_literal: true

# The JSON API of examples/json_api, with PostgreSQL (each query takes 5 ms, as one over a network) and Redis: on our server, with
# fibers, and on Puma, with threads. Prints a table and writes bench/results/api.md.
#
#   ruby -Ilib bench/net/api/run.rb
#
#   BENCH_ROUNDS=5     rounds (3 without it)
#   BENCH_SECONDS=8    for one measurement (4 without it)

require 'etc'
require 'rbconfig'
require_relative '../../support/machine'
require_relative '../../support/peers'
require_relative '../../support/summary'
require_relative '../http/load'
require_relative '../http/server_process'
require_relative '../http/sides'
require_relative '../../../test/support/postgres_cluster'
require_relative '../../../test/support/redis_server'

module Bench
  # What is measured, on which sides.
  class Api
    CLIENTS = 16
    GEMS = %w[pg:1.5.9 redis-client:0.22.2 connection_pool:2.4.1].freeze
    ROWS = { 'three queries of 5 ms at once' => '/fresh/customers/7', 'the same, from the cache' => '/customers/7' }.freeze
    THREADS = [5, CLIENTS].freeze
    # Answers to wait for before anything is measured: all connections of the pool are open then. On a busy machine PostgreSQL takes seconds to start 48
    # processes, and our server gives up a connection that is being opened when its client goes away.
    WARM = 200
    LONGEST_WARM_UP = 30
    # After the warm-up, whose clients go away in the middle of requests: our server cancels their queries, all at once.
    SETTLING = 2
    FIGURES = %i[rate p50 p99 cpu waited].freeze
    # Percent of the time: who waits longer for a core is measured as slower than he is.
    BUSY = 20
    RESULTS = File.expand_path('../../results/api.md', __dir__)

    def initialize
      absent = Polyphony::PostgresCluster::PROGRAMS ? Polyphony::RedisServer.absent : 'PostgreSQL with initdb is not installed'
      abort absent if absent

      @machine = Machine.new
      @rounds = Integer(ENV.fetch('BENCH_ROUNDS', '3'))
      @seconds = Integer(ENV.fetch('BENCH_SECONDS', '4'))
    end

    def call
      @database = elsewhere(Polyphony::PostgresCluster.new.tap(&:start))
      @redis = elsewhere(Polyphony::RedisServer.new.tap(&:start))
      results = ROWS.to_h { |title, path| [title, measure(title, path)] }
      File.write(RESULTS, markdown(results).tap { |text| puts '', text })
    ensure
      [@database, @redis].each { |server| server&.remove }
    end

    private

    # Not on the core of what is measured: its processes for 48 connections would be 48 who want that core.
    def elsewhere(server)
      system('taskset', '-a', '-c', '-p', '1', server.pid.to_s, out: File::NULL, exception: true) if Etc.nprocessors > 1
      server
    end

    def sides
      @sides ||= @machine.drivers.map { |driver| ours(driver) } + THREADS.map { |count| puma(count) }
    end

    def ours(driver)
      HTTP::Side.new(driver, :ours, [:http]) do |_scheme, port|
        [{ **settings, 'POLYPHONY_BACKEND' => driver, 'RUBYLIB' => "#{HTTP::Side::ROOT}/lib", **Peers.environment('rack', GEMS) },
         RbConfig.ruby, "#{HTTP::Side::ROOT}/exe/polyphony", 'serve', File.expand_path('fibers.ru', __dir__), '--bind', "http://127.0.0.1:#{port}"]
      end
    end

    def puma(count)
      HTTP::Side.new("Puma, #{count} threads", :peer, [:http]) do |_scheme, port|
        environment = Peers.environment('puma', GEMS)
        [{ **settings, **environment }, RbConfig.ruby, File.join(environment['GEM_HOME'], 'bin/puma'), '-w', '0', '-t', "#{count}:#{count}",
         '-b', "tcp://127.0.0.1:#{port}", '-e', 'production', File.expand_path('threads.ru', __dir__)]
      end
    end

    def settings
      { 'DATABASE_URL' => @database.url, 'REDIS_URL' => "redis://127.0.0.1:#{@redis.port}", 'BENCH_CONNECTIONS' => (3 * CLIENTS).to_s }
    end

    # @return [Hash] side => medians
    def measure(title, path)
      rounds = Array.new(@rounds) { |round| sides.to_h { |side| [side.name, attempt(title, round, side, path)] } }
      sides.to_h { |side| [side.name, FIGURES.to_h { |what| [what, Spread.of(rounds.map { |one| one[side.name][what] }).median] }] }
    end

    def attempt(title, round, side, path)
      HTTP::ServerProcess.run(side, :http) do |server|
        warm_up(side, server, path)
        cpu = server.cpu
        waited = server.waited
        figures = HTTP::Load.wrk(server, path, connections: CLIENTS, seconds: @seconds)
        figures = { **figures, cpu: (server.cpu - cpu) / (figures[:rate] * @seconds) * 1e6, waited: (server.waited - waited) / @seconds * 100 }
        abort "#{side.name}: #{figures[:failed]} requests failed#{busy(figures[:waited])}" if figures[:failed].positive?

        puts format('%s, round %d, %s: %.0f/s, p50 %.1f ms, p99 %.1f ms, CPU %.0f µs a request%s', title, round + 1, side.name,
                    *figures.values_at(:rate, :p50, :p99, :cpu), busy(figures[:waited]))
        figures
      end
    end

    def busy(percent)
      format(', and for %.0f %% of the time other processes had its core: only the CPU says something', percent) if percent > BUSY
    end

    def warm_up(side, server, path)
      seconds = 2
      until HTTP::Load.wrk(server, path, connections: CLIENTS, seconds: seconds)[:rate] * seconds >= WARM
        abort "#{side.name}: fewer than #{WARM} answers in #{seconds} s" if (seconds *= 2) > LONGEST_WARM_UP
      end
      sleep SETTLING
    end

    def markdown(results)
      <<~TEXT
        # bench/net/api

        #{Machine.line(@machine.facts)}

        `ruby -Ilib bench/net/api/run.rb`: examples/json_api with PostgreSQL, whose queries take 5 ms each, and Redis, all on this machine; #{CLIENTS}
        connections, medians of #{@rounds} interleaved rounds of #{@seconds} s (load average #{@machine.facts[:load_average]}).
        Requests a second · p50 ms · p99 ms · µs of CPU a request · % of the time in which the server's thread (of Puma's, the one that waited most)
        was ready to run and others had its core: where that is more than some percent, the machine was busy, and only the CPU says something.

        | | #{sides.map(&:name).join(' | ')} |
        | --- |#{' --- |' * sides.size}
        #{results.map { |title, row| "| #{title} | #{row.values.map { |one| format('%.0f · %.1f · %.1f · %.0f · %.0f', *one.values) }.join(' | ')} |" }.join("\n")}
      TEXT
    end
  end
end

$stdout.sync = true
Bench::Api.new.call
