# frozen_string_literal: true

require 'tmpdir'
require 'polyphony/http/share'

module Polyphony
  module HTTP
    # What all processes of a server have counted, and when each has last shown a sign of life: a file without a name
    # in memory (where /dev/shm is), in which each process has a place. To write there takes no lock, and a process that
    # is killed leaves behind what it wrote last.
    class Scoreboard
      # One process. +beat+ and +started+ are seconds on the monotonic clock; +memory+ is bytes.
      Entry = Struct.new(:place, :pid, :number, :state, :generation, :beat, :started, :lag, :memory, :stats) do
        # @return [String] what it was doing, for people
        def to_s
          "#{stats.open} connections, #{stats.running} running, #{stats.requests} requests"
        end
      end

      # What a process may be doing.
      STATES = %i[free booting serving draining total].freeze
      HEAD = 'q8'
      HEAD_SIZE = 64
      SIZE = 512
      # How many processes have a place.
      PLACES = 256
      private_constant :HEAD, :HEAD_SIZE, :SIZE, :PLACES

      # @return [File]
      attr_reader :file

      # @param fd [Integer, nil] of one that was handed to us
      def initialize(fd: nil)
        @file = fd ? ::File.for_fd(fd, 'r+b') : unnamed
        @file.sync = true
        @file.truncate(SIZE * PLACES) unless fd
        write(0, state: :total, stats: Stats.new) unless fd
      end

      # @return [Integer] a place that nobody has; 0 is for the sum of those who are gone
      def take(number:, generation:)
        taken = entries.map(&:place)
        place = (1...PLACES).find { |one| !taken.include?(one) } or raise Error, "there are #{taken.size} processes already"
        write(place, state: :booting, number: number, generation: generation, stats: Stats.new)
        place
      end

      # Says how things are.
      # @param place [Integer]
      # @param stats [Stats]
      # @return [nil]
      def write(place, stats:, state: :serving, pid: ::Process.pid, number: 0, generation: 0, started: now, lag: 0, memory: 0)
        head = [pid, number, STATES.index(state), generation, micro(now), micro(started), micro(lag), memory]
        @file.pwrite(head.pack(HEAD) + stats.pack, place * SIZE)
        nil
      end

      # Frees a place; what was counted there stays in the sum.
      # @param place [Integer]
      # @return [Entry, nil] what was there
      def leave(place)
        entry = entries.find { |one| one.place == place } or return
        total = entries.find { |one| one.state == :total }
        write(0, state: :total, stats: total.stats.add(entry.stats, gauges: false))
        @file.pwrite("\0" * SIZE, place * SIZE)
        entry
      end

      # @return [Array<Entry>] all that are not free
      def entries
        bytes = @file.pread(@file.size, 0)
        (0...bytes.bytesize).step(SIZE).filter_map { |offset| entry(offset / SIZE, bytes.byteslice(offset, SIZE)) }
      end

      # @param place [Integer] of a process that accepts
      # @param last [Integer] others are up to there
      # @yield how many connections it has
      # @return [Share]
      # @!visibility private
      def share(place, last, &count)
        Share.new(memory, SIZE, place, 1..[last, PLACES - 1].min, &count)
      end

      # @return [Stats] the sum of all
      def total
        entries.inject(Stats.new) { |sum, entry| sum.add(entry.stats) }
      end

      # @return [nil]
      def close
        @file.close
      end

      private

      # Ruby 3.1 announces it as experimental.
      def memory
        before = Warning[:experimental]
        Warning[:experimental] = false
        @memory ||= ::IO::Buffer.map(@file, SIZE * PLACES)
      ensure
        Warning[:experimental] = before
      end

      def entry(place, bytes)
        return if bytes.bytesize < HEAD_SIZE + Stats::FIELDS * 8

        pid, number, state, generation, beat, started, lag, memory = bytes.unpack(HEAD)
        return if state.zero?

        Entry.new(place, pid, number, STATES.fetch(state, :free), generation, beat / 1e6, started / 1e6, lag / 1e6, memory,
                  Stats.unpack(bytes.byteslice(HEAD_SIZE..)))
      end

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end

      def micro(seconds)
        (seconds * 1_000_000).round
      end

      def unnamed
        folder = ::File.writable?('/dev/shm') ? '/dev/shm' : Dir.tmpdir
        path = ::File.join(folder, "polyphony-#{::Process.pid}-#{rand(1 << 64).to_s(36)}")
        ::File.open(path, ::File::RDWR | ::File::CREAT | ::File::EXCL | ::File::BINARY, 0o600).tap { ::File.unlink(path) }
      end
    end
  end
end
