# frozen_string_literal: true

module Polyphony
  # What Ruby 3.2 and later have themselves: values that belong to a fiber and are inherited by the
  # fibers it spins. The Hash is shared and replaced on writing. For Ruby 3.1; there, fibers made by
  # Fiber.new begin without.
  module FiberStorage
    # What the class Fiber gains.
    module ClassMethods
      # @param key [Symbol]
      # @return [Object, nil] of the current fiber
      def [](key)
        FiberStorage.key(key)
        current.__storage&.[](key)
      end

      # @param key [Symbol]
      # @param value [Object, nil] nil takes it out
      def []=(key, value)
        storage = { **(current.__storage || {}), FiberStorage.key(key) => value }
        storage.delete(key) if value.nil?
        current.__storage = storage.freeze
      end
    end

    # @return [Hash] a copy
    # @raise [ArgumentError] for another fiber than the current one
    def storage
      FiberStorage.own(self)
      (__storage || {}).dup
    end

    # @param hash [Hash, nil]
    # @raise [ArgumentError] for another fiber than the current one
    def storage=(hash)
      FiberStorage.own(self)
      unless hash.nil? || hash.is_a?(Hash)
        Kernel.raise TypeError, "wrong argument type #{hash.class} (expected Hash)"
      end
      hash&.each_key { |key| FiberStorage.key(key) }
      self.__storage = hash && hash.dup.freeze
    end

    # @!visibility private
    def self.key(key)
      return key if key.is_a?(Symbol)

      Kernel.raise TypeError, "wrong argument type #{key.class} (expected Symbol)"
    end

    # @!visibility private
    def self.own(fiber)
      return if fiber.equal?(Fiber.current)

      Kernel.raise ArgumentError, 'Fiber storage can only be accessed from the Fiber it belongs to'
    end
  end

  unless ::Fiber.method_defined?(:storage)
    ::Fiber.include FiberStorage
    ::Fiber.extend FiberStorage::ClassMethods
  end
end
