# frozen_string_literal: true

module Polyphony
  module Adapters
    class SharedRedis
      # The connection of a thread, and those who share it. Requests go from the outbox, where what comes in one turn is gathered,
      # to those that are sent, in the order of their replies.
      #
      # All work is done by fibers that wait for a reply: one writes and one reads, at most. Who is done with it, or is cancelled,
      # appoints another one by waking it. Whoever is woken looks what there is to do. Only one thread comes here (but for
      # +close+), so between two switchpoints nothing changes.
      # @api private
      class Line
        # @return [Integer] commands without a reply
        attr_reader :outstanding

        # @param owner [SharedRedis]
        def initialize(owner)
          @owner = owner
          @thread = ::Thread.current
          @client = ::RedisClient.new(owner.config, **owner.limits)
          @outbox = []
          @sent = []
          @outstanding = 0
          @entrance = Polyphony::Mutex.new
          @room = WaitList.new(self, 'room on a shared connection')
          @writing = @reading = @closed = false
        end

        # Sends commands and waits for their replies.
        # @return [Array]
        # @raise [RedisClient::Error] if there is no connection, or it breaks
        def exchange(commands)
          request = enter(Request.new(commands))
          begin
            work_for(request) until request.settled?
          ensure
            abandon(request) unless request.settled?
          end
          request.value
        end

        # For good. Any thread: the fibers of ours find out when they read or write.
        def close
          @closed = true
          connection = @connection
          return connection&.close unless @thread.equal?(::Thread.current)

          fail_outbox(closed_error)
          break_off(connection, closed_error)
        end

        # In a forked child, where nobody waits.
        def forget
          @client.close
        end

        def connected?
          !!@connection&.connected?
        end

        private

        def work_for(request)
          if request.sent?
            @reading ? request.park : receive { request.settled? }
          else
            @writing ? request.park : write
          end
        end

        # One waits for room, the others for that one: otherwise, many small requests would keep a large one out.
        def enter(request)
          return add(request) if fits?(request) && !@entrance.locked?

          @entrance.synchronize do
            wait_for_room(request) until fits?(request)
            add(request)
          end
        end

        # One that is larger than the limit goes alone.
        def fits?(request)
          @outstanding.zero? || @outstanding + request.size <= @owner.limit
        end

        # If all who wait for replies have been cancelled, there is nobody else to read them.
        def wait_for_room(request)
          if @reading || @sent.empty? || @sent.any? { |other| !other.abandoned? } then @room.park
          else receive { fits?(request) }
          end
        end

        def add(request)
          @outstanding += request.size
          @outbox << request
          request
        end

        def leave(request)
          @outstanding -= request.size
          @room.wake
        end

        # The caller is cancelled.
        def abandon(request)
          if @outbox.delete(request) then leave(request)
          else request.abandon
          end
          appoint_writer
          appoint_reader
        end

        # Lets the others have their turn first, so that what they ask goes along.
        def write
          @writing = true
          snooze
          connection = connect or return
          write_batch(connection) unless @outbox.empty?
        ensure
          @writing = false
          appoint_writer
        end

        # Nothing is written while it waits, so a cancel concerns the canceller alone: another one connects.
        def connect
          return @connection if @connection && !@sent.empty?

          # Also asks whether an idle connection is alive, as redis-client does.
          connection = RedisClient::Resumable.wrap(@client.disable_reconnection(&:itself))
          unless connection.is_a?(RedisClient::Resumable)
            raise "redis-client #{::RedisClient::VERSION} keeps its buffer where it cannot be shared: use config.new_pool"
          end

          if @closed
            connection.close
            raise closed_error
          end
          @connection = connection
        rescue ::RedisClient::Error => e
          fail_outbox(e)
          nil
        end

        # In a shield: half a command would end the conversation for all. The connection's own limit is there still.
        def write_batch(connection)
          written = false
          batch = @outbox
          @outbox = []
          @sent.concat(batch.each(&:send!))
          shield do
            connection.write_multi(batch.flat_map(&:commands))
            written = true
          end
        rescue ::RedisClient::Error => e
          break_off(connection, e)
          written = true
        ensure
          break_off(connection, ::RedisClient::ConnectionError.new('writing was interrupted')) unless written
        end

        # Reads for all, until the block says that it is enough; then what is there already.
        def receive
          @reading = true
          connection = @connection
          read_reply(connection) until yield
          read_what_is_there(connection)
        rescue ::RedisClient::Error => e
          break_off(connection, e)
        ensure
          @reading = false
          appoint_reader
        end

        def read_reply(connection)
          reply = connection.read
          return if connection.push?

          request = @sent.first
          leave(@sent.shift) if request << reply
        end

        # Those whose replies have come with ours go on together, and what they ask next is written together.
        def read_what_is_there(connection)
          return if @sent.empty? || !connection.buffered?

          connection.without_waiting do
            read_reply(connection) while connection.equal?(@connection) && !@sent.empty? && connection.buffered?
          end
        rescue ::RedisClient::ReadTimeoutError
          nil # a part of a reply: the next reader goes on with it
        end

        # The first of the other side to notice tells all who wait for replies.
        def break_off(connection, error)
          return unless connection && connection.equal?(@connection)

          @connection = nil
          lost = @sent
          @sent = []
          lost.each do |request|
            leave(request)
            request.fail(error)
          end
          connection.close
        ensure
          appoint_writer
        end

        def fail_outbox(error)
          lost = @outbox
          @outbox = []
          lost.each do |request|
            leave(request)
            request.fail(error)
          end
        end

        def closed_error
          ::RedisClient::ConnectionError.new('the shared connection was closed')
        end

        def appoint_writer
          @outbox.first&.wake unless @writing
        end

        def appoint_reader
          return if @reading || @sent.empty?

          waiting = @sent.find { |request| !request.abandoned? }
          waiting ? waiting.wake : @room.wake
        end
      end
    end
  end
end
