# frozen_string_literal: true

require_relative '../support/redis_case'
require_relative '../support/server_guide'

# What is written about Redis holds: the guide (values stand behind `#=>`, since test_docs.rb has no server), the example,
# the signatures, and polyphony/adapters/auto.
class TestRedisGuide < Polyphony::RedisCase
  include Polyphony::ServerGuide

  on_every_driver
  gems 'polyphony/adapters/redis'

  def environment
    { 'REDIS_URL' => "redis://127.0.0.1:#{@server.port}", 'RUBYOPT' => '-rbundler/setup' }
  end

  def test_the_guide_is_right
    assert_guide('redis.md', 'polyphony/adapters/redis', 13)
  end

  def test_the_example_shows_what_it_promises
    shown = output(File.join(POLYPHONY_ROOT, 'examples/redis_cache.rb'))
    assert_equal "asked: 50, right: 50, computed: 5\nasked again: 50, computed in all: 5\nin time: nil, others go on: 446\n", shown
    assert_equal 0, @admin.call('DBSIZE')
  end

  def test_every_name_with_a_signature_exists
    assert_names_exist('adapters/redis.rbs')
  end

  LOADED = <<~RUBY
    adapters = Polyphony::Adapters
    puts [RedisClient.ancestors.include?(adapters::RedisClient::Client), defined?(Redis) && Redis.ancestors.include?(adapters::Redis),
          ConnectionPool::TimedStack.ancestors.include?(adapters::ConnectionPool::FairStack)].inspect
  RUBY

  def test_gems_get_their_adapters_by_themselves
    auto = 'polyphony/adapters/auto'
    orders = { [auto, 'redis'] => [true, true, true], [auto, 'redis_client'] => [true, nil, true], ['redis-client', auto] => [true, nil, true] }
    started = orders.keys.map { |names| start('-e', "#{names.map { |name| "require '#{name}'; " }.join}\n#{LOADED}") }
    assert_equal(orders.values.map { |loaded| "#{loaded}\n" }, started.map { |program| finish(program) })
  end

  # By hand, though it would have come by itself: what it requires leads back to it.
  def test_an_adapter_beside_auto_does_not_go_round_in_circles
    program = start('-w', '-e', "require 'polyphony/adapters/auto'; require 'polyphony/adapters/redis'\n#{LOADED}")
    out, err, = program.finish(self, patient(30))
    assert_equal "[true, true, true]\n", out
    refute_match(/circular/, err)
  end

  def test_hiredis_is_warned_of_once
    adapter = Polyphony::Adapters::RedisClient
    driver = Class.new { def self.name = 'RedisClient::HiredisConnection' }
    adapter.instance_variable_set(:@warned, nil)
    assert_output('', /hiredis-client stops the thread.*driver: :ruby/) { 2.times { adapter.__warn_of_driver(driver) } }
  ensure
    adapter&.instance_variable_set(:@warned, nil)
  end
end
