# frozen_string_literal: true

module Polyphony
  class Remote
    # A fiber that receives what is sent to a name.
    # @api private
    class Registration
      # @return [Fiber]
      attr_reader :fiber
      # @return [Integer] how many messages are in the mailbox
      attr_reader :waiting

      def initialize(subscription, fiber)
        @subscription = subscription
        @fiber = fiber
        @waiting = 0
        fiber.mailbox.__courier = Courier
        fiber.__tell_at_end(self)
      end

      # @return [Boolean] false if the fiber has ended
      def take(delivery)
        delivery.registration = self
        @waiting += 1
        return true if add(delivery)

        left(delivery)
        false
      end

      # @return [Boolean] false if nobody will take it
      def add(delivery)
        return @fiber.mailbox.__add(delivery) unless Telemetry.on?

        Telemetry.resume(delivery.headers) { @fiber.mailbox.__add(delivery) }
      end
      private :add

      # One has left the mailbox.
      def left(delivery)
        delivery.registration = nil
        @waiting -= 1
        @subscription.refill
      end

      def end
        @fiber.__remove_monitor(self)
      end

      # The fiber has ended.
      # @param report [Array(Fiber, Object)]
      def <<(report)
        reason = @fiber.__failed? ? "#{report.last.class}: #{report.last.message}" : 'normal'
        @subscription.remote.__clerk.do { @subscription.remove(self, reason) }
      end
    end
  end
end
