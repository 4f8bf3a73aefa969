# frozen_string_literal: true

module Bench
  module HTTP
    # What the rounds come to, as a table and as data.
    class Table
      attr_reader :sides

      # @param results [Hash{Row => Array<Hash>}]
      def initialize(results, sides, facts, rounds:, seconds:)
        @results = results
        @sides = sides
        @facts = facts
        @rounds = rounds
        @seconds = seconds
      end

      def rows
        @results.keys
      end

      # @return [Spread, nil] of one figure
      def figure(row, side, name = :rate)
        Spread.of(rounds_of(row).map { |round| value(round, side, name) })
      end

      def markdown
        head = ['req/s', *@sides.map(&:name), 'target', *ours.map { |side| "#{side.name}: met" }]
        lines = rows.map { |row| line([row.title, *@sides.map { |side| cell(row, side) }, targets(row), *ours.map { |side| verdicts(row, side) }]) }
        [*heading, '', line(head), line(head.map { '---' }), *lines, '', *costs, '', *failures].join("\n") + "\n"
      end

      def to_h
        { machine: @facts, rounds: @rounds, seconds: @seconds,
          rows: rows.to_h { |row| [row.name, { title: row.title, rounds: rounds_of(row) }] } }
      end

      private

      def ours
        @sides.select { |side| side.kind == :ours }
      end

      def rounds_of(row)
        @results.fetch(row)
      end

      def value(round, side, name)
        result = round[side.is_a?(String) ? side : side.name]
        result[name] if result.is_a?(Hash)
      end

      def heading
        [Machine.line(@facts), '',
         "Servers on one core, load on the other; one process each. Medians of #{@rounds} interleaved rounds of #{@seconds} s; in " \
         "brackets those that answered with errors. Load average: #{@facts[:load_average]}. " \
         "Versions: #{Peers::VERSIONS.map { |name, version| "#{name} #{version}" }.join(', ')}."]
      end

      def cell(row, side)
        rate = figure(row, side) or return rounds_of(row).first.key?(side.name) ? 'failed' : ''
        failed = figure(row, side, :failed)&.max.to_i
        failed.positive? ? "(#{Report.number(rate.median)}, #{failed} failed)" : Report.number(rate.median)
      end

      def targets(row)
        row.targets.map { |side, ratio| "≥ #{ratio}x #{name_of(row, side)}" }.join(', ')
      end

      def name_of(row, side)
        case side
        when :best then 'the best Ruby server'
        when 'alone' then "the application alone (#{(rate = figure(row, side)) ? Report.number(rate.median) : 'failed'})"
        else side
        end
      end

      # In each round the ratio to what that round had to offer.
      def verdicts(row, side)
        row.targets.map do |other, wanted|
          ratio = Spread.of(rounds_of(row).map { |round| quotient(value(round, side, :rate), base(round, other)) })
          next '-' unless ratio

          format('%<ratio>.2f%<verdict>s', ratio: ratio.median, verdict: ratio.median >= wanted ? ' ok' : " **MISSED**#{saved(row, side, other)}")
        end.join(', ')
      end

      # Where what asks, or somebody else on the machine, is the bottleneck, rates come out alike; what a request costs the server does not.
      def saved(row, side, other)
        ratio = Spread.of(rounds_of(row).map { |round| quotient(value(round, other, :cpu), value(round, side, :cpu)) })
        ratio ? format(' (CPU %.2f)', ratio.median) : ''
      end

      def base(round, other)
        return value(round, other, :rate) unless other == :best

        @sides.select { |side| side.kind == :peer }.filter_map { |side| value(round, side, :rate) if value(round, side, :failed).to_i.zero? }.max
      end

      def quotient(ours, other)
        ours / other if ours && other&.positive?
      end

      def costs
        head = ['us CPU a request · p99 ms · MiB', *@sides.map(&:name)]
        lines = rows.map do |row|
          cells = @sides.map do |side|
            numbers = %i[cpu p99 memory].map { |name| figure(row, side, name)&.median }
            numbers.all? ? numbers.map { |number| Report.number(number) }.join(' · ') : ''
          end
          line([row.title, *cells])
        end
        [line(head), line(head.map { '---' }), *lines]
      end

      def failures
        rows.flat_map do |row|
          rounds_of(row).flat_map { |round| round.select { |_, result| result.is_a?(String) }.to_a }.uniq
                        .map { |side, text| "- #{row.name}, #{side}: #{text}" }
        end
      end

      def line(cells)
        "| #{cells.join(' | ')} |"
      end
    end
  end
end
