# frozen_string_literal: true

# Measures the web server beside others that run the same Rack application, and nginx, which has none, in
# one and the same run.
#
#   ruby -Ilib bench/net/http/run.rb             all rows; writes bench/results/http.md, .json and .svg
#   ruby -Ilib bench/net/http/run.rb hello h2    only these; prints, and writes nothing
#   ruby -Ilib bench/net/http/run.rb --keep h2   only these; the other rows stay in bench/results, if they were measured on the same machine and
#                                                for as long: a whole run takes a quarter of an hour
#
#   BENCH_ROUNDS=5     rounds (3 without it)
#   BENCH_SECONDS=8    for one measurement (4 without it)
#   BENCH_SIDES=puma   only these beside ours and nginx

require 'json'
require_relative '../../support/machine'
require_relative '../../support/summary'
require_relative '../../support/report'
require_relative 'sides'
require_relative 'server_process'
require_relative 'alone'
require_relative 'rows'
require_relative 'table'
require_relative 'plot'

$LOAD_PATH << File.expand_path('../../../lib', __dir__)

module Bench
  module HTTP
    # A run of all rows, or of those named.
    class Run
      RESULTS = File.expand_path('../../results', __dir__)
      SAME = %w[processor processors kernel ruby libraries].freeze

      def initialize(names)
        names -= ['--keep'] if (@keep = names.include?('--keep'))
        @rows = names.empty? ? ROWS : ROWS.select { |row| names.include?(row.name) }
        @whole = names.empty?
        unknown = names - ROWS.map(&:name)
        abort "no such row: #{unknown.join(', ')}; there are #{ROWS.map(&:name).join(', ')}" unless unknown.empty?

        @machine = Machine.new
        @rounds = Integer(ENV.fetch('BENCH_ROUNDS', '3'))
        @seconds = Integer(ENV.fetch('BENCH_SECONDS', '4'))
        @sides = Side.all(@machine.drivers).select { |side| wanted?(side) }
      end

      # @return [Integer] the exit status
      def call
        results = @rows.each_with_index.to_h { |row, index| [row, measure(row, index)] }
        results = with_kept(results) if @keep
        table = Table.new(results, @sides, @machine.facts, rounds: @rounds, seconds: @seconds)
        puts '', table.markdown
        publish(table) if @whole || @keep
        0
      end

      private

      # Figures of another machine, or of shorter rounds, do not belong into one table with these: such rows are dropped.
      def with_kept(results)
        kept = JSON.parse(File.read("#{RESULTS}/http.json"))
        same = kept.values_at('rounds', 'seconds') == [@rounds, @seconds] && kept['machine'].slice(*SAME) == JSON.parse(@machine.facts.to_json).slice(*SAME)
        warn 'bench/results/http.json was measured elsewhere, or for another time: a new table begins' unless same

        ROWS.to_h { |row| [row, results[row] || (same ? rounds_of(kept, row) : nil)] }.compact
      end

      def rounds_of(kept, row)
        rounds = kept['rows'].dig(row.name, 'rounds') or return
        rounds.map { |round| round.transform_values { |figures| figures.is_a?(Hash) ? figures.transform_keys(&:to_sym) : figures } }
      end

      def wanted?(side)
        chosen = ENV['BENCH_SIDES']&.split(',')
        return false if chosen && side.kind == :peer && !chosen.include?(side.name)

        missing = side.missing or return true
        warn "without #{side.name}: #{missing}"
        false
      end

      # Every round goes through all servers, so that a change in the machine's mood meets all alike.
      # @return [Array<Hash>] for each round the figures by side; a String where a side failed
      def measure(row, index)
        sides = @sides.select { |side| row.for?(side) }
        Array.new(@rounds) do |round|
          sides.to_h do |side|
            figures = attempt(row, side)
            puts format('[%<n>d/%<all>d] %<row>s, round %<round>d: %<side>s %<text>s', n: index + 1, all: @rows.size, row: row.name,
                                                                                  round: round + 1, side: side.name, text: brief(figures))
            [side.name, figures]
          end.merge(alone(row))
        end
      end

      # @return [Hash] the application without a server, where it is most of what a request costs
      def alone(row)
        row.alone ? { 'alone' => Alone.measure(row.alone, @seconds) } : {}
      end

      def attempt(row, side)
        ServerProcess.run(side, row.way) do |server|
          row.load.call(server, 1) # what is compiled or allocated once
          before = server.cpu
          figures = row.load.call(server, @seconds)
          raise 'not one good answer' unless figures[:rate].positive?

          figures.merge(cpu: (server.cpu - before) / (figures[:rate] * (figures[:seconds] || @seconds)) * 1e6, memory: server.memory)
        end
      rescue StandardError => e
        e.message.lines.first.to_s.strip
      end

      def brief(figures)
        return figures if figures.is_a?(String)

        "#{Report.number(figures[:rate])}/s, p99 #{figures[:p99]&.round(1)} ms, #{figures[:cpu]&.round(1)} us CPU, " \
          "#{figures[:failed]} failed#{", #{figures[:own].round(1)} us of the load's" if figures[:own]}"
      end

      def publish(table)
        File.write("#{RESULTS}/http.md", "# bench/net/http\n\n#{table.markdown}\n![requests a second](http.svg)\n")
        File.write("#{RESULTS}/http.json", "#{JSON.pretty_generate(table.to_h)}\n")
        File.write("#{RESULTS}/http.svg", Plot.new(table).svg)
        puts 'written: bench/results/http.md, http.json, http.svg'
      end
    end
  end
end

$stdout.sync = true
exit Bench::HTTP::Run.new(ARGV).call
