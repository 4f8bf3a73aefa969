# frozen_string_literal: true

# Traces a kitchen: a cook, two waiters, one oven. Tells who waited how long for what, and writes a page for the browser if
# a file is named: ruby examples/trace.rb out.html

require 'polyphony'

oven = Polyphony::Mutex.new
orders = Polyphony::Queue.new
dishes = Polyphony::Queue.new

trace = Polyphony.trace(ARGV[0]) do
  spin(:cook) { 6.times { order = orders.shift; oven.synchronize { sleep 0.005 }; dishes << order } }
  spin(:baker) { 3.times { oven.synchronize { sleep 0.01 } } }
  2.times { |n| spin(:"waiter #{n}") { 3.times { |table| orders << table; dishes.shift } } }
  Fiber.current.await_all_children
end

trace.fibers.select(&:tag).each do |fiber|
  waits = trace.slices.select { |slice| slice.fiber == fiber.id && slice.state == :waiting }
  told = waits.group_by(&:reason).map { |reason, all| format('%<reason>s: %<ms>d ms', reason: reason, ms: all.sum { |one| one.to - one.from } / 1_000_000) }
  puts "#{fiber.tag} waited for #{told.sort.join(', ')}"
end
puts "woken by others: #{trace.arrows.size} times, #{trace.dropped} events lost"
