# frozen_string_literal: true

module Polyphony
  module Adapters
    module RedisClient
      # Prepended to RedisClient: one conversation at a time, and nothing left behind on a connection.
      # @api private
      module Client
        include Exclusive

        def initialize(config, **options)
          super
          RedisClient.__warn_of_driver(config.driver)
        end

        # A subscription takes the connection with it. If another fiber is using it, the subscription gets one of its own.
        def pubsub
          return super unless __used_by_another?

          config.new_client(connect_timeout: connect_timeout, read_timeout: read_timeout, write_timeout: write_timeout).pubsub
        end

        # Asking does not break off what another fiber is doing (redis-client closes a connection that waits for a reply).
        def connected?
          __used_by_another? ? @raw_connection&.connected? : super
        end

        # If the block is left by a cancel, +break+ or +throw+, the keys are not watched any more, either.
        def multi(watch: nil, &block)
          result = super
          done = true
          result
        rescue ::StandardError
          done = true # redis-client has seen to it
          raise
        ensure
          close if watch && !done
        end

        private

        def ensure_connected(retryable: true, &block)
          __alone { super }
        end

        def __used_by_another?
          @__polyphony_user && !@__polyphony_user.equal?(::Fiber.current) && !@__polyphony_user.dead?
        end
      end

      # Prepended to RedisClient::PubSub: an event of which only a part had come within the time is read to its end later.
      # @api private
      module PubSub
        def initialize(connection, command_builder)
          super(Resumable.wrap(connection), command_builder)
        end
      end

      # Included in the configurations of redis-client.
      module Configured
        # As +new_client+ and +new_pool+ are.
        # @param options [Hash] see SharedRedis#initialize
        # @return [SharedRedis] one connection for many fibers
        # @example
        #   redis = RedisClient.config(host: 'localhost').new_shared
        #   100.times { |i| spin { redis.call('GET', "key#{i}") } }
        def new_shared(**options)
          SharedRedis.new(self, **options)
        end
      end

      # @!visibility private
      # hiredis waits with select(2), in C, and tells no scheduler.
      def self.__warn_of_driver(driver)
        return if @warned || !driver.name.to_s.end_with?('HiredisConnection')

        @warned = true
        warn 'polyphony: hiredis-client stops the thread, with all of its fibers, while it waits for Redis: use redis-client\'s own ' \
             'driver (driver: :ruby, or RedisClient.default_driver = :ruby)'
      end
    end
  end
end
