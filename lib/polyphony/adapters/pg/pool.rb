# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # A ResourcePool of connections to PostgreSQL that keeps itself in order. What comes back is fit for the next user: a query
      # under way is cancelled, an open transaction rolled back, a pipeline ended. A connection that is broken, or that the
      # server has closed while nobody used it, is replaced.
      #
      # @example
      #   pool = Polyphony::Adapters::PG::Pool.new('postgresql:///app', limit: 5) # or host: 'db', dbname: 'app', limit: 5
      #   pool.exec('select 1')
      #   pool.transaction { |connection| connection.exec('...') }
      class Pool < ResourcePool
        # @param settings [String, Hash, URI, nil] for PG.connect
        # @param limit [Integer] how many connections there can be
        # @param options [Hash] for PG.connect as well: host, dbname, user, ...
        # @yield makes a connection, in the place of settings
        def initialize(settings = nil, limit: 4, **options, &connect)
          given = settings.is_a?(::Hash) ? [settings.merge(options)] : [settings, *[options].reject(&:empty?)].compact
          if given.empty? == connect.nil?
            raise ArgumentError, 'a pool needs either settings for PG.connect or a block that connects, ' \
                                 "got #{given.empty? ? 'nothing' : given.map(&:inspect).join(', ')}#{' and a block' if connect}"
          end

          connect ||= -> { ::PG.connect(*given) }
          super(limit: limit, &connect)
        end

        # As ResourcePool#acquire.
        # @yield [PG::Connection]
        def acquire(timeout: nil, &block)
          return super if block.nil? || @held.key?(::Fiber.current)

          super(timeout: timeout) { |connection| lend(connection, &block) }
        end

        # As ResourcePool#close. Without a block the connections are finished.
        def close(&dispose)
          super(&dispose || :finish.to_proc)
        end

        private

        def lend(connection)
          connection = replace unless alive?(connection)
          yield connection
        ensure
          take_back
        end

        # Nothing is sent: only what has arrived is looked at, the end of the connection for instance.
        def alive?(connection)
          connection.check_socket
          connection.status == ::PG::CONNECTION_OK
        rescue ::PG::Error
          false
        end

        def replace
          drop
          acquire { |connection| connection }
        end

        def take_back
          slot = @held[::Fiber.current]
          drop if slot.filled? && !slot.resource.__recover
        end

        def drop
          connection = discard!
          connection.finish unless connection.finished?
        end
      end
    end
  end
end
