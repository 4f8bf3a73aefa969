# frozen_string_literal: true

require 'polyphony'
require 'redis-client'
require 'polyphony/adapters/connection_pool'
require 'polyphony/adapters/exclusive'

module Polyphony
  module Adapters
    # redis-client waits with Ruby's own sockets, and so lets other fibers run as it is. What is added: a command that is
    # cancelled closes its connection at once, one connection is for one fiber at a time, a subscription can be read in pieces
    # of time, and its pools serve in order of arrival. And a connection that many fibers share, see SharedRedis.
    module RedisClient
      # What is built on, and not meant for everybody to see. A version without it works as it comes.
      NEEDED = {
        ::RedisClient => %i[ensure_connected multi pubsub connected? disable_reconnection],
        ::RedisClient::PubSub => %i[next_event],
        ::RedisClient::ConnectionMixin => %i[call call_pipelined revalidate],
        ::RedisClient::RubyConnection => %i[read write write_multi close]
      }.freeze
      private_constant :NEEDED

      # @!visibility private
      # @return [Array<String>] methods that this version of redis-client lacks
      def self.__missing
        NEEDED.flat_map do |owner, names|
          names.reject { |name| owner.method_defined?(name) || owner.private_method_defined?(name) }.map { |name| "#{owner}##{name}" }
        end
      end
    end
  end
end

# Some versions load it when the first client is made.
require 'redis_client/ruby_connection'
require 'polyphony/adapters/redis_client/connection'
require 'polyphony/adapters/redis_client/resumable'
require 'polyphony/adapters/redis_client/client'
require 'polyphony/adapters/shared_redis'

module Polyphony
  module Adapters
    # See above.
    module RedisClient
      missing = __missing
      if missing.empty?
        ::RedisClient.prepend Client
        ::RedisClient::PubSub.prepend PubSub
        ::RedisClient::ConnectionMixin.prepend Conversation
        ::RedisClient::RubyConnection.prepend WholeWrites
        ::RedisClient::Config::Common.include Configured
      else
        warn "polyphony: redis-client #{::RedisClient::VERSION} lacks #{missing.join(', ')}, so it is used as it comes: close a " \
             'client yourself after a cancelled command'
      end
    end
  end
end
