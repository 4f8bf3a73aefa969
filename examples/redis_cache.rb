# frozen_string_literal: true

# A cache in Redis: fifty fibers at once, one connection, each price is computed once. Needs the gem redis-client and a server.
#   REDIS_URL=redis://localhost:6379 ruby -Ilib examples/redis_cache.rb
require 'polyphony'
begin
  require 'polyphony/adapters/redis_client'
rescue LoadError => e
  puts "skipped: #{e.message} (gem install redis-client)"
  exit
end

# Prices that take a while to find out.
class Prices
  PREFIX = 'polyphony:example:'

  attr_reader :computed # how often

  def initialize(redis)
    @redis = redis
    @computed = 0
  end

  # Whoever gets the lock computes, unless another has done so in between; the others look again a little later.
  def [](article)
    loop do
      price = @redis.call('GET', "#{PREFIX}#{article}")
      return Integer(price) if price
      return compute(article) if @redis.call('SET', "#{PREFIX}#{article}:lock", 1, nx: true, px: 5_000) && !@redis.call('GET', "#{PREFIX}#{article}")

      sleep 0.005
    end
  end

  private

  def compute(article)
    sleep 0.03
    @computed += 1
    price = article.sum
    @redis.multi { |all| all.call('SET', "#{PREFIX}#{article}", price, ex: 60); all.call('DEL', "#{PREFIX}#{article}:lock") }
    price
  end
end
redis = RedisClient.config(url: ENV.fetch('REDIS_URL', 'redis://localhost:6379')).new_shared
tidy_up = -> { redis.scan(match: "#{Prices::PREFIX}*") { |key| redis.call('DEL', key) } }
begin
  tidy_up.call
rescue RedisClient::CannotConnectError => e
  puts "skipped: no Redis: #{e.message}"
  exit
end
prices = Prices.new(redis)
articles = %w[apple pear plum cherry quince]
puts "asked: 50, right: #{Fiber.map(0...50) { |i| prices[articles[i % 5]] == articles[i % 5].sum }.count(true)}, computed: #{prices.computed}"
puts "asked again: 50, computed in all: #{Fiber.map(0...50) { |i| prices[articles[i % 5]] } && prices.computed}"
puts "in time: #{move_on_after(0.01) { prices['melon'] }.inspect}, others go on: #{prices['plum']}"
tidy_up.call
redis.close
