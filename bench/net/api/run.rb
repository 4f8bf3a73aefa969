# frozen_string_literal: true

# The JSON API of examples/json_api, with PostgreSQL (each query takes 5 ms, as one over a network) and Redis: on our server, with
# fibers, and on Puma, with threads. Prints a table and writes bench/results/api.md.
#
#   ruby -Ilib bench/net/api/run.rb
#
#   BENCH_ROUNDS=5     rounds (3 without it)
#   BENCH_SECONDS=8    for one measurement (4 without it)

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
    # After the warm-up, whose clients go away in the middle of requests: our server cancels their queries, all at once.
    SETTLING = 2
    RESULTS = File.expand_path('../../results/api.md', __dir__)

    def initialize
      absent = Polyphony::PostgresCluster::PROGRAMS ? Polyphony::RedisServer.absent : 'PostgreSQL with initdb is not installed'
      abort absent if absent

      @machine = Machine.new
      @rounds = Integer(ENV.fetch('BENCH_ROUNDS', '3'))
      @seconds = Integer(ENV.fetch('BENCH_SECONDS', '4'))
    end

    def call
      @database = Polyphony::PostgresCluster.new.tap(&:start)
      @redis = Polyphony::RedisServer.new.tap(&:start)
      results = ROWS.to_h { |title, path| [title, measure(title, path)] }
      File.write(RESULTS, markdown(results).tap { |text| puts '', text })
    ensure
      [@database, @redis].each { |server| server&.remove }
    end

    private

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

    # @return [Hash] side => medians of rate, p50, p99, cpu
    def measure(title, path)
      rounds = Array.new(@rounds) { |round| sides.to_h { |side| [side.name, attempt(title, round, side, path)] } }
      sides.to_h { |side| [side.name, %i[rate p50 p99 cpu].to_h { |what| [what, Spread.of(rounds.map { |one| one[side.name][what] }).median] }] }
    end

    def attempt(title, round, side, path)
      HTTP::ServerProcess.run(side, :http) do |server|
        HTTP::Load.wrk(server, path, connections: CLIENTS, seconds: 1)
        sleep SETTLING
        before = server.cpu
        figures = HTTP::Load.wrk(server, path, connections: CLIENTS, seconds: @seconds)
        abort "#{side.name}: #{figures[:failed]} requests failed" if figures[:failed].positive?

        puts format('%s, round %d, %s: %.0f/s, p50 %.1f ms, p99 %.1f ms', title, round + 1, side.name, *figures.values_at(:rate, :p50, :p99))
        figures.merge(cpu: (server.cpu - before) / (figures[:rate] * @seconds) * 1e6)
      end
    end

    def markdown(results)
      <<~TEXT
        # bench/net/api

        #{Machine.line(@machine.facts)}

        `ruby -Ilib bench/net/api/run.rb`: examples/json_api with PostgreSQL, whose queries take 5 ms each, and Redis, all on this machine; #{CLIENTS}
        connections, medians of #{@rounds} interleaved rounds of #{@seconds} s (load average #{@machine.facts[:load_average]}).
        Requests a second · p50 ms · p99 ms · µs of CPU a request.

        | | #{sides.map(&:name).join(' | ')} |
        | --- |#{' --- |' * sides.size}
        #{results.map { |title, row| "| #{title} | #{row.values.map { |one| format('%.0f · %.1f · %.1f · %.0f', *one.values) }.join(' | ')} |" }.join("\n")}
      TEXT
    end
  end
end

$stdout.sync = true
Bench::Api.new.call
