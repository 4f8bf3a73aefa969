# frozen_string_literal: true

module Polyphony
  # Mailboxes: every fiber has one, a Polyphony::Queue.
  module FiberMessaging
    # Calls the block with every message, until +break+, StopIteration, or until the mailbox is closed
    # and empty.
    # @yield [Object]
    def receive_loop
      Kernel.raise ArgumentError, 'receive_loop needs a block to call' unless block_given?

      loop do
        message = receive
        break if message.nil? && mailbox.closed? && mailbox.empty?

        Telemetry.on? ? Telemetry.continue { yield message } : yield(message)
      end
    end

    # @return [Array] all messages that are there, without waiting
    def receive_all_pending
      mailbox.shift_all
    end

    # Sends a Polyphony::Request with the message and waits until it is answered. From any fiber but
    # the asked one, and from any thread.
    # @param message [Object]
    # @param timeout [Numeric, nil] seconds; nil: no limit
    # @return [Object] what was given to Request#reply
    # @raise [Exception] what was given to Request#reject
    # @raise [Request::Unanswered] at once if the fiber ends, or has ended, without an answer
    # @raise [Request::Timeout] if none comes in time
    # @raise [FiberError] if a fiber asks itself
    def ask(message, timeout: nil)
      Kernel.raise FiberError, 'a fiber cannot ask itself' if equal?(Fiber.current)

      Request.new(self, message).__ask(timeout)
    end

    # @!visibility private
    # When a restart makes the fiber forget what it was told: whoever waits for an answer is told, too.
    def __drop_messages
      mailbox.clear
      __monitors&.grep(Request)&.each(&:__dropped)
      self
    end
  end

  ::Fiber.include FiberMessaging
end
