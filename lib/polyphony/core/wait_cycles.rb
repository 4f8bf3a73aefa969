# frozen_string_literal: true

module Polyphony
  # Fibers that wait for each other: for locks that others have, for the ends of others. Who waits for one of several (a place
  # in a pool) is stuck only if all who have one are.
  # @!visibility private
  module WaitCycles
    class << self
      # @param fibers [Array<Fiber>]
      # @return [Array<Array<Fiber>>] each in order: one waits for the next, the last for the first
      def find(fibers)
        stuck = stuck_among(fibers)
        cycles = []
        until stuck.empty?
          cycle = walk(stuck)
          cycles << cycle
          # Who waits for them is stuck, too, but in no cycle.
          cycle.each { |fiber| stuck.delete(fiber) }
          prune(stuck)
        end
        cycles
      end

      # @return [Array<Fiber>] whom it waits for; empty if it is not known, or nobody in particular
      def targets(fiber)
        reason, subject, = fiber.__wait # of the one that finds a deadlock, too, although it runs
        return [] if reason.nil? || fiber.state == :runnable

        case subject
        when ::Fiber then [subject]
        when ThreadLife then [subject.instance_variable_get(:@thread)&.main_fiber].compact
        else WaitReport.holders(subject).map(&:first).grep(::Fiber)
        end
      end

      private

      def stuck_among(fibers)
        stuck = {}.compare_by_identity
        fibers.each { |fiber| (found = targets(fiber)).empty? || stuck[fiber] = found }
        prune(stuck)
      end

      # Whoever waits for one that may go on may go on.
      def prune(stuck)
        nil while stuck.reject! { |_, targets| targets.any? { |target| !stuck.key?(target) } }
        stuck
      end

      # All lead to others that are stuck: sooner or later one comes again.
      def walk(stuck)
        path = []
        fiber = stuck.keys.first
        until (index = path.index { |one| one.equal?(fiber) })
          path << fiber
          fiber = stuck[fiber].first
        end
        path.drop(index)
      end
    end
  end

  private_constant :WaitCycles
end
