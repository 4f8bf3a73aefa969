# frozen_string_literal: true

require 'polyphony'
require 'timeout'

module Polyphony
  module Adapters
    # Where a connection of a driver stands: for pools, which must not hand out one on which an answer to somebody else is still
    # to come.
    # @api private
    module Conversation
      # As libpq numbers the states of a transaction.
      PG_IDLE = 0
      PG_ACTIVE = 1
      PG_UNKNOWN = 4

      class << self
        # Whether something is to come from the server, or the connection is closed. nil if the driver does not know.
        # @param raw [Object] a connection of a driver
        # @return [Boolean, nil]
        def pending?(raw)
          case kind(raw)
          when :pg then [PG_ACTIVE, PG_UNKNOWN].include?(pg_state(raw))
          when :sqlite then raw.closed? # there is no server
          when :mysql2, :trilogy then raw.closed? || nil
          end
        end

        # Whether it is as after connecting: nothing to come, no transaction open. nil for a driver that does not know.
        # @return [Boolean, nil]
        def clean?(raw)
          case kind(raw)
          when :pg then pg_state(raw) == PG_IDLE
          when :sqlite then !raw.closed? && !raw.transaction_active?
          end
        end

        # Ends a transaction that the server has begun and nobody knows of.
        def roll_back(raw)
          case kind(raw)
          when :pg then raw.__rollback
          when :sqlite then CancelScope.shield { raw.rollback }
          end
        end

        # Whether an error tells what the server or its driver had to say, so that the conversation has come to its end. An error from
        # elsewhere, which was raised in the fiber while it waited, tells nothing; nor does a driver that stopped waiting.
        # @param error [Exception]
        # @return [Boolean]
        def told_by_driver?(error)
          name = error.class.name.to_s
          name.match?(/\A(?:PG|Mysql2|Trilogy|SQLite3|Extralite)::/) && !name.include?('Timeout')
        end

        # @param error [Exception, nil]
        # @return [Boolean] whether it came from outside, to end a wait: a stop, a time limit
        def cancel?(error)
          !error.nil? && (!error.is_a?(::StandardError) || error.is_a?(::Timeout::Error))
        end

        # @return [String] a line of the error of an exhausted pool
        def holding(fiber, since)
          WaitReport.holding(fiber, since)
        end

        # In a forked child, for a connection of the parent's: lets go of it without a word to the server, also later, when it is
        # collected.
        def abandon(raw)
          case kind(raw)
          when :pg then raw.socket_io.reopen(IO::NULL) unless raw.status == ::PG::CONNECTION_BAD # a broken one has none
          when :mysql2 then raw.automatic_close = false
          when :trilogy then raw.discard!
          end
        rescue ::StandardError # it was closed
          nil
        end

        private

        # Subclasses, as Sequel's, count. A driver that is not loaded has made none.
        def kind(raw)
          if defined?(::PG::Connection) && raw.is_a?(::PG::Connection) then :pg
          elsif defined?(::SQLite3::Database) && raw.is_a?(::SQLite3::Database) then :sqlite
          elsif defined?(::Mysql2::Client) && raw.is_a?(::Mysql2::Client) then :mysql2
          elsif defined?(::Trilogy) && raw.is_a?(::Trilogy) then :trilogy
          end
        end

        def pg_state(raw)
          raw.transaction_status
        rescue ::PG::Error # closed
          PG_UNKNOWN
        end
      end
    end
  end
end
