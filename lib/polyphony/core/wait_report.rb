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
        subject.nil? ? reason : "#{reason} (#{title(subject)})"
      end

      # Who has what others wait for: +[fiber, since]+ each.
      def holders(subject)
        subject = named(subject)
        subject.respond_to?(:holders) ? subject.holders : []
      end

      # @param since [Float, nil] on the monotonic clock
      # @return [String]
      def ago(since)
        since ? " for #{format('%.1f', Deadline.__now - since)} s" : ''
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
      end

      private

      # Ours are asked, not others: a pool says that it responds to everything.
      def named(subject)
        owner = case subject
                when Queue then subject.__owner || subject.owner
                when WaitList then subject.owner
                when ThreadLife then subject.instance_variable_get(:@thread)
                when Event then subject.respond_to?(:owner) && subject.owner
                end
        owner || subject
      end

      def origin(fiber)
        line = fiber.caller.first
        line && ", spun at #{line[/\A.*?:\d+/]}"
      end
    end
  end

  private_constant :WaitReport
end
