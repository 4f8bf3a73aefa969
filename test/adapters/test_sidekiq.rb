# frozen_string_literal: true

require_relative '../support/redis_case'

# Sidekiq with Polyphony loaded: threads that wait for Redis, and jobs that use fibers.
class TestSidekiq < Polyphony::RedisCase
  on_every_driver
  gems 'polyphony/adapters/redis_client', 'sidekiq'

  JOBS = <<~'RUBY'
    require 'sidekiq'

    class Square
      include Sidekiq::Job

      def perform(number)
        sum = Fiber.map(1..3) { |i| sleep 0.001; i * number }.sum
        Sidekiq.redis { |redis| redis.call('RPUSH', 'results', "#{number} #{sum} #{Polyphony.name}") }
      end
    end

    class Long
      include Sidekiq::Job

      def perform
        Sidekiq.redis { |redis| redis.call('RPUSH', 'begun', 1) }
        sleep 0.1
        Sidekiq.redis { |redis| redis.call('RPUSH', 'ended', 1) }
      end
    end

    class Failing
      include Sidekiq::Job
      sidekiq_options retry: false

      def perform
        raise 'on purpose'
      end
    end
  RUBY

  def setup
    super
    @file = Tempfile.new(['jobs', '.rb']).tap { |file| file.write(JOBS); file.flush }
    load @file.path unless defined?(Square)
    Sidekiq.configure_client do |settings|
      settings.logger = nil
      settings.redis = { url: "unix://#{@server.socket}", size: 3 }
    end
  end

  def teardown
    stop_sidekiq if @pid
    Sidekiq.default_configuration.redis_pool.shutdown(&:close) if @file
    [@file, @log].each { |file| file&.close! }
    super
  end

  def start_sidekiq
    @log = Tempfile.new('sidekiq')
    @pid = ::Process.spawn({ 'REDIS_URL' => "unix://#{@server.socket}" }, RbConfig.ruby, "-I#{POLYPHONY_ROOT}/lib", '-rbundler/setup',
                           '-rpolyphony', '-rpolyphony/adapters/auto', Gem.bin_path('sidekiq', 'sidekiq'), '-r', @file.path,
                           '-c', '4', '-t', '5', in: File::NULL, out: @log.path, err: %i[child out], chdir: Dir.tmpdir)
  end

  # @return [Process::Status]
  def stop_sidekiq
    ::Process.kill(:TERM, @pid)
    status = ::Process.wait2(@pid).last
    @pid = nil
    status
  end

  def log
    File.read(@log.path)
  end

  def results(list, count)
    got = []
    got << @admin.blocking_call(30, 'BLPOP', list, 30)&.last || flunk("no result:\n#{log}") until got.size == count
    got
  end

  def test_jobs_run_and_the_end_is_clean
    start_sidekiq
    Fiber.map(1..20) { |i| Square.perform_async(i) }
    assert_equal (1..20).map { |i| "#{i} #{i * 6} Polyphony" }.sort, results('results', 20).sort
    Failing.perform_async
    Long.perform_async
    results('begun', 1)
    status = stop_sidekiq
    assert_predicate status, :success?, log
    assert_equal ['1'], results('ended', 1)
    assert_match(/on purpose/, log)
    assert_match(/Bye!/, log)
    refute_match(/polyphony: |Deadlock|ConnectionInUse/, log)
  end
end
