# frozen_string_literal: true

module Polyphony
  class Remote
    # What this process receives under a name, for one fiber or several.
    # @api private
    class Subscription
      # Messages that were in hand so often when a process was lost come alone.
      SUSPECT = 3
      private_constant :SUSPECT

      attr_reader :remote, :name, :capacity, :policy, :prefetch, :max_deliveries, :receivers

      def initialize(remote, name, capacity:, policy:, prefetch:, max_deliveries:)
        @remote = remote
        @link = remote.__link
        @name = name
        @capacity = capacity
        @policy = policy
        @prefetch = capacity.zero? ? prefetch : prefetch.clamp(1, [capacity / 2, 1].max)
        @max_deliveries = max_deliveries
        @receivers = []
        @held = {} # id => delivery that Redis does not know to be acknowledged
        @unseen = []
        @starved = @more = false
      end

      def key
        "#{@link.prefix}mailbox:#{@name}"
      end

      def join
        @link.run(:register, @name, @capacity, @policy, within: nil)
      end

      # @return [Registration, nil] of the fiber
      def of(fiber)
        @receivers.find { |receiver| receiver.fiber.equal?(fiber) }
      end

      def add(fiber)
        @receivers << Registration.new(self, fiber)
      end

      # @return [Integer] how many messages the mailboxes take
      def room
        @prefetch * @receivers.size - waiting
      end

      # @return [Integer] messages that are in mailboxes
      def waiting
        @receivers.sum(&:waiting)
      end

      # @return [Integer] messages that fibers are working on
      def in_hand
        @held.each_value.count(&:taken?)
      end

      # @return [Boolean] whether the reader should ask for more; if not, it is told when that changes
      def hungry?
        return true if room.positive?

        @starved = true
        false
      end

      # @param fields [Array<String>] names and values
      def deliver(id, deliveries, fields)
        return if @held.key?(id)

        delivery = Delivery.new(self, id, deliveries, fields.each_slice(2).to_h)
        @held[id] = delivery
        @remote.__count(:received)
        @remote.__count(:redelivered) if delivery.redelivered?
        expired?(delivery) ? delivery.__done : hand_out(delivery)
      rescue Unreadable => e
        @remote.__count(:unreadable)
        @remote.__clerk.do { @link.run(:bury, @name, id, deliveries, e.message, within: nil) }
      end

      # There may be room. Does not switch.
      def refill
        return unless @starved && room >= [@prefetch / 2, 1].max

        @starved = false
        @remote.__clerk.nudge
        look_for_more
      end

      # @raise [Unreachable]
      def acknowledge(deliveries, **limit)
        @remote.__count(:acknowledged, @link.run(:ack, @name, *deliveries.map(&:id), **limit))
        deliveries.each { |delivery| @held.delete(delivery.id) }
        look_for_more
      end

      def give_back(deliveries)
        deliveries.group_by(&:received?).each do |received, some|
          @remote.__count(:returned, @link.run(:give_back, @name, received ? 1 : 0, *some.map(&:id), within: nil))
          some.each { |delivery| @held.delete(delivery.id) }
        end
      end

      # Takes what others have given back, or left.
      # @param lost [Boolean] whether to look for processes that do not beat any more
      def claim(lost: false, within: nil)
        return if @receivers.empty?

        alone = @held.each_value.any? { |delivery| delivery.deliveries >= SUSPECT }
        more, *found = @link.run(:claim, @name, [room, 0].max, alone ? 1 : 0, @max_deliveries, lost ? 1 : 0, within: within)
        @more = more == 1
        found.each { |id, deliveries, fields| deliver(id, deliveries, fields) }
      end

      # Puts right what was lost on the way, or was given to others. If the reader has a connection, what is on its way to it looks
      # as if it were lost: it must look so twice.
      # @param reading [Boolean] whether the reader has a connection
      def sync(reading:, within:)
        unseen, foreign = @link.run(:sync, @name, *@held.keys, within: within)
        foreign.each { |id| lose(id) }
        before = @unseen
        @unseen = unseen.map(&:first)
        unseen.each { |id, deliveries, fields| deliver(id, deliveries, fields) if !reading || before.include?(id) }
      end

      # A fiber does not receive any more.
      def remove(registration, reason)
        return unless @receivers.delete(registration)

        registration.end
        return @remote.__leave(self, reason) if @receivers.empty?

        orphans = @held.values.select { |delivery| delivery.waiting? && registration.equal?(delivery.registration) }
        orphans.each do |delivery|
          take_out(delivery)
          hand_out(delivery)
        end
      end

      # Nobody is here any more: all goes back.
      # @raise [Unreachable]
      def leave(reason, **limit)
        empty
        received = @held.each_value.select(&:received?).map(&:id)
        @remote.__count(:returned, @link.run(:leave, @name, reason, *received, **limit))
      end

      # Another one has taken its place before it could leave.
      def hand_over
        empty
        give_back(@held.values)
      end

      # Takes out of the mailboxes what is there.
      def empty
        @held.each_value { |delivery| take_out(delivery) }
        @receivers.each(&:end)
      end

      def stats
        { receivers: @receivers.size, waiting: waiting, in_hand: in_hand }
      end

      private

      def expired?(delivery)
        return false unless delivery.message.is_a?(Question) && delivery.message.expired?

        @remote.__count(:expired)
        true
      end

      def hand_out(delivery)
        @receivers.sort_by(&:waiting).any? { |receiver| receiver.take(delivery) } || delivery.__give_back
      end

      def look_for_more
        return unless @more

        @more = false
        @remote.__clerk.do { claim }
      end

      def lose(id)
        delivery = @held[id]
        return unless delivery && take_out(delivery)

        delivery.__lost
        @held.delete(id)
      end

      # @return [Boolean] false if it is not in a mailbox
      def take_out(delivery)
        registration = delivery.registration
        return false unless registration && delivery.waiting?

        registration.fiber.mailbox.delete(delivery)
        registration.left(delivery)
        true
      end
    end
  end
end
