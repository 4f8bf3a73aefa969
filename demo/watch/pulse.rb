# frozen_string_literal: true

require 'json'
require_relative 'fiber_tree'

module Demo
  module Watch
    # Feels the server's pulse once a second, remembers the last two minutes, and lets pages watch.
    class Pulse
      REMEMBERED = 120
      MOST_WATCHERS = 50
      # What grows all the time, and is shown as so many a second.
      RATES = { requests: :requests, bytes: :bytes_out, messages: :messages, switches: :switches, polls: :polls }.freeze
      PAGE_SIZE = 4_096

      # @param server [Polyphony::HTTP::Server]
      # @param hall [Chat::Hall]
      # @param root [Fiber] where the tree begins
      def initialize(server, hall, root)
        @server = server
        @hall = hall
        @tree = FiberTree.new(root)
        @samples = []
        @watchers = []
        @switches = @polls = 0
        @totals = totals
        @at = now
      end

      # The loop of the fiber.
      def run
        every(1) do
          @samples << sample
          @samples.shift if @samples.size > REMEMBERED
          publish unless @watchers.empty?
        end
      end

      # What does not change.
      def facts
        { backend: Thread.current.backend.kind, ruby: RUBY_VERSION, polyphony: Polyphony::VERSION, pid: Process.pid,
          store: @hall.store.name, addresses: @server.listeners.map(&:address), started: @server.stats.started.to_f }
      end

      def crowded?
        @watchers.size >= MOST_WATCHERS
      end

      # Calls the block with events as they come, [name, JSON]: what is known, what was, then what is now. One who
      # is slow to take them misses some.
      def watch
        queue = Polyphony::Queue.new(4, policy: :drop_oldest)
        @watchers << queue
        yield 'facts', JSON.generate(facts)
        yield 'past', JSON.generate(@samples)
        queue.each { |event, json| yield event, json }
      ensure
        @watchers.delete(queue)
      end

      private

      def publish
        tree = JSON.generate(@fibers)
        present = JSON.generate(@samples.last)
        @watchers.each { |queue| queue << ['now', present] << ['tree', tree] }
      end

      def sample
        before, @totals = @totals, totals
        seconds, @at = now - @at, now
        rates = RATES.to_h { |name, total| [name, ((@totals[total] - before[total]) / seconds).round(1)] }
        { at: Time.now.to_f.round, rates: rates, totals: @totals, open: @server.stats.open, running: @server.stats.running,
          members: @hall.size, watchers: @watchers.size, fibers: count_fibers, memory: memory }
      end

      # The backend forgets its counters when they are read.
      def totals
        stats = Thread.current.backend.stats
        @switches += stats[:switch_count]
        @polls += stats[:poll_count]
        { **@server.stats.to_h, messages: @hall.store.written, batches: @hall.store.batches, switches: @switches,
          polls: @polls, collections: GC.count }
      end

      def count_fibers
        @fibers = @tree.to_h
        @tree.count
      end

      # @return [Integer, nil] bytes of RAM that the process has
      def memory
        File.read('/proc/self/statm').split[1].to_i * PAGE_SIZE
      rescue SystemCallError
        nil # not Linux
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
