# frozen_string_literal: true

module Polyphony
  class Remote
    # Fibers of this process that want to know when a name is down.
    # @api private
    class Monitors
      # What is a Symbol when it arrives. Other reasons are texts.
      REASONS = %w[normal lost closed absent].freeze
      private_constant :REASONS

      # Told when the fiber ends.
      Watch = Struct.new(:monitors, :name, :fiber) do
        def <<(_report)
          monitors.remove_later(name, fiber)
        end
      end
      private_constant :Watch

      def initialize(remote)
        @remote = remote
        @link = remote.__link
        @watches = Hash.new { |all, name| all[name] = [] }
      end

      # @raise [Unreachable]
      def add(name, fiber)
        return if watch_of(name, fiber)

        watch = Watch.new(self, name, fiber)
        @watches[name] << watch
        fiber.__tell_at_end(watch)
        there = @link.run(:monitor, name, 0)
        tell(watch, 'absent') if there.zero? && forget(name, watch)
      ensure
        forget(name, watch) if watch && there.nil?
      end

      # @raise [Unreachable]
      def remove(name, fiber, **limit)
        watch = watch_of(name, fiber)
        @link.run(:unmonitor, name, **limit) if watch && forget(name, watch) && !@watches.key?(name)
      end

      def remove_later(name, fiber)
        @remote.__clerk.do { remove(name, fiber, within: nil) }
      end

      # @return [Array<String>]
      def names
        @watches.keys
      end

      def down(name, reason)
        @watches.delete(name)&.each do |watch|
          watch.fiber.__remove_monitor(watch)
          tell(watch, reason)
        end
      end

      # Redis has forgotten this process.
      def rejoin
        names.each { |name| @link.run(:monitor, name, 1) }
      end

      # Looks for names whose last owner does not beat any more.
      def look(within:)
        names.each { |name| @link.run(:reap, name, within: within) }
      end

      private

      def watch_of(name, fiber)
        @watches.key?(name) && @watches[name].find { |watch| watch.fiber.equal?(fiber) }
      end

      # @return [Boolean] whether it was there
      def forget(name, watch)
        return false unless @watches.key?(name)

        found = @watches[name].reject! { |other| other.equal?(watch) }
        @watches.delete(name) if @watches[name].empty?
        watch.fiber.__remove_monitor(watch)
        !found.nil?
      end

      def tell(watch, reason)
        @remote.__count(:downs)
        watch.fiber.mailbox.__add([:down, watch.name, REASONS.include?(reason) ? reason.to_sym : reason])
      end
    end
  end
end
