# frozen_string_literal: true

# A web server with workers and a database, clients that never stop asking, and `kill -9`: of a worker every other second, of the database now
# and then, one of its processes or all of them. What is asked for and what comes back:
#
#   an answer    is the right one, whatever happened to others meanwhile
#   an error     (500, or a connection that ends) comes only shortly after something was killed
#   at the end   all is well again by itself: workers, answers, descriptors of the master, connections to the database
#
# Without PostgreSQL the workers compute the answers themselves.
#
#   ruby -Ilib test/soak/traffic.rb [seconds, 60 without it] [seed]

require 'polyphony'
POLYPHONY_LIB = File.expand_path('../../lib', __dir__) unless defined?(POLYPHONY_LIB)
require_relative '../support/postgres_cluster'
require_relative '../support/served'

module Polyphony
  # What the helpers of the tests ask it for.
  class TestCase
    PATIENCE = 3
  end

  class TrafficSoak
    WORKERS = 3
    CLIENTS = 24
    CONNECTIONS = 4
    # Seconds after a kill in which errors are no wonder.
    TROUBLE = 4
    APP = <<~'RUBY'
      database = ENV['TRAFFIC_DATABASE']
      require 'polyphony/adapters/pg' if database
      pool = Polyphony::Adapters::PG::Pool.new(database, limit: Integer(ENV.fetch('TRAFFIC_CONNECTIONS'))) if database
      run do |request|
        a, b = request.path.scan(/\d+/).map { |text| Integer(text, 10) }
        sum = pool ? pool.exec_params('select $1::bigint + $2::bigint as sum', [a, b])[0]['sum'] : a + b
        request.respond("#{a} + #{b} = #{sum}")
      end
    RUBY

    def initialize(seconds, seed)
      @seconds = seconds
      @random = Random.new(seed)
      @right = 0
      @errors = Hash.new(0)
      @wrong = []
      @kills = Hash.new(0)
      puts "#{Thread.current.backend.kind}, Ruby #{RUBY_VERSION}, #{seconds} seconds, seed #{seed}"
    end

    # @return [Boolean]
    def call
      start
      before = descriptors
      asking { trouble }
      recover(before)
      puts "#{@right} right answers; killed: #{@kills}; errors meanwhile: #{@errors}"
      puts @wrong.first(20), @wrong.empty? ? 'all is well' : "#{@wrong.size} FAILED"
      @wrong.empty?
    ensure
      @served&.close
      @database&.remove
    end

    private

    def start
      missing = PostgresCluster.absent
      puts "without a database: #{missing}" if missing
      @database = PostgresCluster.start unless missing
      env = { 'TRAFFIC_DATABASE' => @database&.url, 'TRAFFIC_CONNECTIONS' => CONNECTIONS.to_s }
      @served = Served.new('--workers', WORKERS.to_s, app: APP, env: env, gems: @database ? %w[pg] : [])
      @served.eventually('workers') { workers.size == WORKERS }
      @reader = spin { @served.await(/\A(?!)/, within: 100_000) } # who logs is not to wait
    end

    def workers
      @served.workers.select { |_, title| title.match?(/worker \d \[\d+ conn/) }.keys
    end

    # --- those who ask --------------------------------------------------------------------------------

    def asking
      clients = Array.new(CLIENTS) { |i| spin { ask_on(Random.new(i)) until @over } }
      yield
    ensure
      @over = true
      clients.each(&:await)
    end

    # A connection, as long as it lasts.
    def ask_on(random)
      socket = TCPSocket.new('127.0.0.1', @served.port)
      random.rand(1..50).times { break unless ask(socket, random.rand(1_000_000), random.rand(1_000_000)) }
    rescue SystemCallError, IOError => e
      error(e.class.name)
    ensure
      socket&.close
    end

    # @return [Boolean] whether the connection is good for more
    def ask(socket, a, b)
      status, body = @served.ask(socket, "/#{a}/#{b}", { 'connection' => 'keep-alive' })
      return error(status) unless status == 200

      body == "#{a} + #{b} = #{a + b}" ? @right += 1 : @wrong << "asked for #{a} + #{b}, was told #{body.inspect}"
      true
    end

    def error(what)
      @errors[what] += 1
      @wrong << "#{what}, #{(Clock.now - @killed_at.to_f).round(1)} s after the last kill" unless @killed_at && Clock.now - @killed_at < TROUBLE
      false
    end

    # --- the trouble ----------------------------------------------------------------------------------

    def trouble
      finish = Clock.now + @seconds
      until Clock.now > finish
        sleep 1 + @random.rand
        strike
      end
      sleep TROUBLE # so that connections which were broken last are met while that is no wonder
    end

    def strike
      case @database ? @random.rand(6) : 0
      when 0..2 then kill('worker', workers.sample(random: @random))
      when 3, 4 then kill('process of the database', @database.__send__(:descendants, @database.pid).sample(random: @random))
      else restart_database
      end
    end

    def kill(what, pid)
      return unless pid

      @killed_at = Clock.now
      @kills[what] += 1
      ::Process.kill(:KILL, pid)
    rescue Errno::ESRCH
      nil
    end

    def restart_database
      @killed_at = Float::INFINITY # for as long as it is down, which a busy machine makes long
      @kills['whole database'] += 1
      @database.kill
      @database.start
      @killed_at = Clock.now
    end

    # --- the end --------------------------------------------------------------------------------------

    def recover(before)
      @served.eventually('all workers', within: 30) { workers.size == WORKERS }
      @killed_at = nil
      100.times { ask_on(Random.new(0)) }
      left = descriptors - before
      @wrong << "the master has #{left} descriptors more" if left.positive?
      @reader.stop
      @wrong << 'it did not end well' unless @served.stop.zero?
    rescue RuntimeError => e
      @wrong << e.message
    end

    def descriptors
      Dir.children("/proc/#{@served.pid}/fd").size
    end
  end
end

$stdout.sync = true
exit Polyphony::TrafficSoak.new(Float(ARGV.fetch(0, '60')), Integer(ARGV.fetch(1, Random.rand(1 << 30).to_s), 10)).call
