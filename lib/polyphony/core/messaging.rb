# frozen_string_literal: true

module Polyphony
  # Mailboxes: every fiber has one, a Polyphony::Queue.
  module FiberMessaging
    # Calls the block with every message, for ever.
    def receive_loop
      loop { yield receive }
    end

    # @return [Array] all messages that are there, without waiting
    def receive_all_pending
      mailbox.shift_all
    end
  end

  ::Fiber.include FiberMessaging
end
