# frozen_string_literal: true

# A fiber that is stopped half-way and runs its block again; one that has ended and gets a successor;
# and a third that hears of both ends.
#   ruby -Ilib examples/restart.rb
require 'polyphony'

fiber = spin(:sleeper) do
  puts 'going to sleep'
  sleep 0.1
  puts 'done sleeping'
ensure
  puts 'stopped'
end

sleep 0.05
fiber.stop
fiber.restart
fiber.await

greeter = spin(:greeter) { |name| "hello #{name || 'nobody'}" }
greeter.monitor(Fiber.current)
greeter.await
again = greeter.restart('world')
again.await

Fiber.current.monitor_mailbox.shift_all.each do |ended, result|
  puts "#{ended.tag} ended with #{result.inspect}"
end
puts "the same fiber: #{again.equal?(greeter)}"
