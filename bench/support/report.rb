# frozen_string_literal: true

module Bench
  # The table, and the same as data.
  class Report
    HEAD = ['row', 'limit', 'io_uring', 'x limit', 'libev', 'x limit', 'target', 'beside'].freeze

    def initialize(summaries, machine, facts, seconds:, scale:)
      @summaries = summaries
      @facts = facts
      @drivers = machine.drivers
      @seconds = seconds
      @scale = scale
    end

    def markdown
      [*heading, '', table_row(HEAD), table_row(HEAD.map { '---' }), *lines, '', *growth, *notes].join("\n") + "\n"
    end

    def to_h
      { machine: @facts, scale: @scale, seconds: @seconds.round,
        rows: @summaries.to_h { |summary| [summary.row.name, row_data(summary)] } }
    end

    # Three digits that count, thousands apart.
    def self.number(value)
      return '-' unless value
      return value.to_s if value.is_a?(Integer) && value < 1000
      return value.round.to_s.gsub(/(\d)(?=(\d{3})+$)/, '\1,') if value.abs >= 100

      format('%.3g', value)
    end

    private

    def heading
      libraries = @facts[:libraries].map { |name, version| "#{name} #{version}" }.join(', ')
      ["#{@facts[:processor]}, #{@facts[:processors]} processors · #{@facts[:kernel]} · #{@facts[:ruby]} · " \
       "#{libraries}", '',
       "Load average when the first of these rows began: #{@facts[:load_average]}. Took #{@seconds.round} s" \
       "#{@scale == 1.0 ? '' : " at scale #{@scale}"}."]
    end

    # How much more an operation costs when there is a hundred times the work.
    def growth
      rows = @summaries.select { |summary| summary.growth.any? }
      return [] if rows.empty?

      lines = rows.map do |summary|
        sides = summary.measured_sides.filter_map { |side| (factor = summary.growth_factor(side)) && "#{side} #{format('%.2f', factor)}" }
        table_row([summary.row.title, summary.row.grows, sides.join('; ')])
      end
      ['## How cost grows', '', 'One operation with all the work of the row, in multiples of one with a hundredth of it: 1 is flat. ' \
       'Single rounds; drawn in growth.svg.', '', table_row(['row', 'a hundred times as many', 'x']), table_row(%w[--- --- ---]), *lines, '']
    end

    def notes
      failures = @summaries.flat_map do |summary|
        summary.failures.map { |side, text| "- #{summary.row.name}, #{side}: **failed**: #{text}" }
      end
      ['Medians of interleaved rounds; ratios are taken within each round, their range is in ' \
       'brackets. `ok` and `MISSED` stand for the target. Rows without I/O and threads are in CPU ' \
       'time, the others in wall time.', *versions, *failures]
    end

    def versions
      peers = @summaries.flat_map { |summary| summary.row.peers.map(&:name) }.uniq
      missing, there = peers.map { |name| [name, Peers.missing(name)] }.partition(&:last)
      lines = there.empty? ? [] : ['', "Peers: #{there.map { |name, _| "#{Peers.gem_of(name)} #{Peers.version(name)}" }.uniq.join(', ')}."]
      lines + [''] + missing.map { |name, why| "- not to be had: #{name}: #{why}" }
    end

    def lines
      @summaries.flat_map { |summary| summary.row.metrics.map { |metric| line(summary, metric) } }
    end

    def line(summary, metric)
      cells = Row::DRIVERS.flat_map do |driver|
        [figure(summary, driver, metric), ratio(summary, driver, metric)]
      end
      table_row([label(summary, metric), limits(summary, metric), *cells, target(metric),
                 beside(summary, metric)])
    end

    def label(summary, metric)
      "#{summary.row.title}, #{metric.unit}"
    end

    def limits(summary, metric)
      sides = summary.row.sides.select { |side| side.kind == :limit }
      sides.map { |side| "#{side.name} #{figure(summary, side.name, metric)}" }.join('; ')
    end

    def beside(summary, metric)
      sides = summary.row.sides.select { |side| side.kind == :beside || (side.kind == :peer && summary.figure(side.name, metric)) }
      sides.map { |side| "#{side.name} #{figure(summary, side.name, metric)}#{to_peer(summary, side, metric)}" }.join('; ')
    end

    # Ours / the peer's, by driver.
    def to_peer(summary, side, metric)
      ratios = @drivers.filter_map { |driver| summary.peer_ratios(driver, metric)[side.name] if side.kind == :peer }
      ratios.empty? ? '' : " (#{ratios.map { |spread| format('%.2fx', spread.median) }.join(' / ')})"
    end

    def figure(summary, side, metric)
      Report.number(summary.figure(side, metric)&.median)
    end

    def ratio(summary, driver, metric)
      return '' unless @drivers.include?(driver)

      spread = summary.ratio(driver, metric)
      verdict = { true => ' ok', false => ' **MISSED**', nil => '' }[summary.met?(driver, metric)]
      range = format('%<median>.2f (%<min>.2f–%<max>.2f)', **spread.to_h) if spread
      "#{range}#{verdict}".strip
    end

    def target(metric)
      sign = metric.lower_is_better? ? '≤' : '≥'
      parts = [per_driver(metric.ratio) { |ratio| "#{sign} #{format('%.3g', ratio)}x" },
               per_driver(metric.value) { |value| "#{sign} #{value} #{metric.unit}" },
               per_driver(metric.peer) { |ratio| "#{sign} #{format('%.3g', ratio)}x each peer" }, metric.note]
      parts.compact.join(', ')
    end

    def per_driver(targets, &block)
      return unless targets

      targets.is_a?(Hash) ? targets.values.map(&block).join(' / ') : block.call(targets)
    end

    def table_row(cells)
      "| #{cells.join(' | ')} |"
    end

    def row_data(summary)
      { title: summary.row.title, rounds: summary.rounds, failures: summary.failures, data: summary.data, growth: summary.growth,
        metrics: summary.row.metrics.to_h { |metric| [metric.name, metric_data(summary, metric)] } }
    end

    def metric_data(summary, metric)
      { unit: metric.unit, better: metric.better,
        target_ratio: metric.ratio, target_value: metric.value, target_peer: metric.peer,
        figures: summary.measured_sides.to_h { |side| [side, summary.figure(side, metric)&.to_h] },
        ratios: @drivers.to_h { |driver| [driver, summary.ratio(driver, metric)&.to_h] },
        peers: @drivers.to_h { |driver| [driver, summary.peer_ratios(driver, metric).transform_values(&:to_h)] },
        met: @drivers.to_h { |driver| [driver, summary.met?(driver, metric)] } }
    end
  end
end
