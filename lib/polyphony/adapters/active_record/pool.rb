# frozen_string_literal: true

module Polyphony
  module Adapters
    module ActiveRecord
      # For ActiveRecord::ConnectionAdapters::ConnectionPool::Queue: who was told that a connection is there, and is ended before it takes it,
      # tells the next one. Active Record lets nobody jump the queue, so that otherwise all would wait beside idle connections.
      # @api private
      module Queue
        private

        def wait_poll(*)
          taken = super
        ensure
          synchronize { @cond.signal if any? } unless taken
        end
      end

      # For ActiveRecord::ConnectionAdapters::ConnectionPool: connections come back when their fibers end, and an error of an exhausted pool says
      # who has them.
      # @api private
      module Pool
        # @return [Array<Array(Fiber, Float)>] who has a connection, and since when on the monotonic clock
        def holders
          connections.filter_map { |connection| [connection.owner, connection.__since] if connection.in_use? }
        end

        def checkin(connection)
          connection.__mend
          super
        end

        def remove(connection)
          connection.__unwatch_owner
          super
        end

        # A connection on which an answer is to come cannot be asked whether it is well.
        def reap
          synchronize { discarded? ? [] : @connections.select { |connection| connection.in_use? && !connection.owner.alive? } }.each(&:__mend)
          super
        end

        # The fiber that had it has ended: gives it back, at once if that can be done without waiting.
        def __owner_ended(connection, fiber)
          return if discarded? || !fiber.equal?(connection.owner) || !@connections.include?(connection)
          return if connection.__clean? && __give_back_now(connection)

          ::Thread.new { __give_back(connection, fiber) }
        end

        private

        def acquire_connection(...)
          super.tap(&:__watch_owner)
        rescue ::ActiveRecord::ConnectionTimeoutError => e
          raise __name_holders(e)
        end

        def __name_holders(error)
          lines = holders.map { |fiber, since| Conversation.holding(fiber, since) }
          named = error.class.new([error.message, *lines].join("\n  "))
          named.set_backtrace(error.backtrace)
          named.set_pool(self)
        end

        # @return [Boolean] false if another thread, or a fiber that waits, has the pool's lock
        def __give_back_now(connection)
          return false unless mon_try_enter

          begin
            connection.steal!
            checkin(connection)
            true
          ensure
            mon_exit
          end
        end

        # In a thread of its own: it may wait for the lock and for the server.
        def __give_back(connection, fiber)
          mine = synchronize do
            !discarded? && @connections.include?(connection) && fiber.equal?(connection.owner) && (connection.steal! || true)
          end
          return unless mine

          connection.__mend
          connection.reset! unless connection.__clean?
          checkin(connection)
        rescue ::StandardError
          remove(connection)
          connection.disconnect!
        end
      end
    end
  end
end
