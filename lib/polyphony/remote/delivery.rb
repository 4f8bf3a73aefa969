# frozen_string_literal: true

module Polyphony
  class Remote
    # A message that has come, and how: what Remote#delivery returns. Two deliveries of the same message have the same id.
    class Delivery
      # @return [String] the message's id, the same in all its deliveries
      attr_reader :id
      # @return [Integer] how often it was delivered, this time included
      attr_reader :deliveries
      # @return [Object] what was sent
      attr_reader :message
      # @return [String] the process that sent it
      attr_reader :sender

      # @api private
      # @raise [Unreadable]
      def initialize(subscription, id, deliveries, fields)
        @subscription = subscription
        @id = id
        @deliveries = deliveries
        @sender = fields['s'].to_s
        body = Codec.decode(fields['f'], fields['b'].to_s)
        @message = fields['k'] == 'ask' ? Question.received(remote, self, body, fields) : body
        @headers = fields['h']
        @state = :waiting
        @received = false
      end

      # @return [String] the name it was sent to
      def name
        @subscription.name
      end

      # @return [Boolean] whether somebody may have worked on it before
      def redelivered?
        @deliveries > 1
      end

      # @return [Time] when it was sent, by the clock of Redis
      def sent_at
        Time.at(0, Integer(@id[/\A\d+/]), :millisecond)
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@id} to #{name}, delivery #{@deliveries}>"
      end

      # @api private
      attr_accessor :registration

      # @api private
      # What the sender has told of its context. Anybody who can write to Redis may have written it.
      # @return [Hash{String => String}, nil]
      def headers
        @headers && Telemetry.__checked(::JSON.parse(@headers))
      rescue ::JSON::ParserError
        nil
      end

      # @api private
      def remote
        @subscription.remote
      end

      # @api private
      attr_reader :subscription

      # @api private
      # @return [Boolean] whether nobody has received it yet
      def waiting?
        @state == :waiting
      end

      # @api private
      def taken?
        @state == :taken
      end

      # @api private
      # @return [Boolean] whether a fiber has, or had, received it
      def received?
        @received
      end

      # @!visibility private
      def __taken
        @state = :taken
        @received = true
        @registration&.left(self)
      end

      # @!visibility private
      # To be acknowledged by the way.
      def __done
        @state = :done
        remote.__clerk.acknowledge(self)
      end

      # @!visibility private
      # Acknowledged by its receiver.
      def __acknowledged
        @state = :done
      end

      # @!visibility private
      def __give_back
        @registration&.left(self) if waiting?
        @state = :done
        remote.__clerk.do { @subscription.give_back([self]) }
      end

      # @!visibility private
      # It belongs to another process now.
      def __lost
        @state = :done
      end
    end
  end
end
