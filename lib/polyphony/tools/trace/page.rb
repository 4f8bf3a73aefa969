# frozen_string_literal: true

require 'polyphony/tools/embed'

module Polyphony
  class Trace
    # The timeline for the browser: page.html with the data in it. Numbers are packed, because there may be half a million.
    # @api private
    class Page
      TEMPLATE = ::File.expand_path('page.html', __dir__)
      STATES = %i[running runnable waiting polling].each_with_index.to_h.freeze

      def initialize(trace)
        @trace = trace
        @rows = trace.fibers.each_with_index.to_h { |fiber, index| [fiber.id, index] }
        @names = {}
      end

      def to_s
        Embed.page(TEMPLATE, data)
      end

      private

      def data
        by_fiber = @trace.slices.group_by(&:fiber) # those of one fiber are in order
        own = @trace.fibers.flat_map { |fiber| by_fiber.fetch(fiber.id, []) }
        { program: WaitReport.utf8($PROGRAM_NAME), pid: ::Process.pid, polyphony: VERSION, ruby: RUBY_VERSION, seconds: @trace.seconds,
          capacity: @trace.capacity, dropped: @trace.dropped, from: @trace.known_from,
          threads: @trace.threads, fibers: fibers, slices: slices(own), polls: polls, arrows: arrows, reasons: @names.keys }
      end

      def fibers
        @trace.fibers.map { |one| { id: one.id, name: one.name, place: one.place, thread: one.thread, ended: one.ended } }
      end

      def slices(slices)
        { row: pack('V', slices.map { |slice| @rows[slice.fiber] }), from: pack('E', slices.map(&:from)), to: pack('E', slices.map(&:to)),
          state: pack('C', slices.map { |slice| STATES[slice.state] + (slice.raised ? 128 : 0) }),
          reason: pack('v', slices.map { |slice| reason(slice) }) }
      end

      # Which one; a program with more than that many descriptors does without the last.
      def reason(slice)
        return 0 unless slice.state == :waiting

        index = @names[slice.name] ||= @names.size
        [index, 65_535].min
      end

      def polls
        slices = @trace.slices.select { |slice| slice.state == :polling }
        { thread: pack('v', slices.map(&:thread)), from: pack('E', slices.map(&:from)), to: pack('E', slices.map(&:to)) }
      end

      def arrows
        arrows = @trace.arrows
        { waker: pack('V', arrows.map { |one| @rows[one.waker] }), at: pack('E', arrows.map(&:at)),
          woken: pack('V', arrows.map { |one| @rows[one.woken] }), arrived: pack('E', arrows.map(&:arrived)) }
      end

      def pack(letter, numbers)
        [numbers.pack("#{letter}*")].pack('m0')
      end
    end

    private_constant :Page
  end
end
