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

      # Has each collection move objects. One that has begun already has to end before: Ruby 3.1 moves objects at its end, too, and
      # as it has not noted which ones must stay where they are, it moves all, the main Ractor for instance ("try to mark T_NONE").
      def move_objects_from_now_on
        GC.start
        GC.auto_compact = true
      end

      # From another thread, so that objects move while fibers of this one wait in an operation.
      def move_objects_all_the_time
        move_objects_from_now_on
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
