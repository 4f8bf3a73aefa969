# frozen_string_literal: true

require 'polyphony'
require 'active_record'
require 'polyphony/adapters/conversation'
require 'polyphony/adapters/drivers'
require 'polyphony/adapters/exclusive'
require 'polyphony/adapters/active_record/connection'
require 'polyphony/adapters/active_record/pool'
require 'polyphony/adapters/active_record/transactions'

module Polyphony
  module Adapters
    # Active Record in fibers: each fiber has its own state and, while it queries, its own connection.
    module ActiveRecord
      # What is replaced, in the classes of ActiveRecord::ConnectionAdapters.
      NEEDED = { ConnectionPool: %i[acquire_connection checkin remove reap discarded? mon_try_enter],
                 AbstractAdapter: %i[with_raw_connection expire steal! disconnect! transaction_open? rollback_to_savepoint
                                     restart_db_transaction],
                 TransactionManager: %i[rollback_transaction current_transaction within_new_transaction commit_transaction] }.freeze
      private_constant :NEEDED

      class << self
        # @api private
        def install
          classes = NEEDED.to_h { |name, methods| [name, check(::ActiveRecord::ConnectionAdapters.const_get(name), methods)] }
          classes[:ConnectionPool].prepend Pool
          check(classes[:ConnectionPool]::Queue, %i[wait_poll synchronize any?]).prepend Queue
          classes[:AbstractAdapter].prepend Connection
          classes[:TransactionManager].prepend Transactions
        end

        private

        def check(owner, names)
          missing = names.reject { |name| owner.method_defined?(name) || owner.private_method_defined?(name) }
          return owner if missing.empty?

          raise LoadError, "polyphony/adapters/active_record does not know Active Record #{::ActiveRecord.version}: #{owner} has no method " \
                           "#{missing.join(', ')} (7.2 is known to work)"
        end
      end

      ::ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      ::ActiveSupport.on_load(:active_record) { Polyphony::Adapters::ActiveRecord.install }
    end
  end
end
