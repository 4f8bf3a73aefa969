# frozen_string_literal: true

module Polyphony
  class Remote
    # What goes wrong with names of other processes.
    class Error < ::RuntimeError
    end

    # Redis did not answer in time. The message names the server, the cause is what happened last.
    class Unreachable < Error
    end

    # The Remote was closed, or belongs to the process that this one was forked from.
    class Closed < Error
    end

    # A message cannot be written in the format that is used. The message names the value and where it is.
    class Unserialisable < Error
    end

    # A message is larger than +max_bytes+.
    class TooLarge < Error
    end

    # @!visibility private
    # A message that came cannot be read.
    class Unreadable < Error
    end

    # The other side answered with Request#reject. Its error is told by name: nothing is built from what the network says.
    class Rejected < Error
      # @return [String] the class of the error
      attr_reader :error_class
      # @return [String] its message
      attr_reader :error_message

      # @param name [String] who was asked
      def initialize(name, error_class, error_message)
        @error_class = error_class
        @error_message = error_message
        super("#{name} rejected the question: #{error_class}: #{error_message}")
      end
    end

    # The mailbox is full, and its policy is +:error+, or there was no room in time.
    class Full < Queue::Full
      # What Queue::Full asks a queue.
      Limit = Struct.new(:capped?, :owner)
      private_constant :Limit

      # @param name [Name]
      # @param capacity [Integer]
      def initialize(name, capacity)
        super(Limit.new(capacity, name))
      end
    end
  end
end
