# frozen_string_literal: true

# A clock ticks while the main fiber waits for input that does not come, then comes. With a
# terminal it waits for what you type.
#   ruby -Ilib examples/clock.rb
require 'polyphony'

reader, writer = IO.pipe
if $stdin.tty?
  puts 'type something and press enter'
  reader = $stdin
else
  after(0.35) { Polyphony.backend_write(writer, "at last\n") }
end

ticks = 0
clock = spin(:clock) { every(0.1) { puts "tick #{ticks += 1}" } }

line = Polyphony.backend_read(reader, nil, 100, false, 0)
clock.stop
puts "read: #{line}"
puts "the clock has ticked #{ticks} times meanwhile"
