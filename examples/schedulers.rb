# frozen_string_literal: true

# A scheduler as an object: fibers that run only while somebody runs it, in turn or one step at a time.
#   ruby -Ilib examples/schedulers.rb

require 'polyphony'

sched = Polyphony::Sched.new
out = []

sched.push { out << 1; sched.resched; out << 2 }
sched.push { out << 3; sched.resched; out << 4 }
sched.run
puts out.join(', ')

# Step by step: after each, how many are not done.
out.clear
sched.push { out << 'foo'; sched.resched; out << 'bar' }
sched.push { out << 'baz' }
sched.each { |active| out << active }
puts out.join(', ')

# A game: the world moves on when it is drawn, and not before.
world = Polyphony::Sched.new
snail = 0
hare = 0
world.push { 4.times { snail += 1; world.resched } }
world.push { 4.times { hare += 10; world.resched; world.resched } } # rests every other frame
frame = 0
world.each do
  frame += 1
  puts "frame #{frame}: snail #{snail}, hare #{hare}" if frame <= 6
end
puts "end: snail #{snail}, hare #{hare}"
