# frozen_string_literal: true

# Twelve requests from three fibers, fifty a second at most for all of them together; then a loop
# with a rate of its own, and a limit that begins again whenever something happens.
#   ruby -Ilib examples/throttler.rb
require 'polyphony'

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

throttler = Polyphony::Throttler.new(50)
started = now
times = []
fetchers = Array.new(3) { spin { 4.times { throttler.call { times << now - started } } } }
Fiber.await(fetchers)
early = times.each_with_index.count { |time, i| time < i * 0.02 }
puts "requests: #{times.size}, too early: #{early}"

rounds = 0
throttled_loop(interval: 0.01, count: 5) { rounds += 1 }
puts "rounds: #{rounds}"

poller = spin_loop(:poller, rate: 100) { rounds += 1 }
sleep 0.05
poller.stop
puts "the poller went on: #{rounds > 5}"

timer = Polyphony::Timer.new(resolution: 0.01)
messages = 0
timer.move_on_after(0.4) do
  8.times { sleep 0.02; messages += 1; timer.reset }
  sleep # silence
end
puts "messages before silence: #{messages}"
