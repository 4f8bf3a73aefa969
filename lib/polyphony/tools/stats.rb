# frozen_string_literal: true

require 'polyphony/core'

module Polyphony
  # Figures of all threads together. See {Polyphony.stats}.
  # @api private
  module Stats
    class << self
      # @return [Hash]
      def to_h
        backends = ::Thread.list.select(&:__polyphony_backend?).map(&:backend)
        switches, polls, operations = sum(backends.map(&:__totals))
        pending_ops, pending_timers, = sum(backends.map(&:__pending))
        { threads: ::Thread.list.size, backends: backends.size, fibers: fibers, switches: switches, polls: polls, operations: operations,
          pending_ops: pending_ops, pending_timers: pending_timers, stalls: stalls,
          **Polyphony.__pool_stats }
      end

      private

      def sum(rows)
        rows.inject([0, 0, 0]) { |sums, row| sums.zip(row).map(&:sum) }
      end

      def fibers
        states = ::Fiber.__all.map(&:state).tally
        { running: 0, runnable: 0, waiting: 0 }.to_h { |state, _| [state, states.fetch(state, 0)] }
      end

      def stalls
        limit, count, longest, histogram = Polyphony.__stall_figures
        { limit: limit, count: count, longest: longest, histogram: histogram }
      end
    end
  end

  private_constant :Stats
end
