# frozen_string_literal: true

module Polyphony
  module Adapters
    module RedisClient
      # A connection of redis-client's own driver on which reading can be broken off in the middle of a reply. The next
      # read, of whichever fiber, begins with what was there.
      # @api private
      class Resumable
        # Notes what redis-client's parser takes from the buffer, so that the parser can be started again.
        class Replay
          READING = %i[getbyte gets_chomp gets_integer read_chomp skip].freeze

          # @return [Integer, nil] the first byte of the reply, its type
          attr_reader :type

          # @param buffer [RedisClient::RubyConnection::BufferedIO]
          def initialize(buffer)
            @buffer = buffer
            @taken = []
            @next = nil # nil: nothing is noted
            @type = nil
          end

          (::RedisClient::RubyConnection::BufferedIO.public_instance_methods(false) - READING).each do |name|
            define_method(name) { |*args, &block| @buffer.public_send(name, *args, &block) }
          end

          # Each of these takes all or nothing, so what was cancelled is done again.
          READING.each do |name|
            class_eval <<~RUBY, __FILE__, __LINE__ + 1
              def #{name}(*args)
                return @buffer.#{name}(*args) unless @next

                @taken << @buffer.#{name}(*args) if @next == @taken.size
                @next += 1
                @taken[@next - 1]
              end
            RUBY
          end

          # Runs the block, which parses a reply, from its beginning.
          def whole
            @next = 0
            reply = yield
            @type = @taken.first
            @taken.clear
            reply
          ensure
            @next = nil
          end

          # @return [Boolean] false if the next read would certainly have to wait
          def buffered?
            bytes = @buffer.instance_variable_get(:@buffer)
            offset = @buffer.instance_variable_get(:@offset)
            !(bytes && offset) || bytes.bytesize > offset
          end
        end
        private_constant :Replay

        # '>' in RESP3: news, and no reply.
        PUSH = 62

        # @return [RedisClient::RubyConnection, Object] the connection itself if it is another driver's
        def self.wrap(connection)
          return connection unless connection.is_a?(::RedisClient::RubyConnection)

          buffer = connection.instance_variable_get(:@io)
          case buffer
          when Replay then new(connection, buffer)
          when ::RedisClient::RubyConnection::BufferedIO
            replay = Replay.new(buffer)
            connection.instance_variable_set(:@io, replay)
            new(connection, replay)
          else connection
          end
        end

        def initialize(connection, replay)
          @connection = connection
          @replay = replay
        end

        # @param timeout [Numeric, nil] as for redis-client: 0 for ever, nil what the connection is set to
        # @return [Object] the reply; the error of a command is returned, too
        def read(timeout = nil)
          @replay.whole { @connection.read(timeout) }
        end

        # @return [Boolean] whether what was read last is news that nobody has asked for
        def push?
          @replay.type == PUSH
        end

        # @return [Boolean] false if a read would have to wait; true if it may not
        def buffered?
          @replay.buffered?
        end

        # Runs the block; in it, a read that would have to wait raises RedisClient::ReadTimeoutError.
        def without_waiting
          limit = @replay.read_timeout
          @replay.read_timeout = 0
          yield
        ensure
          @replay.read_timeout = limit
        end

        def write(command)
          @connection.write(command)
        end

        def write_multi(commands)
          @connection.write_multi(commands)
        end

        def close
          @connection.close
        end

        def connected?
          @connection.connected?
        end
      end
    end
  end
end
