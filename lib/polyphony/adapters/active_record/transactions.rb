# frozen_string_literal: true

module Polyphony
  module Adapters
    module ActiveRecord
      # For ActiveRecord::ConnectionAdapters::TransactionManager: a stopped fiber does not wait for ever for a server that is gone. The server
      # rolls back by itself when the connection is closed. And what a killed fiber has begun is not committed: to Active Record a kill
      # is a way to leave the block.
      # @api private
      module Transactions
        def within_new_transaction(**options)
          killed = []
          super(**options) do |transaction|
            Polyphony.__noting_kill(killed) { yield transaction }
          ensure
            @__polyphony_killed = killed.any?
          end
        ensure
          @__polyphony_killed = false
        end

        def commit_transaction
          @__polyphony_killed ? rollback_transaction : super
        end

        def rollback_transaction(transaction = nil)
          return super unless Conversation.cancel?($!)

          transaction ||= current_transaction
          seconds = @connection.pool.checkout_timeout if @connection.pool.respond_to?(:checkout_timeout)
          return if move_on_after(seconds || 5) { super(transaction); true }

          @connection.__break_off
          super(transaction)
        end
      end
    end
  end
end
