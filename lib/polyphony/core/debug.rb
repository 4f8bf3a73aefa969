# frozen_string_literal: true

require 'polyphony/core'

module Polyphony
  # Every event of the current thread's fibers as a Hash, to be printed or looked at, for programs that want the events
  # themselves: see Backend#trace_proc=. A timeline for people is made by Trace.start and `polyphony trace`.
  #
  # @example
  #   Polyphony::Trace.start_event_firehose($stderr)
  class Trace
    # What stands behind the fiber in an event, by its name.
    FIELDS = {
      spin: %i[caller], schedule: %i[value prioritized caller], block: %i[caller], unblock: %i[value caller],
      terminate: %i[value]
    }.freeze
    private_constant :FIELDS

    class << self
      # Begins. Events of other threads are not seen; a second call takes the place of the first.
      # @param io [IO, nil] gets a line for each event; it must have room for it, as terminals and files have: a trace cannot wait
      # @yieldparam event [Hash] with :stamp (Time), :event, :fiber, :source_fiber and, where it has them, :value, :prioritized, :caller
      # @return [void]
      def start_event_firehose(io = nil, &block)
        raise ArgumentError, 'start_event_firehose needs an IO to write to, or a block' unless io || block

        ::Thread.current.backend.trace_proc = lambda do |name, *values|
          event = firehose_event(name, values)
          io&.write("#{firehose_line(event)}\n")
          block&.call(event)
        end
      end

      # Ends it.
      # @return [void]
      def stop_event_firehose
        ::Thread.current.backend.trace_proc = nil
      end

      private

      def firehose_event(name, values)
        fiber, *values = values
        fields = FIELDS.fetch(name) { [] }
        event = { stamp: ::Time.now, event: name, fiber: fiber, source_fiber: ::Fiber.current }
        fields.each_with_index { |field, i| event[field] = values[i] }
        event[:value] = values if fields.empty? && !values.empty?
        event
      end

      def firehose_line(event)
        value = " #{event[:value].inspect}" if event.key?(:value)
        "#{event[:stamp].strftime('%T.%6N')} #{event[:event]} #{event[:fiber].inspect}#{value}"
      end
    end
  end
end
