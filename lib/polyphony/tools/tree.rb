# frozen_string_literal: true

require 'json'
require 'socket'

module Polyphony
  # A picture of all fibers at one moment. It holds text and numbers only, and keeps no fiber alive.
  # @see Polyphony.tree
  class Tree
    include ::Enumerable

    # One fiber.
    class Node
      include ::Enumerable

      # @return [Integer] which no other fiber of the process has
      attr_reader :id
      # @return [String] as Fiber#inspect, without the state
      attr_reader :fiber
      # @return [Object] the fiber's tag
      attr_reader :tag
      # @return [Symbol] +:running+, +:runnable+ or +:waiting+
      attr_reader :state
      # @return [String, nil] what it waits for, in words
      attr_reader :waits_for
      # @return [Float, nil] for how many seconds, when the tree was made
      attr_reader :seconds
      # @return [Hash, nil] the same in parts, as far as they are known: +:reason+, +:on+ (the object as text), +:descriptor+,
      #   +:peer+, +:length+ of a queue, +:seconds_left+, +:limit_left+ (of the time limit that strikes first), +:fiber+ (id of the one whose end it waits for)
      attr_reader :wait
      # @return [Array<String>] the fibers that have what it waits for
      attr_reader :held_by
      # @return [String, nil] file and line
      attr_reader :spun_at
      # @return [Integer] how often it had its turn
      attr_reader :switches
      # @return [Integer, nil] the id of the fiber whose child it is
      attr_reader :parent
      # @return [Array<Node>] its children; of one in the fortieth generation all that are below it
      attr_reader :children

      # How many generations are shown below each other. With more, texts are too wide to be read, and parsers of JSON give up, at a
      # hundred mostly.
      GENERATIONS = 40
      private_constant :GENERATIONS

      # A fiber and all below it. Step by step, not by recursion: each may have spun the next, thousands of times.
      # @api private
      def self.grow(fiber, now)
        first = new(fiber, now)
        open = [[fiber, first, first, 1]]
        while (fiber, node, shelf, generation = open.shift)
          fiber.children.each do |child|
            shelf.children << (one = new(child, now, node.id))
            open << [child, one, generation < GENERATIONS ? one : shelf, generation + 1]
          end
        end
        first
      end

      # @api private
      def initialize(fiber, now, parent = nil)
        @id = fiber.__timeline.first
        @parent = parent
        @fiber = WaitReport.title(fiber)
        @tag = fiber.tag
        @main = fiber.main?
        @state = fiber.state
        @switches = fiber.switches
        @spun_at = WaitReport.spun_at(fiber)
        @held_by = []
        note_wait(fiber, now) if @state == :waiting
        @children = []
      end

      # @return [Boolean] whether it is the main fiber of its thread
      def main?
        @main
      end

      # @return [String] one line
      def to_s
        what = waits_for ? "waits for #{waits_for}#{format(' · %.1f s', seconds) if seconds}" : state
        count = "#{switches} switch#{'es' unless switches == 1}"
        held = held_by.empty? ? '' : ", held by #{held_by.join(', ')}"
        "#{fiber} #{what}#{held} · #{count}"
      end

      # @return [Hash]
      def to_h
        { id: id, fiber: fiber, tag: WaitReport.title_of_tag(tag), state: state, waits_for: waits_for, wait: wait, seconds: seconds&.round(3),
          held_by: held_by, spun_at: spun_at, switches: switches, parent: parent, children: children.map(&:to_h) }
      end

      # The fiber and all below it.
      # @yield [Node]
      def each(&block)
        yield self
        children.each { |child| child.each(&block) }
      end

      # @param indent [String] what comes before the children's lines
      # @return [Array<String>]
      def lines(indent = '')
        last = children.last
        [to_s, *children.flat_map do |child|
          branch, space = child.equal?(last) ? ['└─ ', '   '] : ['├─ ', '│  ']
          first, *rest = child.lines("#{indent}#{space}")
          ["#{indent}#{branch}#{first}", *rest]
        end]
      end

      private

      def note_wait(fiber, now)
        reason, subject, since = fiber.__wait
        reason = WaitReport.utf8(reason || 'being scheduled')
        @waits_for = describe(reason, subject, fiber.__time_left, fiber.__limit_left)
        @wait = parts(reason, subject, fiber.__time_left, fiber.__limit_left)
        @seconds = [now - since, 0].max if since
        @held_by = WaitReport.holders(subject).map { |holder, _| WaitReport.title(holder) }
      end

      def describe(reason, subject, left, limit)
        text = WaitReport.describe(reason, subject)
        text = text.sub(/\)\z/, "#{details(subject)})") if subject
        text += ", #{format('%.1f', left)} s left" if left && left >= 0
        text += ", limit in #{format('%.1f', limit)} s" if limit && limit >= 0
        text
      end

      def parts(reason, subject, left, limit)
        left, limit = [left, limit].map { |seconds| seconds.round(3) if seconds && seconds >= 0 }
        found = { reason: reason, on: (WaitReport.title(subject) if subject), seconds_left: left, limit_left: limit }
        found.merge!(parts_of(subject)).compact
      rescue *WaitReport::FAULTS
        found.compact # a picture is worth more than a detail of it
      end

      def parts_of(subject)
        case subject
        when ::IO then { descriptor: subject.fileno, peer: (peer(subject)&.delete_prefix(' to ') if subject.is_a?(::BasicSocket)) }
        when Queue, ::Thread::Queue then { length: subject.size }
        when ::Fiber then { fiber: subject.__timeline.first }
        else {}
        end
      end

      def details(subject)
        case subject
        when ::BasicSocket then peer(subject)
        when Queue, ::Thread::Queue then (", #{subject.size} item#{'s' unless subject.size == 1}" unless part?(subject))
        end
      rescue *WaitReport::FAULTS
        nil # a picture is worth more than a detail of it
      end

      # Of a pool for instance, which tells itself what it has.
      def part?(queue)
        queue.is_a?(Queue) && queue.__private?
      end

      def peer(socket)
        " to #{socket.remote_address.inspect_sockaddr}"
      rescue ::SystemCallError, ::IOError
        nil # a listener, or one that is not connected
      end
    end

    # A thread, and its fibers.
    class Threads
      include ::Enumerable

      # @return [String] as Thread#inspect
      attr_reader :thread
      # @return [String, nil] as Thread#name
      attr_reader :name
      # @return [String, nil] the line of the program that it is in; nil if all its fibers wait, and for the thread that asks
      attr_reader :at
      # @return [Array<Node>] those without a parent: the main fiber first, then fibers that were not spun; none if nothing has waited
      #   in it yet
      attr_reader :fibers

      # @api private
      def initialize(thread, fibers, now)
        @thread = WaitReport.in_line(thread.inspect)
        @name = WaitReport.title_of_tag(thread.name)
        @at = thread.backtrace&.grep_v(Stall::OURS)&.first&.then { |line| WaitReport.in_line(line) } if at_work?(thread)
        @fibers = fibers.sort_by { |fiber| fiber.main? ? 0 : 1 }.map { |fiber| Node.grow(fiber, now) }
      end

      # @yield [Node] every fiber
      def each(&block)
        fibers.each { |fiber| fiber.each(&block) }
      end

      # @return [String]
      def to_s
        [at ? "#{thread} in #{at}" : thread, *fibers.flat_map { |fiber| fiber.lines('  ').then { |first, *rest| ["  #{first}", *rest] } }].join("\n")
      end

      # @return [Hash]
      def to_h(*)
        { thread: thread, name: name, at: at, fibers: fibers.map(&:to_h) }
      end

      private

      # One that looks for events is wherever somebody began to wait.
      def at_work?(thread)
        return false if thread == ::Thread.current

        backend = thread.backend if thread.__polyphony_backend? # which may be closed just then
        backend.nil? || backend.__turn
      end
    end

    # @return [Array<Threads>] the main thread first
    attr_reader :threads

    # @api private
    def initialize
      now = Clock.now
      roots = roots_of(::Fiber.__all).reject(&:dead?)
      main = ::Thread.main
      by_thread = ::Thread.list.to_h { |thread| [thread, []] }.merge(roots.group_by(&:thread)).reject { |thread, _| thread.nil? || thread.__polyphony_helper? }
      @threads = by_thread.sort_by { |thread, _| thread.equal?(main) ? 0 : 1 }.map { |thread, fibers| Threads.new(thread, fibers, now) }
    end

    # @yield [Node] every fiber of every thread, parents before children
    def each(&block)
      threads.each { |thread| thread.each(&block) }
      self
    end

    # @return [String]
    def to_s
      threads.join("\n")
    end
    alias inspect to_s

    # @return [Hash] for JSON
    def to_h(*)
      { pid: ::Process.pid, program: WaitReport.utf8($PROGRAM_NAME), time: ::Time.now.to_f.round(3), threads: threads.map(&:to_h) }
    end

    # @return [String] a page that shows it: it needs no other file and no network
    def to_html
      require 'polyphony/tools/embed'
      Embed.page(::File.expand_path('tree.html', __dir__), to_h)
    end

    # @return [String]
    def to_json(*args)
      to_h.to_json(*args)
    end

    private

    # Each fiber is passed once, however many are below it.
    def roots_of(fibers)
      passed = {}.compare_by_identity
      fibers.filter_map { |fiber| root(fiber, passed) }
    end

    # nil: somebody has come this way before.
    def root(fiber, passed)
      until passed.key?(fiber)
        passed[fiber] = true
        parent = fiber.parent or return fiber
        fiber = parent
      end
    end
  end
end
