# frozen_string_literal: true

module Polyphony
  # The pool of a Sequel::Database: each fiber that queries has a connection to itself, at most +max_connections+ to each server. Who comes
  # when all are in use waits, in order of arrival, at most +pool_timeout+ seconds. A connection goes back when the block ends, however it
  # ends; one that was left in the middle of a query is closed instead. A forked child makes connections of its own.
  #
  # With `require 'polyphony/adapters/sequel'` it is the pool that Sequel.connect makes, with and without +servers+.
  class FiberConnectionPool < ::Sequel::ConnectionPool
    # @return [Integer] how many connections there can be to each server
    attr_reader :max_size

    # @param db [Sequel::Database]
    # @param opts [Hash] +:max_connections+ (4), +:pool_timeout+ in seconds (5), +:servers+, +:servers_hash+, and
    #   +:connection_handling+ => +:disconnect+, which closes a connection after each use
    def initialize(db, opts = OPTS)
      super
      @max_size = positive(opts[:max_connections] || 4)
      @timeout = Float(opts[:pool_timeout] || 5)
      @close_always = opts[:connection_handling] == :disconnect
      @monitor = ::Monitor.new
      @servers = opts.fetch(:servers_hash, Hash.new(:default))
      @shards = PerProcess.new { |inherited| shards(inherited) }
      # Extensions of Sequel's know these of its own pools.
      @allocated = View.new(self, :allocated)
      @available_connections = View.new(self, :idle)
      add_servers([:default, *opts[:servers]&.keys])
    end

    # Calls the block with the fiber's connection. Within the block the fiber gets the same one again.
    # @param server [Symbol]
    # @yield [Object] the connection
    # @return [Object] what the block returns
    # @raise [Sequel::PoolTimeout] if none was free in time; the message says who has them
    # @raise [Sequel::DatabaseConnectionError] if a new one was needed and could not be made
    def hold(server = :default)
      server = pick_server(server)
      fiber = ::Sequel.current
      owned = owned_connection(fiber, server)
      return yield(owned) if owned

      ended = false
      begin
        connection = acquire(fiber, server)
        result = yield(connection)
        ended = true
        result
      rescue ::Sequel::DatabaseDisconnectError, *@error_classes => e
        doom(fiber, server) if connection && disconnect_error?(e)
        raise
      ensure
        disturb(fiber, server) unless ended
        connection ? release(fiber, connection, server) : give_up(fiber, server)
      end
    end

    # Closes all connections that nobody has, and the others when they come back.
    # @param opts [Hash] +:server+ => one or an Array of them
    # @return [nil]
    def disconnect(opts = OPTS)
      names = opts[:server] ? Array(opts[:server]) : servers
      names.each { |name| empty(shards_now.fetch(name) { raise ::Sequel::Error, "invalid server: #{name.inspect}" }) }
      nil
    end

    # Calls the block with the fiber's connections and with those that nobody has.
    # @yield [Object]
    def all_connections(&block)
      shards_now.values.each { |shard| shard.allocated[::Sequel.current]&.tap(&block) }
      shards_now.values.each { |shard| with_free_places(shard) { |places| places.filter_map(&:connection).each(&block) } }
      nil
    end

    # @return [Integer] how many connections there are, in use or not
    def size(server = :default)
      shards_now[@servers[server]].size
    end

    # @return [Integer] how many fibers wait for one
    def num_waiting(server = :default)
      shards_now[@servers[server]].waiting
    end

    # @return [Array<Array(Fiber, Float)>] who has a connection, and since when on the monotonic clock
    def holders(server = nil)
      found = server ? [shards_now[@servers[server]]] : shards_now.values
      found.flat_map { |shard| shard.held.to_a.map { |fiber, place| [fiber, place.since] } }
    end

    # @return [Hash{Fiber => Object}] connections that are in use
    def allocated(server = :default)
      @allocated[server]
    end

    # @return [Array<Object>] connections that are not
    def available_connections(server = :default)
      @available_connections[server]
    end

    # @return [Array<Symbol>]
    def servers
      sync { @servers.keys }
    end

    # @param names [Array<Symbol>]
    def add_servers(names)
      sync do
        (names - @servers.keys).each do |name|
          @servers[name] = name
          shards_now[name] = Shard.new(self, nil)
        end
      end
    end

    # As disconnect for these; from now on the default server is used in their place. Who waits for a connection to one of them gets an error.
    # @param names [Array<Symbol>]
    # @return [nil]
    def remove_servers(names)
      raise ::Sequel::Error, 'cannot remove default server' if names.include?(:default)

      removed = sync { names.filter_map { |name| shards_now.delete(name) if @servers.delete(name) } }
      removed.each(&:close)
      removed.each { |shard| empty(shard) }
      nil
    end

    # What extensions of Sequel's go by: this pool has the methods they need of that one.
    # @return [Symbol]
    def pool_type
      :sharded_threaded
    end

    # @return [self] which still works
    def freeze
      @servers.freeze
      super
    end

    # @return [String]
    def inspect
      used = holders.size
      "#<#{self.class} #{used} in use, at most #{max_size} for each of #{servers.size} server#{'s' if servers.size > 1}>"
    end
    alias to_s inspect

    # @api private
    def __shards
      @shards.value
    end

    # @api private
    # @return [Boolean] whether it has a place, and is closed when that is left
    def __place?(connection)
      __shards.values.any? { |shard| shard.connections.any? { |other| other.equal?(connection) } }
    end

    private

    alias shards_now __shards

    def positive(number)
      number = Integer(number)
      raise ::Sequel::Error, ":max_connections must be positive, got #{number}" if number < 1

      number
    end

    # In a forked child the connections are the parent's, and so are the fibers that have them.
    def shards(inherited)
      return {} unless inherited

      inherited.each_value { |shard| shard.connections.each { |connection| Adapters::Conversation.abandon(connection) } }
      inherited.to_h { |name, shard| [name, Shard.new(self, shard)] }
    end

    def sync(&block)
      @monitor.synchronize(&block)
    end

    def pick_server(server)
      @servers[server]
    end

    def owned_connection(fiber, server)
      shards_now[server].allocated[fiber]
    end

    # Also called again by a fiber whose connection an extension has found to be bad, and closed: it keeps its place.
    def acquire(fiber, server)
      shard = shards_now[server]
      place = shard.held[fiber]
      if place then place.connection = nil
      else place = wait_for_place(shard, fiber, server)
      end
      place.connection ||= make_new(server)
      shard.allocated[fiber] = place.connection
    end

    def wait_for_place(shard, fiber, server)
      reclaim(shard) if shard.full?
      began = Clock.now
      shard.take(fiber, @timeout) or raise ::Sequel::PoolTimeout, refusal(server, Clock.now - began)
    rescue ClosedQueueError
      raise ::Sequel::Error, "server #{server.inspect} was removed while #{fiber.inspect} waited for a connection to it"
    end

    # Connections of fibers that are gone without having been unwound.
    def reclaim(shard)
      shard.dead_holders.each do |fiber|
        place = shard.leave(fiber)
        close_and_free(shard, place) if place
      end
    end

    # What Sequel makes of an error in connecting is for errors: a stop stays a stop.
    def make_new(server)
      super
    rescue ::Sequel::DatabaseConnectionError => e
      cause = e.wrapped_exception || e.cause
      raise(Adapters::Conversation.cancel?(cause) ? cause : e)
    end

    def doom(fiber, server)
      place = shards_now[server]&.held&.[](fiber)
      place.doomed = true if place
    end

    def disturb(fiber, server)
      place = shards_now[server]&.held&.[](fiber)
      place.disturbed = true if place
    end

    def release(fiber, connection, server)
      shard = shards_now[server] or return disconnect_connection(connection)
      place = shard.leave(fiber) or return
      return close_and_free(shard, place) if @close_always || unusable?(place)

      checkin_connection(server, connection)
      shard.free(place) or disconnect_connection(connection)
    end

    # For extensions, which note when it came back.
    def checkin_connection(_server, connection)
      connection
    end

    # acquire failed, here or in an extension, which has closed the connection if it took it out.
    def give_up(fiber, server)
      shard = shards_now[server] or return
      owned = shard.allocated.key?(fiber)
      place = shard.leave(fiber) or return
      place.connection = nil unless owned
      close_and_free(shard, place)
    end

    def unusable?(place)
      connection = place.connection
      place.doomed || Adapters::SequelDatabase.interrupted?(connection) || Adapters::Conversation.pending?(connection) ||
        (place.disturbed && Adapters::Conversation.clean?(connection) == false)
    end

    # The place is free again, whatever becomes of the goodbye.
    def close_and_free(shard, place)
      close(place)
    ensure
      shard.free(place)
    end

    def close(place)
      connection = place.connection
      place.connection = nil
      disconnect_connection(connection) if connection
    end

    def empty(shard)
      shard.held.values.each { |place| place.doomed = true } # a copy: others may come and go
      with_free_places(shard) { |places| places.each { |place| close(place) } }
    end

    # Who comes meanwhile waits.
    # @yield [Array<Shard::Place>]
    def with_free_places(shard)
      places = []
      while (place = shard.try_take) do places << place end
      yield places
    ensure
      places.reverse_each { |free| shard.free(free) }
    end

    # Sequel calls it for the option +preconnect+.
    # @param concurrent [Boolean] all at once, in fibers
    def preconnect(concurrent = false)
      shards_now.to_a.each do |server, shard|
        with_free_places(shard) do |places|
          if concurrent then Polyphony.scope { |scope| places.each { |place| scope.spin { fill(place, server) } } }
          else places.each { |place| fill(place, server) }
          end
        end
      end
      nil
    end

    def fill(place, server)
      return if place.connection

      place.connection = make_new(server)
      checkin_connection(server, place.connection)
    end

    def refusal(server, seconds)
      name = db.opts[:name]
      first = format('timeout: %s, elapsed: %.3f, server: %s%s', @timeout, seconds, server, name ? ", database name: #{name}" : '')
      lines = holders(server).map { |fiber, since| WaitReport.holding(fiber, since) }
      ["#{first}: all #{max_size} connections are in use", *lines].join("\n  ")
    end
  end
end

require 'polyphony/adapters/sequel/shard'
require 'polyphony/adapters/sequel/view'

class Polyphony::FiberConnectionPool
  private_constant :Shard, :View
end
