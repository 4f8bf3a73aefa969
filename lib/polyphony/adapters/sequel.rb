# frozen_string_literal: true

require 'polyphony'
require 'sequel'
require 'polyphony/adapters/conversation'
require 'polyphony/adapters/drivers'
require 'polyphony/adapters/sequel/fiber_connection_pool'
require 'polyphony/adapters/sequel/database'

module Polyphony
  module Adapters
    # Which pool a Sequel::Database gets.
    # @api private
    module SequelPools
      # What Sequel's own pools, and its extensions, are made of.
      NEEDED = { connection_pool_class: ::Sequel::ConnectionPool.singleton_class, make_new: ::Sequel::ConnectionPool,
                 log_connection_yield: ::Sequel::Database, _transaction: ::Sequel::Database }.freeze
      NEEDED.each do |name, owner|
        next if owner.method_defined?(name) || owner.private_method_defined?(name)

        raise LoadError, "polyphony/adapters/sequel does not know Sequel #{::Sequel.version}: #{owner.inspect} has no method #{name} " \
                         '(5.80 to 5.110 are known to work)'
      end

      private

      # Who asks for another pool gets it.
      def connection_pool_class(opts)
        return super if opts[:pool_class] || opts[:single_threaded] || ENV['SEQUEL_DEFAULT_CONNECTION_POOL']

        FiberConnectionPool
      end
    end

    # A child that uses no database must not end its parent's connections either, when Ruby frees them at its end.
    ProcessFork.in_child do
      ::Sequel::DATABASES.each { |database| database.pool.__shards if database.pool.is_a?(FiberConnectionPool) }
    end

    ::Sequel.extension :fiber_concurrency
    ::Sequel::ConnectionPool.extend SequelPools
    ::Sequel::Database.prepend SequelDatabase
  end
end
