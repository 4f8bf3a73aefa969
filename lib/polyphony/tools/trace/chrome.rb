# frozen_string_literal: true

require 'json'

module Polyphony
  class Trace
    # The trace event format that Perfetto and Chrome read: a process for each thread, a track for each fiber in it, complete
    # events for what it does, flows from waker to woken.
    # @api private
    class Chrome
      POLLING = 0

      def initialize(trace)
        @trace = trace
        @threads = trace.fibers.to_h { |fiber| [fiber.id, fiber.thread] }
        @words = ::Hash.new { |words, text| words[text] = JSON.generate(text) }
      end

      def to_s
        out = +"{\"displayTimeUnit\":\"ns\",\"otherData\":#{JSON.generate(other_data)},\"traceEvents\":[\n"
        names(out)
        @trace.slices.each { |slice| slice(out, slice) }
        @trace.arrows.each_with_index { |arrow, index| arrow(out, arrow, index + 1) }
        dropped(out)
        out.chomp!(",\n")
        out << "\n]}\n"
      end

      private

      def other_data
        { program: WaitReport.utf8($PROGRAM_NAME), pid: ::Process.pid, polyphony: VERSION, ruby: RUBY_VERSION, seconds: @trace.seconds,
          events_kept_at_most: @trace.capacity, events_dropped: @trace.dropped }
      end

      def names(out)
        @trace.fibers.map(&:thread).uniq.each_with_index do |thread, index|
          meta(out, thread, POLLING, 'process_name', name: "#{@trace.threads.fetch(thread, "thread #{thread}")} (#{::Process.pid})")
          meta(out, thread, POLLING, 'process_sort_index', sort_index: index)
          meta(out, thread, POLLING, 'thread_name', name: 'events')
        end
        @trace.fibers.each_with_index do |fiber, index|
          meta(out, fiber.thread, fiber.id, 'thread_name', name: "#{fiber.name} ##{fiber.id}")
          meta(out, fiber.thread, fiber.id, 'thread_sort_index', sort_index: index + 1)
        end
      end

      def meta(out, thread, fiber, name, **args)
        out << %({"ph":"M","pid":#{thread},"tid":#{fiber},"name":"#{name}","args":#{JSON.generate(args)}},\n)
      end

      def slice(out, slice)
        raised = slice.raised ? ',"args":{"resumed_with":"an exception"}' : ''
        out << %({"ph":"X","pid":#{slice.thread},"tid":#{slice.fiber},"ts":#{us(slice.from)},"dur":#{us(slice.to - slice.from)},) <<
          %("cat":"#{slice.state}","name":#{@words[slice.name]}#{raised}},\n)
      end

      def arrow(out, arrow, id)
        out << flow('s', arrow.waker, arrow.at, id) << ",\n" << flow('f', arrow.woken, arrow.arrived, id, ',"bp":"e"') << ",\n"
      end

      def flow(phase, fiber, time, id, more = nil)
        %({"ph":"#{phase}","pid":#{@threads[fiber]},"tid":#{fiber},"ts":#{us(time)},"id":#{id},"cat":"wake","name":"wake"#{more}})
      end

      def dropped(out)
        return if @trace.dropped.zero?

        text = "#{@trace.dropped} earlier events were dropped: #{@trace.capacity} are kept"
        out << %({"ph":"i","s":"g","pid":0,"tid":0,"ts":#{us(@trace.known_from)},"name":#{JSON.generate(text)}},\n)
      end

      # Microseconds.
      def us(nanoseconds)
        format('%<whole>d.%<part>03d', whole: nanoseconds / 1000, part: nanoseconds % 1000)
      end
    end

    private_constant :Chrome
  end
end
