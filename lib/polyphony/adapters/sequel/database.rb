# frozen_string_literal: true

module Polyphony
  module Adapters
    # What becomes of a connection when its fiber is stopped in the middle of a query: nobody talks on it any more, and the pool closes it.
    # @api private
    module SequelDatabase
      MARK = :@__polyphony_interrupted

      class << self
        # @return [Boolean] whether a query on it was broken off
        def interrupted?(connection)
          connection.instance_variable_defined?(MARK)
        end

        # @raise [Sequel::DatabaseDisconnectError] if a query on it was broken off
        def refuse(connection)
          return unless interrupted?(connection)

          raise ::Sequel::DatabaseDisconnectError,
                'a query on this connection was broken off, by a stop or a time limit; it is closed when its block ends'
        end

        def mark(connection)
          connection.instance_variable_set(MARK, true)
        end
      end

      # Sequel notes after these which statements a connection knows by name. If they are broken off, nobody can tell whether they were done.
      NAMING = /\A(?:PREPARE|DEALLOCATE) /.freeze
      private_constant :NAMING

      # Every query goes through here, those that begin and end transactions, too.
      def log_connection_yield(sql, connection, _args = nil)
        SequelDatabase.refuse(connection)
        over = false
        result = super
        over = true
        result
      rescue ::StandardError => e
        over = e.is_a?(::Sequel::DatabaseError) || Conversation.told_by_driver?(e)
        raise
      ensure
        __break_off(connection) unless over || connection.nil? || (Conversation.pending?(connection) == false && !NAMING.match?(sql))
      end

      private

      # To Sequel a kill of the fiber is a way to leave the block, and it would commit. And where it has to ask the server whether there are
      # savepoints, it does so in the middle of the first transaction, and again after that was ended there, on a broken connection.
      def _transaction(connection, opts = ::Sequel::OPTS)
        supports_savepoints?
        killed = []
        super(connection, opts) do |given|
          Polyphony.__noting_kill(killed) { yield given }
        ensure
          rollback_on_exit(server: opts[:server]) if killed.any?
        end
      end

      # One that is still being set up, by settings and after_connect, is not the pool's yet, and nobody else would close it.
      def __break_off(connection)
        SequelDatabase.mark(connection)
        disconnect_connection(connection) if pool.respond_to?(:__place?) && !pool.__place?(connection)
      end

      # A stopped fiber does not wait for ever for a server that is gone. The server rolls back by itself when the connection
      # is closed. One that was ended while it began has nothing to roll back, which SQLite takes for an error.
      def rollback_transaction(connection, *)
        return if Conversation.clean?(connection)
        return super unless Conversation.cancel?($!)

        move_on_after(Float(opts[:pool_timeout] || 5)) { super }
      end
    end
  end
end
