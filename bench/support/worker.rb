# frozen_string_literal: true

# Runs one side of one row in a process of its own and prints its figures as JSON:
#   ruby worker.rb ROW SIDE SCALE
# A side that is not ours sees a bare Ruby: nothing of Polyphony is loaded.

require 'json'
require 'rbconfig'
require_relative 'row'
require_relative 'native'

module Bench
  # What the blocks of a row may call.
  class Worker
    CPU = Process::CLOCK_PROCESS_CPUTIME_ID
    WALL = Process::CLOCK_MONOTONIC

    def initialize(row, side, scale)
      @row = row
      @side = side
      @scale = scale
    end

    def call
      require 'polyphony' if @side.kind == :driver
      check_driver if @side.kind == :driver
      perform(@scale / 20.0) if @row.warm_up?
      perform(@scale)
    end

    # Times the block, which does +count+ operations. CPU time, because fibers that only switch never
    # wait: other programs on the machine then do little harm. Where the kernel or another thread is
    # waited for, +clock+ has to be the wall's.
    # @return [Hash] nanoseconds per operation
    def measure(count, clock: CPU, &block)
      GC.start
      { ns: elapsed(clock, &block) * 1e9 / count }
    end

    # The same, and the CPU time that it took: which tells more where other programs are busy, too.
    # @return [Hash] ns, and cpu in microseconds
    def measure_both(count)
      cpu = nil
      measure(count, clock: WALL) { cpu = elapsed(CPU) { yield } }.merge(cpu: cpu * 1e6 / count)
    end

    # For rows which have something to prepare between one batch and the next: calls the block
    # until +count+ is reached. It does +size+ operations and returns their time in seconds.
    def measure_batches(count, size)
      batches = (count.to_f / size).ceil
      GC.start
      { ns: Array.new(batches) { yield }.sum * 1e9 / (batches * size) }
    end

    # @return [Float] seconds
    def elapsed(clock = CPU)
      started = now(clock)
      yield
      now(clock) - started
    end

    def now(clock = WALL)
      Process.clock_gettime(clock)
    end

    # @return [Float] milliseconds for a Ruby with these arguments to begin and end; the quickest of so many
    def start(times, *flags, code)
      Array.new(times) { elapsed(WALL) { system({ 'RUBYOPT' => nil }, RbConfig.ruby, *flags, '-e', code, exception: true) } }.min * 1e3
    end

    # Runs the procs as fibers of somebody's Fiber::Scheduler, in a thread that ends when all have.
    def in_scheduler(scheduler, bodies)
      Thread.new do
        Fiber.set_scheduler(scheduler.new)
        bodies.each { |body| Fiber.schedule { body.call } }
      end.join
    end

    # @return [Hash] what this process grew by, for each of +count+, while the block made them
    def resident(count)
      GC.start
      before = rss
      kept = yield
      GC.start
      { kb: (rss - before).fdiv(count) }.tap { kept.clear }
    end

    def rss
      Integer(File.read('/proc/self/status')[/VmRSS:\s+(\d+)/, 1])
    end

    # Runs a C program of bench/support, which prints JSON.
    def native(program, *arguments)
      output = IO.popen([Native.program(program), *arguments.map(&:to_s)], &:read)
      raise "#{program} failed (#{$?})" unless $?.success?

      JSON.parse(output, symbolize_names: true)
    end

    private

    def perform(scale)
      instance_exec([(@side.count * scale).round, 1].max, &@side.block)
    end

    def check_driver
      used = Polyphony.backend_kind.to_s
      raise "asked for #{@side.name}, got #{used}" unless used == @side.name
    end
  end
end

if $PROGRAM_NAME == __FILE__
  name, side, scale = ARGV
  Bench.load_rows
  row = Bench.rows.fetch(name)
  puts JSON.generate(Bench::Worker.new(row, row.side(side), scale.to_f).call)
end
