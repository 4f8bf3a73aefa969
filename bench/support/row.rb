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

    # What there is more of when the work is: said, it is measured at a hundredth and a tenth, too.
    # A row with +floor+ says how little is worth measuring.
    def grows(what = nil)
      @grows = what if what
      @grows
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

    # Polyphony 1.6 in its two builds; the block is run with it loaded.
    def older(count, &block)
      %w[polyphony-1.6-io_uring polyphony-1.6-libev].each do |name|
        peer(name, count) do |n|
          require 'polyphony'
          instance_exec(n, &block)
        end
      end
    end

    # The block gives procs that are run by the scheduler of Carbon Fiber, and how many operations that are.
    def carbon_fiber(count, clock: Process::CLOCK_PROCESS_CPUTIME_ID, &block)
      peer('carbon_fiber', count) do |n|
        require 'carbon_fiber'
        operations, bodies = instance_exec(n, &block)
        measure(operations, clock: clock) { in_scheduler(CarbonFiber::Scheduler, bodies) }
      end
    end

    # The same for UringMachine, whose machine the block gets, too.
    def uringmachine(count, clock: Process::CLOCK_PROCESS_CPUTIME_ID, &block)
      peer('uringmachine', count) do |n|
        require 'uringmachine'
        machine = UringMachine.new
        operations, bodies = instance_exec(n, machine, &block)
        measure(operations, clock: clock) do
          fibers = bodies.map { |body| machine.spin { body.call } }
          machine.join(*fibers)
        end
      end
    end

    # What the block returns is returned, of an Async that has ended.
    def async(count, &block)
      peer('async', count) do |n|
        require 'async'
        worker = self
        Async { |task| worker.instance_exec(n, task, &block) }.wait
      end
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
