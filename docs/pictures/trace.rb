# frozen_string_literal: true

# Draws a trace of a small program, as Polyphony.trace tells of it, for the guide: ruby -Ilib docs/pictures/trace.rb > docs/pictures/trace.svg
# A column for each event, so that what takes a microsecond can be seen beside what takes a second: to the right is later, not longer.
require 'polyphony'
require 'polyphony/testing'
require_relative 'support/svg'

LEFT = 90
TOP = 34
STEP = 34
ROW = 44
BAR = 22
COLOURS = { running: '#2f9e6e', runnable: '#e5a63f' }.freeze
WAITS = ['#cbb9e6', '#b3c9e8', '#e5b9d3', '#b9dfe4'].freeze

# In virtual time, and with nothing of the kernel's: it is the same each time.
def shop
  Polyphony::Testing.virtual_clock do
    orders = Polyphony::Queue.new
    Polyphony.trace do
      spin(:clerk) { 2.times { orders.shift; sleep 1 } }
      spin(:guest) { sleep 5; orders << :tea; sleep 5; orders << :cake }
      Fiber.current.await_all_children
    end
  end
end

TRACE = shop
ROWS = TRACE.fibers.sort_by(&:id).each_with_index.to_h { |fiber, index| [fiber.id, [fiber, TOP + index * ROW]] }
SLICES = TRACE.slices.select { |slice| ROWS.key?(slice.fiber) }
COLUMNS = SLICES.flat_map { |slice| [slice.from, slice.to] }.uniq.sort.each_with_index.to_h { |time, index| [time, LEFT + index * STEP] }
REASONS = SLICES.map(&:reason).compact.uniq.zip(WAITS.cycle).to_h

def bar(slice)
  from, to = COLUMNS.values_at(slice.from, slice.to)
  y = ROWS.fetch(slice.fiber).last
  thin = slice.state == :waiting ? 4 : 0
  colour = COLOURS.fetch(slice.state) { REASONS.fetch(slice.reason) }
  %(<rect x="#{from}" y="#{y + thin}" width="#{to - from}" height="#{BAR - 2 * thin}" fill="#{colour}" stroke="#fff" stroke-width="0.5"/>)
end

# Within a slice there are events of others, between which it happened.
def column(time)
  COLUMNS.fetch(time) { COLUMNS.select { |other, _| other < time }.values.max + STEP / 2 }
end

def arrow(arrow)
  from, to = ROWS.values_at(arrow.waker, arrow.woken).map(&:last)
  down = to > from
  SVG.line([[column(arrow.at), down ? from + BAR : from], [column(arrow.arrived), down ? to : to + BAR]])
end

def legend(y)
  shown = { 'runs' => COLOURS[:running], 'could run' => COLOURS[:runnable], **REASONS.transform_keys { |reason| "waits for #{reason}" } }
  shown.each_with_index.map do |(words, colour), index|
    %(<rect x="#{20 + index * 190}" y="#{y}" width="14" height="14" rx="3" fill="#{colour}"/>) + SVG.text(40 + index * 190, y + 11, words, size: 11.5, fill: '#555', anchor: 'start')
  end
end

below = TOP + ROWS.size * ROW
puts SVG.page('A trace', COLUMNS.values.max + 20, below + 40,
              SVG.text(LEFT, 18, 'time, a column for each event', size: 11.5, fill: '#555', anchor: 'start'),
              ROWS.values.map { |fiber, y| SVG.text(20, y + 16, fiber.tag || 'main', weight: 'bold', anchor: 'start') },
              SLICES.map { |slice| bar(slice) }, TRACE.arrows.map { |one| arrow(one) }, legend(below + 8))
