# frozen_string_literal: true

# A transfer of money in two steps. Whoever stops it half-way must not see it half done.
#   ruby -Ilib examples/shield.rb
require 'polyphony'

ACCOUNTS = { ann: 100, bob: 0 }

def transfer(amount)
  shield do
    ACCOUNTS[:ann] -= amount
    sleep 0.02 # the bank is slow
    ACCOUNTS[:bob] += amount
  end
end

clerk = spin(:clerk) do
  loop { transfer(10) }
ensure
  puts "the clerk goes home: #{ACCOUNTS}"
end

sleep 0.05
puts "closing time: #{ACCOUNTS.values.sum} on the books"
clerk.stop
clerk.await
puts "after it: #{ACCOUNTS.values.sum}"

puts "a limit around it: #{move_on_after(0.01, with_value: 'over') { transfer(10) }}"
puts "and still: #{ACCOUNTS.values.sum}"
