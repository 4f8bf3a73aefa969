# frozen_string_literal: true

module Polyphony
  module Adapters
    # A client of Redis whose one connection is used by many fibers at once. What they ask in the same turn is written together,
    # and each gets its own reply. Has the methods of RedisClient, except those which change the state of a connection or
    # make all others wait: they are refused.
    #
    # A fiber that is cancelled disturbs nobody: its reply is read and dropped. When the connection breaks, all who wait for
    # a reply get the error, and the next command connects again.
    #
    # There is no fiber in the background: one of those who wait reads for all. Each thread that uses the object has a
    # connection of its own, made when it is first needed; so has a forked child.
    #
    # @example
    #   redis = RedisClient.config(host: 'localhost').new_shared
    #   Fiber.map(1..1000) { |i| redis.call('GET', "key#{i}") }
    class SharedRedis < ::RedisClient
      # How many commands can be on their way at once, if nobody says.
      LIMIT = 1000

      # A command that cannot be used on a shared connection. The message says what can be done instead.
      class Refused < ::ArgumentError
      end

      class << self
        # @param config [RedisClient::Config, nil] or the options of one
        # @param limit [Integer] see #initialize
        # @return [SharedRedis]
        # @example
        #   Polyphony::Adapters::SharedRedis.new(url: 'redis://localhost', limit: 100)
        def new(config = nil, limit: LIMIT, **options)
          return super if config.is_a?(::RedisClient::Config::Common)

          super(::RedisClient.config(driver: :ruby, **(config || {}), **options), limit: limit)
        end
      end

      # @return [Integer] how many commands can be on their way at once, in each thread
      attr_reader :limit

      # @param config [RedisClient::Config, RedisClient::SentinelConfig]
      # @param limit [Integer] how many commands can be on their way at once; who comes then waits, in order of arrival
      # @param options [Hash] time limits, as for RedisClient
      # @raise [ArgumentError] for a limit that is no positive Integer, and for another driver than redis-client's own
      def initialize(config, limit: LIMIT, **options)
        unless limit.is_a?(::Integer) && limit.positive?
          raise ::ArgumentError, "limit must be a positive Integer, got #{limit.inspect}"
        end
        unless config.driver == ::RedisClient::RubyConnection
          raise ::ArgumentError, "a shared connection needs redis-client's own driver, got #{config.driver}: say driver: :ruby"
        end

        super(config, **options)
        @limit = limit
        @adding = ::Thread::Mutex.new
        @lines = PerProcess.new { |inherited| start_anew(inherited) }
      end

      # Refused: a command that blocks its connection would keep all others waiting.
      # @raise [Refused]
      def blocking_call(_timeout, *command, **)
        Refusals.refuse_blocking(command.first)
      end

      # (see #blocking_call)
      def blocking_call_v(_timeout, command)
        Refusals.refuse_blocking(command.first)
      end

      # Sends the commands of the block as one, MULTI and EXEC around them.
      # @param watch [nil] keys cannot be watched on a shared connection
      # @return [Array, nil] the replies
      # @raise [Refused] with keys to watch
      def multi(watch: nil, &block)
        Refusals.refuse_watching if watch
        super(&block)
      end

      # @return [RedisClient::PubSub] with a connection of its own
      def pubsub
        ::RedisClient.new(config, **limits).pubsub
      end

      # @return [Boolean] whether the current thread is connected
      def connected?
        !!@lines.value[::Thread.current]&.connected?
      end

      # Closes the connections of all threads. Who waits for a reply gets RedisClient::ConnectionError; the next command
      # connects again.
      # @return [self]
      def close
        lines = @adding.synchronize { @lines.value.values.tap { @lines.value.clear } }
        lines.each(&:close)
        self
      end

      # @return [Integer] how many commands of the current thread are on their way
      def outstanding
        @lines.value[::Thread.current]&.outstanding || 0
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{config.server_url}, #{outstanding} of #{limit} outstanding>"
      end

      # @!visibility private
      # @return [Hash] time limits for a new connection
      def limits
        { connect_timeout: connect_timeout, read_timeout: read_timeout, write_timeout: write_timeout }
      end

      private

      # What redis-client does all its commands with. A connection that could not be made has been tried often enough.
      def ensure_connected(retryable: true)
        tries = 0
        begin
          yield Turn.new(line, config)
        rescue ::RedisClient::ConnectionError, ::RedisClient::ProtocolError => e
          raise if !retryable || e.is_a?(::RedisClient::CannotConnectError) || !config.retry_connecting?(tries, e)

          tries += 1
          retry
        end
      end

      def line
        @lines.value[::Thread.current] || @adding.synchronize { add_line(@lines.value) }
      end

      def add_line(lines)
        lines.keys.each { |thread| lines.delete(thread).close unless thread.alive? }
        lines[::Thread.current] ||= Line.new(self)
      end

      # A child of a fork must not talk on the connections of its parent.
      def start_anew(inherited)
        inherited&.each_value(&:forget)
        {}.compare_by_identity
      end
    end
  end
end

require 'polyphony/adapters/shared_redis/refusals'
require 'polyphony/adapters/shared_redis/request'
require 'polyphony/adapters/shared_redis/turn'
require 'polyphony/adapters/shared_redis/line'

class Polyphony::Adapters::SharedRedis
  private_constant :Refusals, :Request, :Turn, :Line
end
