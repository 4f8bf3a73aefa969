# frozen_string_literal: true

# Ten downloads, at most three at a time. Two are slow and are given up; their places go to the next.
#   ruby -Ilib examples/downloads.rb
require 'polyphony'

GATE = Polyphony::Semaphore.new(3)
inside = 0
most = 0

# Stands for a request over the network.
def fetch(number)
  sleep(number % 5 == 4 ? 10 : 0.02)
  "page #{number}"
end

downloads = Array.new(10) do |number|
  spin do
    GATE.synchronize do
      most = [most, inside += 1].max
      move_on_after(0.1) { fetch(number) }
    ensure
      inside -= 1
    end
  end
end

pages = Fiber.await(downloads)
puts "fetched: #{pages.compact.size}"
puts "given up: #{pages.count(nil)}"
puts "most at a time: #{most}"

# Somebody who cannot wait long asks for a place with a time limit of its own.
3.times { spin { GATE.synchronize { sleep 1 } } }
snooze
puts "a place within 0.05 seconds: #{GATE.acquire(timeout: 0.05)}"
