# frozen_string_literal: true

require 'json'
require 'fileutils'
require_relative 'row'
require_relative 'runner'
require_relative 'summary'
require_relative 'report'
require_relative 'machine'

module Bench
  # A run of all rows, or of those named.
  class Suite
    RESULTS = File.expand_path('../results', __dir__)
    # The order of the table: from the switch outwards.
    ORDER = %w[switch switch_1000 trace snooze schedule spin_await spin_many spin_unheld
               spin_alive timeout timeout_10000 sleep_storm sleep_storm_100000 every queue queue_ping_pong ping_pong fan_in blocking blocking_16
               pipe_read file_read echo_64 echo_1000 line_echo net_http popen sched sched_block].freeze

    def initialize(names, rounds: nil, scale: nil)
      Bench.load_rows
      @names = names
      @rounds = rounds && Integer(rounds)
      @scale = scale ? Float(scale) : 1.0
    end

    # @return [Integer] the exit status
    def call
      return 2 if unknown?

      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      machine = Machine.new
      summaries = measure(machine.drivers)
      seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
      report = Report.new(summaries, machine, seconds: seconds, scale: @scale)
      publish(report)
      summaries.any?(&:failed?) ? 1 : 0
    end

    private

    def unknown?
      unknown = @names - Bench.rows.keys
      return false if unknown.empty?

      warn "no such row: #{unknown.join(', ')}; there are #{ordered.map(&:name).join(', ')}"
      true
    end

    def ordered
      Bench.rows.values.sort_by { |row| [ORDER.index(row.name) || ORDER.size, row.name] }
    end

    def measure(drivers)
      rows = ordered.select { |row| @names.empty? || @names.include?(row.name) }
      rows.each_with_index.map do |row, index|
        label = format('[%<n>2d/%<all>d] %<title>s', n: index + 1, all: rows.size, title: row.title)
        runner = Runner.new(row, drivers, rounds: @rounds || row.rounds, scale: @scale)
        Summary.new(row, runner.call(label)).tap { |summary| puts "#{label}: #{summary.line}" }
      end
    end

    # A part of the rows must not take the place of a whole run's.
    def publish(report)
      puts '', report.markdown
      return unless @names.empty?

      FileUtils.mkdir_p(RESULTS)
      File.write(File.join(RESULTS, 'micro.md'), "# bench/micro\n\n#{report.markdown}")
      File.write(File.join(RESULTS, 'micro.json'), "#{JSON.pretty_generate(report.to_h)}\n")
      puts '', 'written: bench/results/micro.md, bench/results/micro.json'
    end
  end
end
