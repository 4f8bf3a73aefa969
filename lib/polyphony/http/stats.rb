# frozen_string_literal: true

module Polyphony
  module HTTP
    # What a server has done, counted. All grow but those that are named +open+ and +running+.
    class Stats
      # Name => what is counted.
      COUNTERS = {
        connections: 'connections accepted', open: 'connections open now',
        requests: 'requests begun', running: 'requests in progress now',
        errors: 'requests whose handler failed', refused: 'requests and connections refused as bad input',
        bytes_out: 'bytes of answers'
      }.freeze
      # Those that go up and down.
      GAUGES = %i[open running].freeze
      # Upper ends of the classes that durations are counted in, in seconds; the last has none.
      BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10].freeze
      # First digits of a status.
      CLASSES = (1..5).freeze
      # How many numbers #pack needs, eight bytes each.
      FIELDS = COUNTERS.size + CLASSES.size + BUCKETS.size + 2
      FORMAT = "q#{FIELDS}"
      private_constant :FORMAT

      # @!attribute [rw] connections
      #   @return [Integer] connections accepted
      # @!attribute [rw] open
      #   @return [Integer] connections open now
      # @!attribute [rw] requests
      #   @return [Integer] requests begun
      # @!attribute [rw] running
      #   @return [Integer] requests in progress now
      # @!attribute [rw] errors
      #   @return [Integer] requests whose handler failed
      # @!attribute [rw] refused
      #   @return [Integer] requests and connections refused as bad input
      # @!attribute [rw] bytes_out
      #   @return [Integer] bytes of answers
      attr_accessor :connections, :open, :errors, :refused

      %i[requests running bytes_out].each do |name|
        define_method(name) { @__counts.public_send(name) }
        define_method(:"#{name}=") { |count| @__counts.public_send(:"#{name}=", count) }
      end

      # @return [Time]
      attr_reader :started
      # @return [Array<Integer>, nil] how many requests took up to each of BUCKETS, and longer; nil: not counted
      attr_reader :durations
      # @return [Float] seconds that all of them took
      attr_reader :seconds

      # @param durations [Boolean] whether durations are counted
      def initialize(durations: false)
        @connections = @open = @errors = @refused = 0
        @__counts = Counts.new
        @seconds = 0.0
        @started = Time.now
        count_durations if durations
      end

      # Begins to count how long requests take, which costs a little for each.
      # @return [self]
      def count_durations
        @durations ||= Array.new(BUCKETS.size + 1, 0)
        self
      end

      # A request took so long.
      # @param seconds [Float]
      # @return [nil]
      def took(seconds)
        @durations[BUCKETS.bsearch_index { |limit| seconds <= limit } || -1] += 1
        @seconds += seconds
        nil
      end

      # @return [Counts] what changes with every request
      # @!visibility private
      attr_reader :__counts

      # @return [Hash{Integer => Integer}] answers by the first digit of their status
      def by_class
        CLASSES.to_h { |digit| [digit, @__counts.answers(digit)] }
      end

      # @return [Hash{Symbol => Integer}]
      def to_h
        COUNTERS.to_h { |name, _| [name, public_send(name)] }
      end

      # Adds what another has counted.
      # @param other [Stats]
      # @param gauges [Boolean] also what goes up and down
      # @return [self]
      def add(other, gauges: true)
        COUNTERS.each_key do |name|
          next if !gauges && GAUGES.include?(name)

          public_send(:"#{name}=", public_send(name) + other.public_send(name))
        end
        other.by_class.each { |digit, count| @__counts.add_answers(digit, count) }
        @seconds += other.seconds
        other.durations&.each_with_index { |count, index| count_durations.durations[index] += count }
        self
      end

      # @return [String] all numbers, for Stats.unpack in another process
      def pack
        [*COUNTERS.each_key.map { |name| public_send(name) }, *CLASSES.map { |digit| @__counts.answers(digit) },
         *(@durations || [0] * (BUCKETS.size + 1)), (@seconds * 1_000_000).round].pack(FORMAT)
      end

      # @param bytes [String] from #pack
      # @return [Stats]
      def self.unpack(bytes)
        allocate.tap { |stats| stats.__send__(:restore, bytes.unpack(FORMAT)) }
      end

      private

      def restore(numbers)
        @__counts = Counts.new
        COUNTERS.each_key { |name| public_send(:"#{name}=", numbers.shift) }
        CLASSES.each { |digit| @__counts.add_answers(digit, numbers.shift) }
        @durations = numbers.shift(BUCKETS.size + 1)
        @seconds = numbers.shift / 1_000_000.0
        @started = nil
      end
    end
  end
end
