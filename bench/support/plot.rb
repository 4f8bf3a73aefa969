# frozen_string_literal: true

require 'cgi'

module Bench
  # What drawings share.
  module Drawing
    COLOURS = { limit: '#9aa5b1', beside: '#ced4da', driver: '#d9480f', peer: '#4c6ef5' }.freeze

    def svg_page(width, height, body)
      %(<svg xmlns="http://www.w3.org/2000/svg" width="#{width}" height="#{height}" font-family="sans-serif" font-size="11">\n) +
        %(<rect width="100%" height="100%" fill="white"/>\n#{body.join("\n")}\n</svg>\n)
    end

    def svg_text(x, y, text, **more)
      attributes = more.map { |name, value| %( #{name.to_s.tr('_', '-')}="#{value}") }.join
      %(<text x="#{x}" y="#{y}"#{attributes}>#{CGI.escapeHTML(text)}</text>)
    end
  end

  # The first figure of every row as bars, each row on a scale of its own.
  class Bars
    include Drawing

    WIDTH = 900
    LEFT = 230
    STEP = 17

    def initialize(summaries)
      @summaries = summaries
    end

    def svg
      y = 10
      body = @summaries.map { |summary| group(summary, y).tap { |lines| y += 22 + (lines.size - 1) / 3 * STEP + 10 } }
      svg_page(WIDTH, y + 10, body.flatten)
    end

    private

    def group(summary, top)
      metric = summary.row.metrics.first
      figures = summary.measured_sides.filter_map { |name| (spread = summary.figure(name, metric)) && [name, spread.median] }
      most = figures.map(&:last).max.to_f
      bars = figures.each_with_index.flat_map { |(name, value), index| bar(summary.row.side(name), name, value, most, top + 20 + index * STEP) }
      [svg_text(10, top + 12, "#{summary.row.title}, #{metric.unit}", font_weight: 'bold'), *bars]
    end

    def bar(side, name, value, most, y)
      width = most.positive? ? (value / most * (WIDTH - LEFT - 80)).round : 0
      [svg_text(LEFT - 8, y + 11, name, text_anchor: 'end'),
       %(<rect x="#{LEFT}" y="#{y}" width="#{width}" height="13" fill="#{COLOURS.fetch(side&.kind || :beside)}"/>),
       svg_text(LEFT + width + 6, y + 11, Report.number(value))]
    end
  end

  # How the cost of one operation goes up with how many there are: one drawing for each row that grows, both axes logarithmic.
  class Curves
    include Drawing

    WIDTH = 420
    HEIGHT = 200
    PER_LINE = 2

    def initialize(summaries)
      @summaries = summaries.select { |summary| summary.growth.any? }
    end

    def svg
      body = @summaries.each_with_index.flat_map { |summary, index| drawing(summary, index % PER_LINE * WIDTH, index / PER_LINE * HEIGHT) }
      svg_page(WIDTH * PER_LINE, (@summaries.size + 1) / PER_LINE * HEIGHT, body)
    end

    private

    def drawing(summary, left, top)
      courses = summary.measured_sides.to_h { |side| [side, summary.course(side).select { |_scale, value| value.positive? }] }
      values = courses.values.flat_map(&:values)
      return [] if values.empty?

      low, high = Math.log10(values.min), Math.log10(values.max)
      place = lambda do |scale, value|
        [left + 40 + (Math.log10(scale) + 2) * 90, top + 165 - (value.zero? ? 0 : (Math.log10(value) - low) / [high - low, 0.3].max * 130)]
      end
      [svg_text(left + 10, top + 16, "#{summary.row.title}, #{summary.row.metrics.first.unit}", font_weight: 'bold'),
       *[0.01, 0.1, 1.0].map { |scale| svg_text(left + 40 + (Math.log10(scale) + 2) * 90, top + 185, "x #{(scale * 100).round}", text_anchor: 'middle') },
       *courses.flat_map { |side, course| curve(summary.row.side(side), side, course, place) }]
    end

    def curve(side, name, course, place)
      return [] if course.empty?

      points = course.sort.map { |scale, value| place.call(scale, value).map(&:round) }
      colour = COLOURS.fetch(side&.kind || :beside)
      [%(<polyline points="#{points.map { |point| point.join(',') }.join(' ')}" fill="none" stroke="#{colour}" stroke-width="2"/>),
       svg_text(points.last[0] + 6, points.last[1] + 4, "#{name} #{Report.number(course[course.keys.max])}", fill: colour)]
    end
  end
end
