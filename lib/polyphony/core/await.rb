# frozen_string_literal: true

module Polyphony
  # Waiting for several fibers at once.
  module FiberAwait
    # Waits for all fibers. If one ends with an exception, or the wait itself is interrupted, the
    # others are terminated and waited for, and the exception is raised.
    # @param fibers [Array<Fiber>]
    # @return [Array] their results, in order
    # @raise [TypeError] if one of them is not a fiber
    def await(*fibers)
      fibers = fibers.flatten
      fibers.each do |fiber|
        raise TypeError, "expected a Fiber, got #{fiber.inspect}" unless fiber.is_a?(Fiber)
      end
      FiberAwait.await_all(fibers)
    end
    alias join await

    # @!visibility private
    def self.await_all(fibers)
      fibers.map(&:await)
    rescue Exception # rubocop:disable Lint/RescueException -- the rest must not be left running
      end_all(fibers)
      raise
    end

    # @!visibility private
    def self.end_all(fibers)
      fibers.each(&:terminate)
      fibers.each { |fiber| end_one(fiber) }
    end

    # @!visibility private
    # Its error has been reported through the first one, or is of the same making.
    def self.end_one(fiber)
      fiber.await
    rescue Exception # rubocop:disable Lint/RescueException
      raise unless fiber.dead?
    end
  end

  ::Fiber.extend FiberAwait
end
