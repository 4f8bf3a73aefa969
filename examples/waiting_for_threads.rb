# frozen_string_literal: true

# Threads are sent messages and waited for while a fiber of the main thread goes on. One is asked to
# end; another computes for too long, and a limit ends it.
#   ruby -Ilib examples/waiting_for_threads.rb
require 'polyphony'

ticks = 0
clock = spin { loop { sleep 0.005; ticks += 1 } }

# join gives the thread, value and await what its block returned; each raises what it ended with.
adder = Thread.new { sleep 0.03; receive + receive }
adder << 40 << 2
puts "after 10 ms: #{adder.join(0.01).inspect}"
puts "the sum:     #{adder.value}"
puts "the clock ticked meanwhile: #{ticks.positive?}"

broken = Thread.new do
  Thread.current.report_on_exception = false
  raise IOError, 'the disk is full'
end
begin
  broken.join
rescue IOError => e
  puts "an error:    #{e.message}"
end

# kill_safe asks the main fiber of a thread to end, where it waits.
worker = Thread.new do
  spin { every(0.005) { nil } }
  receive_loop { |job| job.call }
ensure
  puts 'the worker tidies up'
end
done = Polyphony::Event.new
worker << -> { done.signal(:job) }
puts "the worker:  did a #{done.await}"
worker.kill_safe
worker.join

begin
  Timeout.timeout(0.05) { loop { Math.sqrt(rand) } }
rescue Timeout::Error => e
  puts "a limit:     #{e.message}"
end
clock.stop
