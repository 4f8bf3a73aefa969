# frozen_string_literal: true

module Polyphony
  class Trace
    # Makes slices and arrows of the records in ext/polyphony/timeline.h: who runs in each thread is followed from record to
    # record, and each fiber has one state at a time, which ends when the next begins.
    # @api private
    class Reader
      RECORD = 'QLLQlSCC'
      SIZE = 32
      KINDS = %i[switch wake poll polled end thread].freeze
      RUNNABLE = 1
      RAISED = 2
      NEWBORN = 4
      BEFORE = 'something, since before the trace'

      # What a fiber is doing, since when.
      Open = ::Struct.new(:state, :since, :reason, :descriptor, :raised)

      attr_reader :slices, :arrows, :known_from

      def initialize(reasons, finish, dropped)
        @reasons = [nil, *reasons.map { |reason| WaitReport.utf8(reason) }]
        @finish = finish
        @dropped = dropped
        @slices = []
        @arrows = []
        @open = {}      # by fiber
        @thread_of = {} # by fiber
        @running = {}   # by thread: a fiber, or nil when none does
        @polling = {}   # by thread: since when
        @woken = {}     # by fiber: [waker, at], until it runs
        @ended = {}     # by fiber
        @known = {}     # by fiber: it has been seen
        @known_from = 0
      end

      def read(records)
        count = records.bytesize / SIZE
        @known_from = records.unpack1('Q') if @dropped && count.positive?
        count.times do |index|
          time, fiber, other, reason, detail, thread, kind, flags = records.unpack(RECORD, offset: index * SIZE)
          send(KINDS[kind], time, fiber, other, @reasons[reason], detail, thread, flags)
        end
        @open.each_key.to_a.each { |fiber| close(fiber, @finish) }
      end

      # @param names [Hash{Integer => String}] see timeline_fiber_name
      def tracks(names)
        @thread_of.map do |id, thread|
          kind, place, tag = WaitReport.utf8(names[id].to_s).split("\0", 3)
          Track.new(id: id, tag: presence(tag), place: presence(place), main: kind == 'main', thread: thread, ended: @ended[id])
        end
      end

      private

      def presence(text)
        text unless text.nil? || text.empty?
      end

      def switch(time, from, to, reason, descriptor, thread, flags)
        seen(from, thread)
        seen(to, thread)
        leave(time, from, reason, descriptor, thread, flags) unless from == to && @running[thread] == from
        enter(time, to, flags) unless @running[thread] == to
        @running[thread] = to
      end

      # Who leaves has left already if it has polled; or it goes on for one that has ended, and waits as before.
      def leave(time, from, reason, descriptor, thread, flags)
        current = runner(thread, from)
        return if current.nil?

        close(current, time)
        close(from, time) unless current == from
        wait(from, time, reason, descriptor, flags)
      end

      def wait(fiber, time, reason, descriptor, flags)
        state = (flags & RUNNABLE).zero? ? :waiting : :runnable
        @open[fiber] = Open.new(state, time, reason, descriptor, false)
      end

      # Whoever is first to do something in a thread has been running there.
      def runner(thread, fiber)
        return @running[thread] if @running.key?(thread)

        @open[fiber] = Open.new(:running, @known_from)
        @running[thread] = fiber
      end

      def enter(time, fiber, flags)
        begin_before(fiber)
        close(fiber, time)
        waker, at = @woken.delete(fiber)
        @arrows << Arrow.new(waker, at, fiber, time) if waker
        @open[fiber] = Open.new(:running, time, nil, -1, flags & RAISED != 0)
      end

      def wake(time, waker, woken, _reason, woken_thread, thread, flags)
        seen(woken, woken_thread)
        unless waker.zero?
          seen(waker, thread)
          @woken[woken] ||= [waker, time] if runner(thread, waker) == waker
        end
        begin_before(woken) if (flags & NEWBORN).zero?
        return if @open[woken]&.state == :running

        close(woken, time)
        @open[woken] = Open.new(:runnable, time)
      end

      # It was there before the trace, or before what is left of it.
      def begin_before(fiber)
        return if @open.key?(fiber) || @known.key?(fiber)

        @known[fiber] = true
        @open[fiber] = Open.new(:waiting, @known_from, BEFORE)
      end

      def poll(time, fiber, _other, reason, descriptor, thread, flags)
        seen(fiber, thread)
        if runner(thread, fiber)
          close(@running[thread], time)
          wait(fiber, time, reason, descriptor, flags)
        end
        @running[thread] = nil
        @polling[thread] = time
      end

      def polled(time, _fiber, _other, _reason, _descriptor, thread, _flags)
        since = @polling.delete(thread) || @known_from
        @running[thread] = nil
        @slices << Slice.new(0, thread, since, time, :polling)
      end

      def end(time, fiber, _other, _reason, _descriptor, thread, flags)
        seen(fiber, thread)
        runner(thread, fiber)
        close(fiber, time)
        @ended[fiber] = flags & RAISED == 0 ? :returned : :failed
        @running[thread] = nil
      end

      def thread(time, fiber, _other, _reason, _descriptor, thread, _flags)
        since = @thread_of.empty? ? @known_from : time # the first of all began it
        seen(fiber, thread)
        @known[fiber] = true
        @open[fiber] ||= Open.new(:running, since)
        @running[thread] ||= fiber
      end

      def seen(fiber, thread)
        @thread_of[fiber] ||= thread
      end

      def close(fiber, time)
        open = @open.delete(fiber) or return
        @known[fiber] = true
        return if time <= open.since

        @slices << Slice.new(fiber, @thread_of[fiber], open.since, time, open.state, open.reason, open.descriptor, open.raised)
      end
    end

    private_constant :Reader
  end
end
