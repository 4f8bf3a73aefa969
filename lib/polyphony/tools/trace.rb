# frozen_string_literal: true

require 'polyphony/core'
require 'polyphony/tools/trace/reader'

module Polyphony
  # What fibers did over a time: who ran when, what the others waited for, who woke whom. Made by {Polyphony.trace}, or by {start}
  # and {stop}; written as JSON for Perfetto and Chrome, or as a page for the browser.
  #
  # Events go into a ring of fixed size: the last ones are kept, and {dropped} tells how many were not.
  # @example
  #   Polyphony.trace('out.html') { serve_for_a_while }
  class Trace
    # How many events are kept if nothing is said; 8 MB.
    EVENTS = 1 << 18
    MOST_EVENTS = 1 << 30
    private_constant :MOST_EVENTS

    # One fiber. +place+ is where its block is, +ended+ nil or :returned or :failed.
    Track = ::Struct.new(:id, :tag, :place, :main, :thread, :ended, keyword_init: true) do
      # @return [String] tag and place
      def name
        where = place && "#{::File.basename(place[/\A(.*):\d+\z/, 1])}:#{place[/\d+\z/]}"
        what = tag || ('main' if main)
        return "fiber #{id}" unless what || where

        what && where ? "#{what} (#{where})" : (what || where)
      end
    end

    # What a fiber did, in nanoseconds since the start. state: +:running+, +:runnable+ or +:waiting+; of track 0, +:polling+.
    Slice = ::Struct.new(:fiber, :thread, :from, :to, :state, :reason, :descriptor, :raised) do
      # @return [String] in words
      def name
        return state.to_s unless state == :waiting

        descriptor && descriptor >= 0 ? "#{reason} (descriptor #{descriptor})" : (reason || 'being scheduled').to_s
      end
    end

    # Fiber +waker+ made +woken+ runnable, which then ran. Nanoseconds.
    Arrow = ::Struct.new(:waker, :at, :woken, :arrived)

    @lock = ::Thread::Mutex.new

    class << self
      # Begins to record, for all threads. Only one trace can be made at a time.
      # @param events [Integer] how many are kept; each takes 32 bytes
      # @return [nil]
      def start(events: EVENTS)
        check_events(events, events, 'events')
        @lock.synchronize do
          raise ThreadError, 'a trace is being made already: end that one with Polyphony::Trace.stop' if @on

          Polyphony.__timeline_start(events)
          @on = true
        end
        nil
      end

      # Ends it.
      # @return [Trace]
      def stop
        @lock.synchronize do
          raise ThreadError, 'no trace is being made: begin one with Polyphony::Trace.start' unless @on

          @on = false
          new(*Polyphony.__timeline_stop)
        end
      end

      # @return [Boolean] whether one is being made
      def on?
        @on ? true : false
      end

      # For POLYPHONY_TRACE: until the end of the program, then into that file; forked children write files of their own.
      # @param events [String] POLYPHONY_TRACE_EVENTS
      # @api private
      def to_the_end(path, events)
        number = events.empty? ? EVENTS : Integer(events, exception: false)
        check_events(number, events, 'POLYPHONY_TRACE_EVENTS')
        @path = ::File.expand_path(path)
        @pid = ::Process.pid
        ::File.write(@path, '') # tells now, not at the end, that it cannot be written
        start(events: number)
        at_exit { finish }
      end

      # @api private
      def after_fork
        @lock = ::Thread::Mutex.new
        Polyphony.__timeline_after_fork
      end

      private

      def check_events(number, given, name)
        return if number.is_a?(Integer) && number.between?(1, MOST_EVENTS)

        raise ArgumentError, "#{name} must be a number from 1 to #{MOST_EVENTS}, got #{given.inspect}"
      end

      def finish
        return unless @on

        path = ::Process.pid == @pid ? @path : @path.sub(/(\.\w+)?\z/) { ".#{::Process.pid}#{$1}" }
        stop.write(path)
      rescue ::StandardError => e # whatever it is, the program ends as it would have
        warn "polyphony: the trace could not be written: #{e.message}"
      end
    end

    # @return [Array<Track>] in order of appearance
    attr_reader :fibers
    # @return [Array<Slice>] what they did, in order of their ends
    attr_reader :slices
    # @return [Array<Arrow>] who woke whom
    attr_reader :arrows
    # @return [Hash{Integer => String}] names of threads
    attr_reader :threads
    # @return [Integer] events that were recorded and then overwritten by later ones
    attr_reader :dropped
    # @return [Integer] how many are kept
    attr_reader :capacity
    # @return [Float] from the start to the stop
    attr_reader :seconds
    # @return [Integer] nanoseconds: what came before is not known, because it was dropped
    attr_reader :known_from

    # @api private
    def initialize(records, reasons, ended, ended_threads, count, capacity, nanoseconds)
      @capacity = capacity
      @dropped = [count - capacity, 0].max
      @seconds = nanoseconds / 1e9
      @threads = thread_names(ended_threads)
      reader = Reader.new(reasons, nanoseconds, @dropped.positive?)
      reader.read(records)
      @known_from = reader.known_from
      @slices = reader.slices
      @arrows = reader.arrows
      @fibers = reader.tracks(ended.compact.to_h.merge(::Fiber.__all.to_h(&:__timeline)))
    end

    # @return [Integer] how many events it is made of
    def size
      slices.size + arrows.size
    end

    # @return [String] JSON in the trace event format, for Perfetto (ui.perfetto.dev) and chrome://tracing
    def to_json(*)
      require 'polyphony/tools/trace/chrome'
      Chrome.new(self).to_s
    end

    # @return [String] a page that shows it: it needs no other file and no network
    def to_html
      require 'polyphony/tools/trace/page'
      Page.new(self).to_s
    end

    # @param path [String] ending in .html for a page, JSON otherwise
    # @return [self]
    def write(path)
      ::File.write(path, path.to_s.match?(/\.html?\z/i) ? to_html : to_json)
      self
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{format('%.3f', seconds)} s, #{fibers.size} fibers, #{slices.size} slices#{", #{dropped} events dropped" if dropped.positive?}>"
    end

    private

    def thread_names(ended)
      live = ::Thread.list.select(&:__polyphony_backend?).map do |thread|
        [thread.backend.__timeline_id, thread == ::Thread.main ? 'main thread' : thread.inspect]
      end
      [*ended, *live].to_h.transform_values { |text| thread_name(text) }
    end

    # @param text [String] as Thread#inspect: #<Thread:0x0123@name file.rb:9 run>
    def thread_name(text)
      text = WaitReport.utf8(text)
      match = text.match(/\A#<\S+?:0x\h+(?:@(?<name>.*?))?(?: (?<file>\S*:\d+))? \S+>\z/m) or return text
      ['thread', match[:name], match[:file] && "(#{::File.basename(match[:file])})"].compact.join(' ')
    end

    # A forked child has a trace of its own.
    ProcessFork.in_child { Trace.after_fork if Trace.on? }
  end
end
