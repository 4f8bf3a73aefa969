# frozen_string_literal: true

# Draws the tree of a small program, as Polyphony.tree tells of it, for the guide: ruby -Ilib docs/pictures/tree.rb > docs/pictures/tree.svg
# Children stand below their parents; a dashed arrow leads to the fiber that has what another one waits for.
require 'polyphony'
require 'polyphony/testing'
require_relative 'support/svg'

WIDTH = 226
HEIGHT = 58
GAP_X = 24
GAP_Y = 46

# What is drawn of one fiber. column: in boxes from the left, which may be a half.
Place = Struct.new(:node, :column, :row, :parent) do
  def x = 20 + (column * (WIDTH + GAP_X)).round
  def y = 20 + row * (HEIGHT + GAP_Y)
  def middle_x = x + WIDTH / 2
  def bottom = y + HEIGHT
end

# A shop, five seconds after it has opened. In virtual time: it is the same each time.
def shop
  Polyphony::Testing.virtual_clock do |clock|
    orders = Polyphony::Queue.new
    till = Polyphony::Mutex.new
    spin(:shop) do
      spin(:cook) { orders.shift }
      spin(:clerk) { till.synchronize { sleep 60 } }
      spin(:boss) { till.synchronize { :count } }
      spin(:door) { spin(:guest) { suspend }.await }
      suspend
    end
    clock.advance(5)
    spin(:news) { :not_yet }
    Polyphony.tree.first.tap { Fiber.current.shutdown_all_children }
  end
end

# A parent stands above the middle of its children.
# @return [Array<Place>] the node's own first
def places(node, row = 0, parent = nil, next_column = [0])
  place = Place.new(node, nil, row, parent)
  below = node.children.map { |child| places(child, row + 1, place, next_column) }
  place.column = below.empty? ? (next_column[0] += 1) - 1 : (below.first.first.column + below.last.first.column) / 2.0
  [place, *below.flatten]
end

def words(node)
  return node.state.to_s unless node.wait

  length = node.wait[:length] && ", #{node.wait[:length]} there"
  left = node.wait[:seconds_left] && ", #{node.wait[:seconds_left].round} s left"
  "waits for #{node.wait[:reason]}#{length}#{left}"
end

def box(place)
  kind = { running: :kernel, runnable: :ready }.fetch(place.node.state, :fiber)
  SVG.box(place.x, place.y, WIDTH, HEIGHT, kind, place.node.tag || 'main fiber', words(place.node))
end

def branch(place)
  middle = place.parent.bottom + GAP_Y / 2
  SVG.line([[place.parent.middle_x, place.parent.bottom], [place.parent.middle_x, middle], [place.middle_x, middle], [place.middle_x, place.y]], arrow: false)
end

# Around below to a neighbour, straight down to a child.
def waits_for(place, other)
  return unless other

  other.row == place.row ? beside(place, other) : beneath(place, other)
end

def beside(place, other)
  depth = place.bottom + 16
  SVG.line([[place.middle_x, place.bottom], [place.middle_x, depth], [other.middle_x, depth], [other.middle_x, other.bottom]], dashed: true) +
    SVG.text((place.middle_x + other.middle_x) / 2, depth + 15, 'held by', size: 11.5, fill: '#555')
end

def beneath(place, other)
  x = place.middle_x + 40
  SVG.line([[x, place.bottom], [x, other.y]], dashed: true) + SVG.text(x + 9, other.y - 19, 'waited for', size: 11.5, fill: '#555', anchor: 'start')
end

all = places(shop)
wanted = lambda do |place|
  all.find { |other| other.node.id == place.node.wait&.fetch(:fiber, nil) || place.node.held_by.include?(other.node.fiber) }
end
width = all.map { |place| place.x + WIDTH }.max + 20
height = all.map(&:bottom).max + 20
puts SVG.page('The fibers of a program', width, height, all.select(&:parent).map { |place| branch(place) },
              all.map { |place| box(place) }, all.filter_map { |place| waits_for(place, wanted.call(place)) })
