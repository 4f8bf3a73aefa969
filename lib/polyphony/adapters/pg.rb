# frozen_string_literal: true

require 'pg'
require 'polyphony'
require 'polyphony/adapters/exclusive'

if (PG::VERSION.split('.').map(&:to_i) <=> [1, 5]).negative?
  raise LoadError, "polyphony/adapters/pg needs pg 1.5 or later, got #{PG::VERSION}: gem 'pg', '>= 1.5'"
end

module Polyphony
  module Adapters
    # The gem pg, from 1.5 on. It asks the scheduler by itself where it can; this adds the main fiber, the calls that stop the
    # thread all the same (sync_*, lo_*, ping, names that cannot be resolved), and order on a connection whose query is
    # cancelled.
    # @see Pool
    module PG
      @drain_time = 1

      class << self
        # @return [Numeric] how many seconds a cancelled query may take to end. A connection that is not free by then is thrown
        #   away. While it lasts, the fiber cannot be stopped.
        attr_reader :drain_time

        # @param seconds [Numeric] 0: every connection whose query is cancelled is thrown away
        def drain_time=(seconds)
          unless seconds.is_a?(Numeric) && seconds.real? && seconds >= 0
            raise ArgumentError, "drain_time must be a number of seconds, 0 or more, got #{seconds.inspect}"
          end

          @drain_time = seconds
        end
      end

      # What waits in C.
      StandIn.for ::PG::Connection,
                  :exec, :async_exec, :query, :async_query, :exec_params, :async_exec_params, :prepare, :async_prepare,
                  :exec_prepared, :async_exec_prepared, :describe_prepared, :async_describe_prepared, :describe_portal,
                  :async_describe_portal, :close_prepared, :async_close_prepared, :close_portal, :async_close_portal,
                  :set_client_encoding, :async_set_client_encoding, :client_encoding=, :set_default_encoding, :send_query,
                  :send_query_params, :send_prepare, :send_query_prepared, :send_describe_prepared, :send_describe_portal,
                  :send_close_prepared, :send_close_portal, :get_last_result, :async_get_last_result, :flush, :async_flush,
                  :discard_results, :block, :wait_for_notify, :notifies_wait
      StandIn.for ::PG::Result, :stream_each, :stream_each_row, :stream_each_tuple
    end
  end
end

require 'polyphony/adapters/pg/ending'
require 'polyphony/adapters/pg/connection'
require 'polyphony/adapters/pg/large_objects'
require 'polyphony/adapters/pg/connecting'
require 'polyphony/adapters/pg/result'
require 'polyphony/adapters/pg/pool'

module Polyphony
  module Adapters
    module PG
      private_constant :Ending, :Connection, :LargeObjects, :Connecting, :Result
      ::PG::Connection.prepend Ending, LargeObjects, Connection
      ::PG::Connection.singleton_class.prepend Connecting
      ::PG::Result.prepend Result
      # A forked child has its parent's connections, and would log out of them when it ends.
      ProcessFork.in_child { |parent| ::ObjectSpace.each_object(::PG::Connection) { |connection| connection.__disown(parent) } }
    end
  end
end
