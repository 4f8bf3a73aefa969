# frozen_string_literal: true

module Polyphony
  class FiberConnectionPool
    # What belongs to a server, by its name: a part of its Shard. Looks like the hashes in which Sequel's own pools keep it, for extensions of
    # Sequel's; they may add entries of their own (arbitrary_servers does, by fiber).
    # @api private
    class View
      # @param part [Symbol] a method of Shard
      def initialize(pool, part)
        @pool = pool
        @part = part
        @others = {}.compare_by_identity
      end

      def [](key)
        shard = @pool.__shards[key]
        shard ? shard.public_send(@part) : @others[key]
      end

      def []=(key, value)
        @others[key] = value
      end

      def delete(key)
        @others.delete(key)
      end

      def values
        @pool.__shards.values.map(&@part)
      end

      def each_value(&block)
        values.each(&block)
      end
    end
  end
end
