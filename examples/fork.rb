# frozen_string_literal: true

# The main fiber forks while a clock ticks. The child has only the fiber that forked, and a backend
# of its own; the parent's clock goes on while it waits for the child.
#   ruby -Ilib examples/fork.rb
require 'polyphony'

$stdout.sync = true
ticks = 0
spin(:clock) { every(0.05) { ticks += 1 } }
sleep 0.12

pid = fork do
  puts "child:  #{Fiber.current.children.size} other fibers, main: #{Fiber.current.main?}"
  result = spin { sleep 0.2; 42 }.await
  puts "child:  a fiber of mine said #{result}"
  exit 3
end

before = ticks
_, status = Polyphony.backend_waitpid(pid)
puts "parent: the child ended with #{status >> 8}"
puts "parent: the clock ticked meanwhile: #{ticks > before}"
