# frozen_string_literal: true

module Polyphony
  # Shares a few resources, connections for instance, between many fibers, of any threads. They are
  # made when they are first needed, at most +limit+ of them; who comes when all are in use waits,
  # in order of arrival. A forked child begins with an empty pool.
  #
  # @example
  #   pool = Polyphony::ResourcePool.new(limit: 2) { Database.connect }
  #   pool.acquire { |connection| connection.query('select 1') }
  #   pool.query('select 1')                                      # the same
  class ResourcePool
    # Raised by acquire when no resource was free in time. The message says who has them.
    class Exhausted < ::RuntimeError
    end

    # Raised by acquire when the pool is closed.
    class Closed < ::RuntimeError
    end

    # Ruby calls these by itself, to find out what an object can be used for.
    CONVERSIONS =
      %i[to_ary to_hash to_int to_io to_open to_path to_proc to_regexp to_str to_sym].freeze
    private_constant :CONVERSIONS

    # @return [Integer] how many resources there can be
    attr_reader :limit

    # @param limit [Integer] how many resources there can be
    # @param healthy [#call, nil] is asked before a resource is used again. If it returns false, or raises, the resource is
    #   dropped and another made in its place.
    # @yield makes a resource. May wait and may fail; the error goes to whoever wanted the resource.
    def initialize(limit: 4, healthy: nil, &allocate)
      raise ArgumentError, 'a pool needs a block that makes a resource' unless allocate
      unless limit.is_a?(Integer) && limit.positive?
        raise ArgumentError, "limit must be a positive Integer, got #{limit.inspect}"
      end
      unless healthy.nil? || healthy.respond_to?(:call)
        raise ArgumentError, "healthy must be something to call with a resource, a lambda for instance, got #{healthy.inspect}"
      end

      @limit = limit
      @healthy = healthy
      @allocate = allocate
      @held = {}.compare_by_identity # fiber => slot
      @stock = PerProcess.new { |inherited| stock(inherited) }
    end

    # Calls the block with a resource, which is the fiber's until the block ends, however it ends.
    # Within the block the fiber gets the same one again.
    # @param timeout [Numeric, nil] how many seconds to wait for a free one, not for its making
    # @yield [Object] the resource
    # @return [Object] what the block returns
    # @raise [Exhausted] if none was free in time
    # @raise [Closed] if the pool is closed, or is being closed while it waits
    def acquire(timeout: nil, &block)
      raise ArgumentError, 'acquire needs a block to run' unless block

      slot = @held[::Fiber.current]
      slot ? yield(slot.fill(&@allocate)) : acquire_slot(timeout, &block)
    end

    # Takes the fiber's resource out of the pool, say because it is broken. The fiber has it still;
    # another one is made in its place when it is needed. Only within acquire.
    # @return [Object] the resource, for you to close
    # @raise [FiberError] if the fiber has none
    def discard!
      slot = @held[::Fiber.current]
      raise FiberError, "#{::Fiber.current.inspect} has no resource to discard" unless slot&.filled?

      slot.empty
    end

    # Makes all resources that are missing, one after the other.
    # @return [self]
    def fill!
      idle = []
      while (slot = @stock.value.try_take) do idle << slot end
      ready, idle = idle.partition(&:filled?)
      ready.reverse_each { |ready_slot| free(ready_slot) }
      until idle.empty?
        idle.first.fill(&@allocate)
        free(idle.shift)
      end
      self
    ensure
      idle&.each { |idle_slot| free(idle_slot) }
    end

    # Nobody gets a resource any more; who waits for one gets Closed. Resources that are in use can
    # be used on. If the block raises, those that are left are for the next call of close.
    # @yield [Object] closes a resource: now those that nobody has, the others when they come back
    # @return [self]
    def close(&dispose)
      @dispose = dispose || @dispose || proc {}
      @stock.value.close { |slot| dispose_of(slot) }
      self
    end

    # @return [Boolean]
    def closed?
      @stock.value.closed?
    end

    # @return [Integer] how many resources there are, in use or not
    def size
      @stock.value.size
    end

    # @return [Integer] how many fibers can have one without waiting
    def available
      @stock.value.available
    end

    # @return [Array<Array(Fiber, Float)>] who has a resource, and since when on the monotonic clock
    def holders
      @held.to_a.map { |fiber, slot| [fiber, slot.since] }
    end

    # @return [String]
    def inspect
      waiting = @stock.value.waiting
      "#<#{self.class} #{@held.size} of #{limit} in use, #{size} made, #{waiting} waiting>"
    end
    alias to_s inspect

    private

    # Sends it to an acquired resource.
    def method_missing(name, *args, **options, &block)
      return super if CONVERSIONS.include?(name)

      acquire { |resource| resource.public_send(name, *args, **options, &block) }
    end

    def respond_to_missing?(name, _include_private)
      !CONVERSIONS.include?(name)
    end

    # In a forked child the fibers that have resources are gone, except the one that forked.
    def stock(inherited)
      @held.keys.each { |fiber| @held.delete(fiber) if fiber.dead? }
      Stock.new(self, inherited).tap { |stock| stock.close { nil } if @dispose }
    end

    def acquire_slot(timeout)
      slot = @stock.value.take(timeout) or raise refusal(timeout)
      @held[::Fiber.current] = slot.hold
      slot.empty unless fit?(slot)
      yield slot.fill(&@allocate)
    ensure
      if slot
        @held.delete(::Fiber.current)
        free(slot)
      end
    end

    def fit?(slot)
      !@healthy || !slot.filled? || @healthy.call(slot.resource)
    rescue ::StandardError
      false # one that cannot even be asked
    end

    def free(slot)
      slot.free
    rescue ClosedQueueError
      dispose_of(slot)
    end

    def dispose_of(slot)
      @dispose.call(slot.empty) if slot.filled?
    end

    def refusal(timeout)
      return Closed.new("#{inspect} is closed") if closed?

      now = Clock.now
      lines = @held.to_a.map do |fiber, slot|
        format('%s has %s since %.3f s', fiber.inspect, describe(slot), now - slot.since)
      end
      Exhausted.new(["no resource was free within #{timeout} s: #{inspect}", *lines].join("\n  "))
    end

    # Briefly: a connection may show all its settings.
    def describe(slot)
      return 'one that is being made' unless slot.filled?

      text = slot.resource.inspect
      text.size > 80 ? "#{text[0, 77]}..." : text
    rescue ::StandardError => e
      "one that cannot be shown (#{e.class})"
    end
  end
end

require 'polyphony/core/resource_pool/slot'
require 'polyphony/core/resource_pool/stock'

class Polyphony::ResourcePool
  private_constant :Slot, :Stock
end
