# frozen_string_literal: true

module Bench
  # Median and range of one figure over the rounds.
  Spread = Struct.new(:median, :min, :max, keyword_init: true) do
    def self.of(values)
      values = values.compact.sort
      return if values.empty?

      middle = values.size / 2
      median = values.size.odd? ? values[middle] : (values[middle - 1] + values[middle]) / 2.0
      new(median: median, min: values.first, max: values.last)
    end
  end

  # What the rounds of one row come to. A ratio is taken within each round and the median is of
  # these: what slows down a whole round falls out.
  class Summary
    attr_reader :row, :data, :growth

    # @param growth [Hash{Float => Hash}] one round's figures by scale
    def initialize(row, rounds, growth = {})
      @row = row
      @data = rounds
      @rounds = rounds
      @growth = growth
    end

    # What was stored, see Store.
    def self.restore(row, stored)
      rounds = stored['data'].map { |round| restore_round(round) }
      new(row, rounds, stored.fetch('growth', {}).to_h { |scale, round| [scale.to_f, restore_round(round)] })
    end

    def self.restore_round(round)
      round.to_h { |side, figures| [side, figures.is_a?(Hash) ? figures.transform_keys(&:to_sym) : figures] }
    end

    # @return [Hash{Float => Numeric}] the first metric by scale, the whole work included
    def course(side)
      metric = @row.metrics.first
      course = @growth.transform_values { |round| value(round, side, metric) }
      course.merge(1.0 => figure(side, metric)&.median).compact
    end

    # @return [Float, nil] how many times as much one operation costs when there is a hundred times the work
    def growth_factor(side)
      course = course(side)
      return if course.size < 2 || !course[1.0]&.positive?

      first = course[course.keys.min]
      @row.metrics.first.lower_is_better? ? course[1.0] / first.to_f : first / course[1.0].to_f
    end

    # @return [Spread, nil]
    def figure(side, metric)
      Spread.of(@rounds.map { |round| value(round, side, metric) })
    end

    # @param other [String] a side
    # @return [Spread, nil] ours / limit, or another side's
    def ratio(driver, metric, other = @row.limit_of(driver).name)
      Spread.of(@rounds.map do |round|
        ours = value(round, driver, metric)
        base = value(round, other, metric)
        ours / base.to_f if ours && base&.positive?
      end)
    end

    # @return [Hash{String => Spread}] ours / each peer's
    def peer_ratios(driver, metric)
      @row.peers.to_h { |peer| [peer.name, ratio(driver, metric, peer.name)] }.compact
    end

    # @return [Boolean, nil] whether the target is met; nil without one, or without a figure
    def met?(driver, metric)
      wanted = [[target(metric.ratio, driver), ratio(driver, metric)],
                [target(metric.value, driver), figure(driver, metric)],
                *peer_ratios(driver, metric).values.map { |spread| [target(metric.peer, driver), spread] }].select(&:first)
      return if wanted.empty? || wanted.any? { |_target, spread| spread.nil? }

      wanted.all? { |target, spread| within?(spread.median, target, metric) }
    end

    def target(targets, driver)
      targets.is_a?(Hash) ? targets[driver] : targets
    end

    # @return [Hash] complaints by side
    def failures
      @rounds.flat_map { |round| round.select { |_side, result| result.is_a?(String) }.to_a }.to_h
    end

    def failed?
      failures.any?
    end

    def rounds
      @rounds.size
    end

    # The first metric in one line, for the progress.
    def line
      metric = @row.metrics.first
      parts = measured_sides.map do |side|
        spread = figure(side, metric)
        "#{side} #{spread ? Report.number(spread.median) : 'failed'}"
      end
      "#{parts.join(', ')} #{metric.unit}"
    end

    def measured_sides
      @rounds.flat_map(&:keys).uniq
    end

    private

    def value(round, side, metric)
      result = round[side]
      result[metric.name] if result.is_a?(Hash)
    end

    def within?(value, target, metric)
      metric.lower_is_better? ? value <= target : value >= target
    end
  end
end
