# frozen_string_literal: true

require 'polyphony'
require 'redis'
require 'polyphony/adapters/redis_client' if defined?(::RedisClient)

module Polyphony
  module Adapters
    # redis (redis-rb) on top of redis-client: see RedisClient. A Redis object may be used by many fibers: a lock of its own lets
    # one in at a time, the others wait. Versions before 5 have no redis-client below them; they work as they come.
    module Redis
      # If the block is left by a cancel, +break+ or +throw+, the keys are not watched any more, either. (redis-rb sees to
      # StandardErrors.) Within the lock: nobody gets the connection before it is closed.
      def watch(*keys, &block)
        return super unless block

        synchronize do |client|
          result = super
          done = true
          result
        rescue ::StandardError
          done = true
          raise
        ensure
          (client.respond_to?(:close) ? client : self).close unless done
        end
      end

      # The connection of a subscription ends with it. (Earlier versions leave it to the garbage collector, and the server
      # goes on sending.)
      # @api private
      module Subscribed
        protected

        def subscription(*)
          super
        ensure
          close
        end
      end
    end

    ::Redis.prepend Redis
    ::Redis::SubscribedClient.prepend Redis::Subscribed if ::Redis::SubscribedClient.method_defined?(:close)
  end
end
