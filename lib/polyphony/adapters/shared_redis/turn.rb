# frozen_string_literal: true

module Polyphony
  module Adapters
    class SharedRedis
      # What a caller sees of the connection: its commands and their replies, as if there were no others. redis-client
      # does the rest: which error belongs to which command, and what is raised.
      # @api private
      class Turn
        include ::RedisClient::ConnectionMixin

        # Versions differ in what it takes.
        TAKES_CONFIG = ::RedisClient::ConnectionMixin.instance_method(:initialize).arity != 0

        # Versions between those ask for it, and have it in their own connections.
        # @return [RedisClient::Config]
        attr_reader :config

        # @param line [Line]
        # @param config [RedisClient::Config]
        def initialize(line, config)
          TAKES_CONFIG ? super(config) : super()
          @config = config
          @line = line
        end

        def write(command)
          Refusals.check(command)
          prepare [command]
        end

        def write_multi(commands)
          (Refusals.transaction?(commands) ? commands[1..-2] : commands).each { |command| Refusals.check(command) }
          prepare commands
        end

        # @param _timeout [nil] commands with limits of their own are refused
        def read(_timeout = nil)
          @replies ||= @line.exchange(@commands)
          @replies.shift
        end

        def measure_round_trip_delay
          began = Clock.now
          call(['PING'], nil)
          (Clock.now - began) * 1000
        end

        # The connection is not this caller's to close.
        def close
          nil
        end

        private

        def prepare(commands)
          @commands = commands
          @replies = nil
        end
      end
    end
  end
end
