# frozen_string_literal: true

require 'json'
require_relative 'row'
require_relative 'runner'
require_relative 'summary'
require_relative 'report'
require_relative 'store'
require_relative 'machine'

module Bench
  # A run of all rows, or of those named.
  class Suite
    # Of a Ruby that is not the one the project is developed with, in a folder of their own.
    RESULTS = File.expand_path(RUBY_VERSION.start_with?('3.1') ? '../results' : "../results/ruby-#{RUBY_VERSION[/\d+\.\d+/]}", __dir__)
    # The order of the table: from the switch outwards.
    ORDER = %w[startup memory switch switch_1000 switch_crowd trace snooze schedule spin_await spin_many spin_unheld
               spin_alive timeout timeout_10000 timers_pending sleep_storm sleep_storm_100000 every queue producers queue_ping_pong ping_pong fan_in threads_ping_pong mutex fairness
               blocking blocking_16 pipe_read pipe_pairs socket_pairs splice file_read file_copy accept echo_64 echo_1000 echo_crowd line_echo net_http popen sched sched_block].freeze

    def initialize(names, rounds: nil, scale: nil)
      Bench.load_rows
      @names = names
      @rounds = rounds && Integer(rounds)
      @scale = scale ? Float(scale) : 1.0
    end

    # @return [Integer] the exit status
    def call
      return 2 if unknown?

      @machine = Machine.new
      @facts = @machine.facts
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      summaries = measure(@machine.drivers)
      seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
      puts '', Report.new(summaries, @machine, @facts, seconds: seconds, scale: @scale).markdown
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
        started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        summary = Summary.new(row, runner(row, drivers).call(label), growth(row, drivers, label))
        puts "#{label}: #{summary.line}"
        summary.tap { keep(summary, Process.clock_gettime(Process::CLOCK_MONOTONIC) - started) }
      end
    end

    def runner(row, drivers, rounds: @rounds || row.rounds, scale: @scale)
      Runner.new(row, drivers, rounds: rounds, scale: scale)
    end

    # A tenth and a hundredth of the work, once each.
    def growth(row, drivers, label)
      return {} unless row.grows

      [0.01, 0.1].to_h { |part| [part, runner(row, drivers, rounds: 1, scale: @scale * part).call("#{label}, x #{part}").first] }
    end

    # It takes the place of the one stored; the others stay. Done row by row: what is stopped has not been in vain.
    def keep(summary, seconds)
      return if ENV['BENCH_KEEP'] == '0' || @scale != 1.0

      store = Store.new(RESULTS)
      all = store.merge([summary], @facts, seconds).sort_by { |each| ordered.index(each.row) }
      store.write(Report.new(all, @machine, store.facts, seconds: store.seconds, scale: 1.0), all)
    end
  end
end
