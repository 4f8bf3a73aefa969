# frozen_string_literal: true

# Three workers take jobs from a queue that holds two, so whoever makes jobs waits for them. One
# sees that no worker is idle, and that ten jobs of 0.1 seconds take about 0.4.
#   ruby -Ilib examples/worker_pool.rb
require 'polyphony'

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

jobs = Polyphony::Queue.new(2)
done = Hash.new(0)
started = now

workers = Array.new(3) do |i|
  spin(:"worker#{i}") do
    while jobs.shift
      sleep 0.1 # a query, a request
      done[i] += 1
    end
  rescue ClosedQueueError
    # there are no more
  end
end

10.times { |n| jobs << n + 1 }
jobs.close
Fiber.await(workers)

puts "jobs done: #{done.values.sum}"
puts "workers that did some: #{done.size}"
puts format('seconds: %.1f', now - started)
