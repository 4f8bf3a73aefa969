# frozen_string_literal: true

module Bench
  # One way to do the work of a row. +count+ is how often, at scale 1.
  Side = Struct.new(:name, :kind, :drivers, :count, :block, keyword_init: true)

  # One figure of a row, and what BASELINES.md wants of it. +ratio+ and +value+ are limits for the
  # ratio and for the figure itself: a number, or one per driver; +peer+ is one for the ratio to each peer.
  Metric = Struct.new(:name, :unit, :better, :ratio, :value, :peer, :note, keyword_init: true) do
    def lower_is_better?
      better == :lower
    end
  end

  # What is measured and how; each file in bench/micro describes one.
  class Row
    DRIVERS = %w[io_uring libev].freeze

    attr_reader :name, :metrics, :sides, :rounds

    def initialize(name, &description)
      @name = name
      @metrics = []
      @sides = []
      @rounds = 5
      @warm_up = true
      instance_exec(&description)
    end

    def title(text = nil)
      @title = text if text
      @title
    end

    # Expensive rows ask for fewer rounds.
    def rounds_of(number)
      @rounds = number
    end

    # For rows where a short run before the real one would only cost time.
    def no_warm_up
      @warm_up = false
    end

    def warm_up?
      @warm_up
    end

    # How many memory mappings its processes need. The usual limit of the kernel is 65,530, two for each fiber.
    def mappings(number = nil)
      @mappings = number if number
      @mappings
    end

    # @param ratio [Numeric, Hash] target for ours / limit
    # @param value [Numeric, Hash] target for our figure
    # @param peer [Numeric, Hash] target for ours / a peer's
    def metric(name, unit, better: :lower, ratio: nil, value: nil, peer: nil, note: nil)
      @metrics << Metric.new(name: name, unit: unit, better: better, ratio: ratio, value: value,
                             peer: peer, note: note)
    end

    # @param driver [String, nil] the only driver it is the limit of; all without it
    def limit(name, count, driver: nil, &block)
      add(name, :limit, driver ? [driver] : DRIVERS, count, block)
    end

    # Shown for comparison; ratios are not taken to it.
    def beside(name, count, &block)
      add(name, :beside, [], count, block)
    end

    # A gem that does the same; see peers.rb. Ratios are taken to it as to the limit.
    def peer(name, count, &block)
      add(name, :peer, [], count, block)
    end

    # Becomes one side per driver.
    def polyphony(count, &block)
      DRIVERS.each { |driver| add(driver, :driver, [driver], count, block) }
    end

    def side(name)
      @sides.find { |side| side.name == name }
    end

    def limit_of(driver)
      @sides.find { |side| side.kind == :limit && side.drivers.include?(driver) }
    end

    def peers
      @sides.select { |side| side.kind == :peer }
    end

    private

    def add(name, kind, drivers, count, block)
      @sides << Side.new(name: name, kind: kind, drivers: drivers, count: count, block: block)
    end
  end

  @rows = {}

  class << self
    attr_reader :rows

    def row(name, &description)
      @rows[name] = Row.new(name, &description)
    end

    def load_rows
      Dir[File.expand_path('../micro/*.rb', __dir__)].sort.each { |file| load(file) }
    end
  end
end
