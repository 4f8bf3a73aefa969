# frozen_string_literal: true

module Polyphony
  # What fibers wait for, in words: for deadlocks, time limits, and exhausted pools.
  # @!visibility private
  module WaitReport
    class << self
      # @param reason [String] completes "waits for ..."
      # @param subject [Object] the queue, lock, io, fiber it waits for
      # @return [String]
      def describe(reason, subject)
        subject = named(subject)
        case subject
        when NilClass then reason
        when ::SizedQueue then "#{subject.size < subject.max ? 'an item' : 'room'} in a queue (#{title(subject)})"
        else "#{reason} (#{title(subject)})"
        end
      end

      # Who has what others wait for: +[fiber, since]+ each.
      def holders(subject)
        subject = named(subject)
        subject.respond_to?(:holders) ? Array(subject.holders) : []
      rescue ::StandardError # a report is worth more than a line of it
        []
      end

      # @param since [Float, nil] on the monotonic clock
      # @return [String]
      def ago(since)
        since ? " for #{format('%.1f', Clock.now - since)} s" : ''
      end

      # One line for one fiber, and one for each that has what it waits for.
      def lines(fiber)
        reason, subject, since = fiber.__wait
        wait = describe(reason || 'being scheduled', subject)
        ["#{title(fiber)} waits for #{wait}#{ago(since)}#{origin(fiber)}",
         *holders(subject).map { |holder, held| "  held by #{title(holder)}#{ago(held)}" }]
      end

      # A fiber without its state: the one that polls would be called running.
      def title(object)
        object.inspect.sub(/\A(#<Fiber.*) \(\w+\)>\z/, '\1>')
      rescue ::StandardError => e
        "one that cannot be shown (#{e.class})"
      end

      private

      # Only ours are asked: a proxy may answer to anything, and a BasicObject to nothing.
      def named(subject)
        case subject
        when Queue then subject.__owner || subject.owner || subject
        when ThreadLife then subject.instance_variable_get(:@thread)
        when StockLocks::Waiters then subject.lock
        when WaitList, Event then (subject.owner if subject.respond_to?(:owner)) || subject
        else subject
        end
      end

      def origin(fiber)
        line = fiber.caller.first
        line && ", spun at #{line[/\A.*?:\d+/]}"
      end
    end
  end

  private_constant :WaitReport
end
