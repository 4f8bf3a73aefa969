# frozen_string_literal: true

module Bench
  module HTTP
    # The rates as bars, one group for each row, each row on a scale of its own.
    class Plot
      WIDTH = 900
      BAR = 14
      LEFT = 110
      COLOURS = { limit: '#9aa5b1', ours: '#d9480f', peer: '#4c6ef5' }.freeze

      def initialize(table)
        @table = table
      end

      def svg
        y = 10
        groups = @table.rows.map do |row|
          text, height = group(row, y)
          y += height
          text
        end
        <<~SVG
          <svg xmlns="http://www.w3.org/2000/svg" width="#{WIDTH}" height="#{y + 10}" font-family="sans-serif" font-size="11">
          <rect width="100%" height="100%" fill="white"/>
          #{groups.join("\n")}
          </svg>
        SVG
      end

      private

      def group(row, top)
        figures = @table.sides.filter_map { |side| (spread = @table.figure(row, side)) && [side, spread.median] }
        most = figures.map(&:last).max || 1
        bars = figures.each_with_index.map { |(side, rate), index| bar(side, rate, most, top + 22 + index * (BAR + 4)) }
        title = %(<text x="10" y="#{top + 14}" font-weight="bold">#{row.title}, requests a second</text>)
        [[title, *bars].join("\n"), 22 + figures.size * (BAR + 4) + 14]
      end

      def bar(side, rate, most, y)
        width = (rate / most * (WIDTH - LEFT - 90)).round
        %(<text x="#{LEFT - 8}" y="#{y + 11}" text-anchor="end">#{side.name}</text>) +
          %(<rect x="#{LEFT}" y="#{y}" width="#{width}" height="#{BAR}" fill="#{COLOURS.fetch(side.kind)}"/>) +
          %(<text x="#{LEFT + width + 6}" y="#{y + 11}">#{Report.number(rate)}</text>)
      end
    end
  end
end
