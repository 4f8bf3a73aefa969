# frozen_string_literal: true

# One deadline for a request and everything that is spun to answer it.
#   ruby -Ilib examples/deadline.rb
require 'polyphony'

def fetch(part, seconds)
  spin(part) do
    puts "#{part}: #{Polyphony.deadline.remaining.positive? ? 'in time' : 'too late'} to begin"
    sleep seconds
    "#{part} fetched"
  rescue Polyphony::DeadlineExceeded
    puts "#{part}: given up"
    raise
  end
end

def answer(slowest)
  deadline(0.1) do
    Fiber.await(fetch('names', 0.01), fetch('prices', slowest)).join(', ')
  end
rescue Polyphony::DeadlineExceeded => e
  "sorry: #{e.message[/deadline of [\d.]+ s is over/]}"
end

puts answer(0.02)
puts answer(10)
