# frozen_string_literal: true

# Time limits: one that is kept, one that is not, an inner and an outer one, and one that begins
# again whenever something happens.
#   ruby -Ilib examples/timeouts.rb
require 'polyphony'

puts "in time:   #{move_on_after(1) { sleep 0.01; :finished }}"
puts "too slow:  #{move_on_after(0.05, with_value: :gave_up) { sleep 10 }}"

result = move_on_after(1, with_value: :outer) do
  move_on_after(0.05, with_value: :inner) { sleep 10 }
end
puts "nested:    #{result} limit was over first"

begin
  cancel_after(0.05, with_exception: [IOError, 'nobody answers']) { sleep 10 }
rescue IOError => e
  puts "an error:  #{e.message}"
end

pipe = Polyphony.pipe
spin { 5.times { |i| sleep 0.04; pipe << i.to_s } }
received = +''
move_on_after(0.1) do |idle|
  loop do
    received << pipe.readpartial(100)
    idle.reset # nothing for 0.1 seconds ends it, not 0.1 seconds in all
  end
end
puts "idle time: received #{received}, then silence"
