# frozen_string_literal: true

module Polyphony
  class Remote
    # Tells Redis what need not be waited for: above all what was acknowledged, many at a time. Keeps trying while Redis is away.
    # @api private
    class Clerk
      # How many ids go into one command.
      BATCH = 500
      STOP = Object.new.freeze
      NUDGE = Object.new.freeze
      private_constant :BATCH, :STOP, :NUDGE

      def initialize(link)
        @link = link
        @jobs = Queue.new.__for_ourselves
      end

      # These may be called from any fiber and any thread, and never switch.

      # @param delivery [Delivery]
      def acknowledge(delivery)
        @jobs << delivery
      end

      # @param letter [String] the id of one in the inbox, which has been read
      def read(letter)
        @jobs << letter
      end

      # Makes the reader look again what to read.
      def nudge
        @jobs << NUDGE
      end

      # @yield later, in the clerk's fiber
      def do(&block)
        @jobs << block
      end

      # Has the block run in the clerk's fiber, and waits for it, but not for ever. It may be run after that.
      # @return [Object] what the block returns
      # @raise [Unreachable]
      def call(within)
        outcomes = Queue.new.__for_ourselves
        self.do do
          outcomes << [yield, nil]
        rescue ::StandardError => e
          outcomes << [nil, e]
        end
        outcome = outcomes.shift(timeout: within) or raise Unreachable, @link.too_late(within)
        outcome.last ? raise(outcome.last) : outcome.first
      end

      # Ends after what has been asked for before.
      def finish
        @jobs << STOP
      end

      # In the clerk's fiber.
      # @param deliveries [Array<Delivery>]
      def acknowledge_all(deliveries, within: nil)
        deliveries.group_by(&:subscription).each do |subscription, all|
          all.each_slice(BATCH) { |some| subscription.acknowledge(some, within: within) }
        end
      end

      def run
        loop do
          jobs = [@jobs.shift, *@jobs.shift_all]
          work(jobs)
          break if jobs.include?(STOP)
        end
      end

      private

      def work(jobs)
        acknowledge_all(jobs.grep(Delivery))
        jobs.grep(::String).each_slice(BATCH) { |letters| @link.run(:read, *letters, within: nil) }
        jobs.grep(::Proc).each(&:call)
        @link.run(:reply, @link.process, 'k', 'wake', within: nil) if jobs.include?(NUDGE)
      end
    end
  end
end
