# frozen_string_literal: true

# The first of several: who answers first, who succeeds first, and many at a time but not too many.
#   ruby -Ilib examples/race.rb
require 'polyphony'

def mirror(name, seconds, error: nil)
  spin(name) do
    sleep seconds
    raise IOError, error if error

    "#{name} answered"
  ensure
    puts "  #{name} is over"
  end
end

puts 'select: the first to end; the others go on'
mirrors = [mirror(:near, 0.02), mirror(:far, 0.06)]
fiber, answer = Fiber.select(mirrors)
puts "  #{fiber.tag}: #{answer}"
Fiber.await(mirrors)

puts 'race: the first to succeed; the others are stopped'
puts "  #{Fiber.race(mirror(:broken, 0.01, error: 'gone'), mirror(:slow, 5), mirror(:good, 0.03))}"

puts 'map: every element in a fiber, three at a time'
inside = most = 0
squares = Fiber.map(1..9, limit: 3) do |number|
  most = [most, inside += 1].max
  sleep 0.005
  inside -= 1
  number * number
end
puts "  #{squares.join(' ')}, at most #{most} at once"
