# frozen_string_literal: true

require_relative 'watchdog'

module Polyphony
  # Makes the garbage collector as unpleasant as POLYPHONY_GC asks, while a test runs.
  module GCPressure
    MODE = ENV['POLYPHONY_GC']
    INTERVAL = 0.01

    # Bit 0 of GC.stress: no major collections. Many times faster than a full one at every
    # allocation, and what finds a missing write barrier. One test in thirty gets the full treatment.
    MINOR_ONLY = 1

    class << self
      def on
        GC.stress = rand(30).zero? ? true : MINOR_ONLY if MODE == 'stress'
      end

      def off
        case MODE
        when 'stress'  then GC.stress = false
        when 'compact' then verify_references
        end
      end

      # From another thread, so that objects move while fibers of this one wait in an operation.
      def move_objects_all_the_time
        GC.auto_compact = true
        Thread.new do
          Thread.current.name = 'compactor'
          loop do
            Watchdog::STOCK_SLEEP.bind_call(self, INTERVAL)
            GC.compact
          end
        end
      end

      private

      # Moves everything and looks for references to the old places. Enlarging the heap once is
      # enough to make room; doing it each time would fill the memory.
      def verify_references
        options = { toward: :empty }
        options[RUBY_VERSION < '3.2' ? :double_heap : :expand_heap] = true unless @enlarged
        @enlarged = true
        GC.verify_compaction_references(**options)
      end
    end

    move_objects_all_the_time if MODE == 'compact'
  end
end
