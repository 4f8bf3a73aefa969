# frozen_string_literal: true

require_relative '../../../examples/json_api/shop'
require_relative '../../../examples/json_api/on_postgres'
require_relative '../../../examples/json_api/api'

# A database that is some milliseconds away, as one behind a network.
module FarAway
  SECONDS = Float(ENV.fetch('BENCH_DISTANCE', '0.005'))

  def query(...)
    super.tap { @pg.exec("SELECT pg_sleep(#{SECONDS})") }
  end
end
Shop::OnPostgres.prepend FarAway

# The example twice: below /fresh without the cache.
class App
  def initialize
    shop = Shop.open(ENV.fetch('DATABASE_URL'), connections: Integer(ENV.fetch('BENCH_CONNECTIONS')))
    @fresh = Api.new(shop, Cache::None.new)
    @cached = Api.new(shop, Cache.open(ENV.fetch('REDIS_URL')))
  end

  def call(env)
    path = env['PATH_INFO']
    path.start_with?('/fresh') ? @fresh.call(env.merge('PATH_INFO' => path.delete_prefix('/fresh'))) : @cached.call(env)
  end
end
