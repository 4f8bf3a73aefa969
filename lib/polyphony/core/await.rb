# frozen_string_literal: true

module Polyphony
  # Waiting for several fibers at once.
  module FiberAwait
    # Waits for all fibers. If one ends with an exception, the others are terminated and waited
    # for, and it is raised.
    # @param fibers [Array<Fiber>]
    # @return [Array] their results, in order
    def await(*fibers)
      fibers = fibers.flatten
      fibers.map(&:await)
    rescue Exception # rubocop:disable Lint/RescueException -- the rest must not be left running
      FiberAwait.end_all(fibers)
      raise
    end
    alias join await

    # @!visibility private
    def self.end_all(fibers)
      fibers.each(&:terminate)
      fibers.each { |fiber| end_one(fiber) }
    end

    # Its error has been reported through the first one, or is of the same making.
    def self.end_one(fiber)
      fiber.await
    rescue Exception # rubocop:disable Lint/RescueException
      raise unless fiber.dead?
    end
  end

  ::Fiber.extend FiberAwait
end
