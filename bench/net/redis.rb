# frozen_string_literal: true

# Redis: small commands of many fibers on one shared connection, beside a connection for each fiber, a pool, and threads with a
# connection each. Starts a server of its own. Tells commands a second, and microseconds of CPU a command, here and in the
# server, which a busy machine does not change much; the last column compares the sum with that of the shared one.
#
#   BUNDLE_GEMFILE=test/adapters/Gemfile BUNDLE_PATH=vendor/apps bundle exec ruby -Ilib bench/net/redis.rb [fibers] [seconds]

require 'polyphony/adapters/redis_client'
require 'tmpdir'

module Bench
  # GET of a short key, by as many as there are, for a while.
  class Redis
    ROUNDS = 3

    def initialize(socket, users, seconds)
      @config = ::RedisClient.config(path: socket, timeout: 10)
      @users = users
      @seconds = seconds
    end

    # @return [Hash{String => Array(Float, Float, Float)}] the best of some rounds, in turn
    def call
      rounds = Array.new(ROUNDS) { ways.transform_values(&:call) }
      ways.keys.to_h { |name| [name, rounds.map { |round| round[name] }.min_by { |_, here, there| here + there }] }
    end

    private

    def ways
      {
        'shared connection' => -> { with(@config.new_shared) { |redis| fibers { redis } } },
        'a connection a fiber' => -> { each_its_own { |all| fibers { |i| all[i] } } },
        'a pool of 5' => -> { with(@config.new_pool(size: 5, timeout: 60)) { |redis| fibers { redis } } },
        'threads' => -> { each_its_own { |all| threads { |i| all[i] } } }
      }
    end

    def with(client)
      client.call('SET', 'key', 'value')
      yield client
    ensure
      client.close
    end

    def each_its_own
      all = Array.new(@users) { @config.new_client.tap { |client| client.call('PING') } }
      yield all
    ensure
      all&.each(&:close)
    end

    def fibers
      rate { |counts| Fiber.map(0...@users) { |i| ask(yield(i), counts, i) } }
    end

    def threads
      rate { |counts| Array.new(@users) { |i| Thread.new { ask(yield(i), counts, i) } }.each(&:join) }
    end

    def ask(redis, counts, user)
      until now > @until
        redis.call('GET', 'key')
        counts[user] += 1
      end
    end

    def rate
      counts = Array.new(@users, 0)
      GC.start
      began = [now, cpu, server_cpu]
      @until = began.first + @seconds
      yield counts
      took = [now, cpu, server_cpu].zip(began).map { |after, before| after - before }
      [counts.sum / took[0], took[1] / counts.sum * 1e6, took[2] / counts.sum * 1e6]
    end

    def cpu
      ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID)
    end

    def server_cpu
      @admin ||= @config.new_client
      @admin.call('INFO', 'cpu').scan(/^used_cpu_(?:sys|user):([\d.]+)/).flatten.sum(&:to_f)
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end

users = Integer(ARGV.fetch(0, '100'))
seconds = Float(ARGV.fetch(1, '1'))
Dir.mktmpdir do |folder|
  socket = File.join(folder, 'socket')
  server = ::Process.spawn('redis-server', '--port', '0', '--unixsocket', socket, '--save', '', '--dir', folder, out: File::NULL)
  sleep 0.01 until File.socket?(socket)
  rows = Bench::Redis.new(socket, users, seconds).call
  puts "#{users} at once, driver #{Thread.current.backend.kind}, redis-client #{RedisClient::VERSION}, Ruby #{RUBY_VERSION}"
  shared = rows.values.first.last(2).sum
  rows.each do |name, (rate, here, there)|
    puts format('%-22s %7d commands/s %6.1f us here %6.1f us in the server  x %.2f', name, rate, here, there, (here + there) / shared)
  end
ensure
  ::Process.kill(:TERM, server)
  ::Process.wait(server)
end
