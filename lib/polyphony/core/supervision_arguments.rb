# frozen_string_literal: true

module Polyphony
  # Refuses what makes no sense, before anything has been done.
  # @!visibility private
  module SupervisionArguments
    class << self
      def check(supervisor, fibers, handlers, policy, grace)
        check_supervisor(supervisor)
        fibers.each { |fiber| check_fiber(fiber, supervisor) }
        [*handlers.on_end, handlers.on_error, handlers.on_restart].compact.each { |handler| check_handler(handler) }
        check_grace(grace)
        return if handlers.on_restart.nil? || policy.restarts?

        raise ArgumentError, "on_restart: #{handlers.on_restart.inspect} needs restart"
      end

      private

      def check_supervisor(fiber)
        unless fiber.equal?(Fiber.current)
          raise FiberError, "only the current fiber can supervise, and #{fiber.inspect} is another one"
        end
        raise FiberError, "#{fiber.inspect} supervises already" if fiber.__supervisor
      end

      def check_fiber(fiber, supervisor)
        why = unfit(fiber, supervisor)
        raise ArgumentError, "#{fiber.inspect} #{why}: it cannot be supervised here" if why
      end

      def unfit(fiber, supervisor)
        return 'is no fiber' unless fiber.is_a?(Fiber)
        return 'is the fiber that supervises, or an ancestor' if ancestry(supervisor).include?(fiber)
        return 'was not made by spin' unless fiber.__spun?

        'belongs to another thread' unless fiber.thread == Thread.current
      end

      def ancestry(fiber)
        chain = [fiber]
        chain << chain.last.parent while chain.last.parent
        chain
      end

      def check_handler(handler)
        return if handler.respond_to?(:call)

        raise ArgumentError, "expected a handler that can be called, got #{handler.inspect}"
      end

      def check_grace(grace)
        return if grace.nil? || (grace.is_a?(Numeric) && grace.real? && !grace.negative?)

        raise ArgumentError, "grace must be nil or seconds, got #{grace.inspect}"
      end
    end
  end

  private_constant :SupervisionArguments
end
