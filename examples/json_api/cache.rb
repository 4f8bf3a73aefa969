# frozen_string_literal: true

require 'json'

# Keeps JSON for a while. Without it everything still works, only slower: so an error of the cache is not one of the request.
module Cache
  # @return [None, InRedis]
  def self.open(url)
    url ? InRedis.new(url) : None.new
  end

  # Remembers nothing.
  class None
    def fetch(_key, seconds:)
      JSON.generate(yield)
    end

    def forget(_key); end
  end

  # One connection for each fiber that needs one, at most eight.
  class InRedis < None
    def initialize(url)
      require 'redis-client'
      @redis = RedisClient.config(url: url).new_pool(size: 8, timeout: 1)
    end

    def fetch(key, seconds:)
      ask('GET', key) || super.tap { |json| ask('SET', key, json, 'EX', seconds) }
    end

    def forget(key)
      ask('DEL', key)
    end

    private

    def ask(*words)
      @redis.call(*words)
    rescue RedisClient::Error => e
      warn "cache: #{e.message}"
      nil
    end
  end
end
