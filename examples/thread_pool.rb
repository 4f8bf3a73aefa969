# frozen_string_literal: true

# Work that would stop all fibers is done in threads, while a clock ticks. Errors come back: to the
# one who waits for the work, or, when nobody does, to the fiber that wanted it done.
#   ruby -Ilib examples/thread_pool.rb
require 'polyphony'
require 'digest/sha2'

ticks = 0
clock = spin(:clock) { every(0.01) { ticks += 1 } }

# Stands for a library that waits in its own way and knows nothing of fibers.
def slow_digest(text, seconds = 0.1)
  IO.select(nil, nil, nil, seconds)
  Digest::SHA256.hexdigest(text)[0, 8]
end

pool = Polyphony::ThreadPool.new(2)
digests = %w[one two three four].map { |text| spin { "#{text}: #{pool.process { slow_digest(text) }}" } }
puts Fiber.await(digests)
clock.stop
puts "the clock went on: #{ticks.positive?}"

begin
  pool.process { Integer('not a number') }
rescue ArgumentError => e
  puts "process: #{e.message}"
end

begin
  pool.cast { raise 'nobody waits for this' }
  sleep 10
rescue RuntimeError => e
  puts "cast: #{e.message}"
end

given_up = move_on_after(0.02, with_value: 'given up') { pool.process { slow_digest('five', 0.5) } }
puts "with a limit: #{given_up}, the pool is busy: #{pool.busy?}"
pool.stop
puts "then: #{pool.busy?}"
