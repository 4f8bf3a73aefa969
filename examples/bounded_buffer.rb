# frozen_string_literal: true

# A buffer of three items as a monitor. A thread fills it, fibers empty it; one of them is stopped
# while it waits, and nothing is lost. (Polyphony::Queue.new(3) does the same with less.)
#   ruby -Ilib examples/bounded_buffer.rb
require 'polyphony'

class Buffer
  include Polyphony::MonitorMixin

  attr_reader :fullest

  def initialize(size)
    super()
    @size = size
    @items = []
    @fullest = 0
    @changed = new_cond
  end

  def put(item)
    synchronize do
      @changed.wait_while { @items.size == @size }
      @items << item
      @fullest = [@fullest, @items.size].max
      @changed.broadcast
    end
  end

  def take
    synchronize do
      @changed.wait_while { @items.empty? }
      @changed.broadcast
      @items.shift
    end
  end
end

buffer = Buffer.new(3)
taken = []
takers = Array.new(3) { spin { loop { taken << buffer.take; sleep 0.001 } } }
snooze
takers.first.stop # it waits for an item

Thread.new { 20.times { |i| buffer.put(i) } }
sleep 0.01 until taken.size == 20

puts "taken: #{taken.sort == (0...20).to_a ? 'all, each once' : taken.inspect}"
puts "never more than #{buffer.fullest} in the buffer"
puts "takers left: #{takers.count { |fiber| !fiber.dead? }}"
