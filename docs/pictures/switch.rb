# frozen_string_literal: true

# Draws the flow of a switch, for the guide: ruby docs/pictures/switch.rb > docs/pictures/switch.svg
# Boxes stand in a grid; what leads from one to the next is given by their names.
require_relative 'support/svg'

WIDTH = 236
HEIGHT = 58
GAP_X = 54
GAP_Y = 34

Box = Struct.new(:column, :row, :kind, :lines) do
  def x = 20 + column * (WIDTH + GAP_X)
  def y = 20 + row * (HEIGHT + GAP_Y)
  def middle_x = x + WIDTH / 2
  def middle_y = y + HEIGHT / 2
end

BOXES = {
  wait: Box.new(0, 0, :fiber, ['a fiber has to wait', 'read, sleep, await, receive …']),
  timers: Box.new(0, 1, :core, ['fire timers that are due', 'sleepers and limits enter the queue']),
  look: Box.new(0, 2, :core, ['an entry in the run queue?', 'fiber · value · return or raise']),
  often: Box.new(0, 3, :core, ['many switches, and no poll?', 'more than 10, and than are queued']),
  interrupts: Box.new(0, 4, :core, ['interrupts', 'signals, Thread#raise']),
  transfer: Box.new(0, 5, :fiber, ['Fiber#transfer to that fiber', 'none, if it is the present one']),
  idle: Box.new(1, 2, :core, ['nobody can run: idle hooks', 'is anything pending? else: deadlock']),
  poll: Box.new(2, 2, :kernel, ['poll, without Ruby’s lock', 'until an event or the next timer']),
  settle: Box.new(2, 1, :core, ['operations settle', 'their fibers enter the queue']),
  peek: Box.new(1, 3, :kernel, ['poll without waiting', 'so that nobody starves'])
}.freeze
# From, to, word beside it.
ARROWS = [%i[wait timers], %i[timers look], [:look, :often, 'yes'], [:look, :idle, 'no'], %i[idle poll], %i[poll settle], %i[settle timers],
          [:often, :interrupts, 'no'], [:often, :peek, 'yes'], %i[peek interrupts], %i[interrupts transfer]].freeze

def box(box)
  SVG.box(box.x, box.y, WIDTH, HEIGHT, box.kind, *box.lines)
end

# Straight where they stand in a line, else out of the side and in at the side.
def points(from, to)
  if from.column == to.column
    down = to.row > from.row
    [[from.middle_x, down ? from.y + HEIGHT : from.y], [to.middle_x, down ? to.y : to.y + HEIGHT]]
  elsif from.row == to.row
    right = to.column > from.column
    [[right ? from.x + WIDTH : from.x, from.middle_y], [right ? to.x : to.x + WIDTH, to.middle_y]]
  else
    [[from.middle_x, from.y + HEIGHT], [from.middle_x, to.middle_y], [to.x + WIDTH, to.middle_y]]
  end
end

def arrow(from, to, word)
  line = points(from, to)
  path = SVG.line(line)
  return path unless word

  (x1, y1), (x2, y2) = line
  path + SVG.text((x1 + x2) / 2 + (x1 == x2 ? 8 : 0), (y1 + y2) / 2 + (x1 == x2 ? 4 : -7), word, size: 11.5, fill: '#555', anchor: x1 == x2 ? 'start' : 'middle')
end

width = BOXES.values.map { |b| b.x + WIDTH }.max + 20
height = BOXES.values.map { |b| b.y + HEIGHT }.max + 20
puts SVG.page('The flow of a switch', width, height, ARROWS.map { |from, to, word| arrow(BOXES.fetch(from), BOXES.fetch(to), word) },
              BOXES.values.map { |b| box(b) })
