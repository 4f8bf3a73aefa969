# frozen_string_literal: true

module Polyphony
  module Adapters
    module ActiveRecord
      # For ActiveRecord::ConnectionAdapters::AbstractAdapter: one fiber at a time; a query that is broken off ends the connection to
      # the server; who has it, and since when, is known, and when that fiber ends the pool hears of it.
      # @api private
      module Connection
        include Exclusive

        # What a fiber tells when it ends.
        Ending = Struct.new(:connection) do
          # In the fiber that ends, which cannot wait any more.
          def <<(report)
            fiber, = report
            connection.pool.__owner_ended(connection, fiber)
          end
        end
        private_constant :Ending

        # @return [Float, nil] when it was taken out of the pool, on the monotonic clock
        attr_reader :__since

        # It has an owner now, who may end without giving it back.
        def __watch_owner
          @__since = Clock.now
          owner.__tell_at_end(@__ending ||= Ending.new(self)) if owner.is_a?(::Fiber)
        end

        def __unwatch_owner
          owner.unmonitor(@__ending) if @__ending && owner.is_a?(::Fiber)
        end

        def expire
          __unwatch_owner
          super
        end

        # From one that has ended, perhaps without having been unwound from a query.
        def steal!
          __unwatch_owner
          @__polyphony_user = nil unless @__polyphony_user&.alive?
          super
        end

        # One that could not be set up is closed: the first versions of 7.2 would use it all the same, without knowing the types of the server.
        def reconnect!(**)
          __whole_or_closed { super }
        end

        # As reconnect!.
        def verify!
          __whole_or_closed { super }
        end

        # Whether the server may still answer a query that nobody waits for.
        def __interrupted?
          return true if @__interrupted
          return false unless @raw_connection

          Conversation.pending?(@raw_connection) || false
        end

        # Ends a connection to the server on which an answer is to come. The next one who needs it connects anew.
        def __mend
          return unless __interrupted?

          disconnect!
          @__interrupted = nil
        end

        # Says nothing more to the server, and listens no more. A transaction that is open is rolled back by the server.
        def __break_off
          @__interrupted = true
          transaction_open? ? @raw_connection&.close : __mend
        rescue ::StandardError # it is broken anyway
          nil
        end

        # Whether the next fiber can have it without anything being said to the server. What was broken off is closed already.
        def __clean?
          return false if transaction_open?

          @__interrupted || @raw_connection.nil? || Conversation.clean?(@raw_connection) != false
        end

        # In a transaction that was broken off there is nothing to go back to: the whole of it is lost.
        def rollback_to_savepoint(*)
          super unless @__interrupted
        end

        def restart_db_transaction
          super unless @__interrupted
        end

        # After a COMMIT that was broken off there is nothing to be rolled back: it was done, or the connection has been closed, and
        # would be made again only for this.
        def rollback_db_transaction
          super unless @raw_connection.nil? || Conversation.clean?(@raw_connection)
        end

        private

        # A transaction may still be restored after an error, on another connection.
        def __whole_or_closed
          yield
        rescue ::Exception => e # rubocop:disable Lint/RescueException -- is raised again
          __break_off if Conversation.cancel?(e) || !transaction_open?
          raise
        end

        # All queries go through here. In a transaction a broken connection stays broken: what follows must not be done outside of it.
        def with_raw_connection(...)
          @lock.synchronize do
            __alone do
              __mend_or_refuse if @__interrupted
              __noting_interruptions { super(...) }
            end
          end
        end

        def __mend_or_refuse
          return __mend unless transaction_open?

          raise ::ActiveRecord::ConnectionFailed.new('a query of this transaction was broken off, by a stop or a time limit; it is rolled back',
                                                     connection_pool: pool)
        end

        def __noting_interruptions
          over = false
          __note_rest
          result = yield
          over = true
          __note_rest
          result
        rescue ::ActiveRecord::ConnectionTimeoutError, ConnectionInUse
          over = true # not on this connection
          raise
        rescue ::StandardError => e
          over = Conversation.told_by_driver?(e) || (!e.cause.nil? && Conversation.told_by_driver?(e.cause)) || @__interrupted
          raise
        ensure
          __interrupt unless over
        end

        # Whether there is no transaction at the server. Calls nest: what a call finds when it is broken off may have been begun by one
        # inside of it, and is known to Active Record then.
        def __note_rest
          @__at_rest = @raw_connection.nil? || Conversation.clean?(@raw_connection)
        end

        # A BEGIN may be broken off when the server has done it. Active Record takes it for not done, and would give back a connection
        # on which nothing that others write is ever committed.
        def __interrupt
          return if @raw_connection.nil?
          return __break_off unless Conversation.pending?(@raw_connection) == false

          Conversation.roll_back(@raw_connection) if @__at_rest && !Conversation.clean?(@raw_connection)
        end
      end
    end
  end
end
