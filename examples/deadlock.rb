# frozen_string_literal: true

# Two fibers wait for each other, and nobody else is there. The report says who waits for what.
#   ruby -Ilib examples/deadlock.rb
require 'polyphony'

knife = Polyphony::Queue.new
spoon = Polyphony::Queue.new

ann = spin(:ann) do
  knife.shift
  spoon << :spoon
end

bob = spin(:bob) do
  spoon.shift
  knife << :knife
end

begin
  Fiber.await(ann, bob)
rescue Polyphony::Deadlock => e
  puts e.message.gsub(/#{__dir__}\//, '')
end
puts "bob has been ended: #{bob.dead?}"
