# frozen_string_literal: true

# Records of ten bytes, read by somebody who forgets that reads may be short, and by somebody who does not, while operations go wrong
# by chance.
#
#   ruby -Ilib examples/faults.rb

require 'polyphony/testing'
require 'socket'

RECORDS = Array.new(200) { |i| format('%010d', i) }

# What the block reads, one by one, while another fiber writes.
def received
  left, right = UNIXSocket.pair
  spin { RECORDS.each { |record| left << record } }
  Array.new(RECORDS.size) { yield right } == RECORDS
end

def forgetful(socket)
  socket.readpartial(10)
end

def careful(socket)
  socket.read(10)
end

puts "forgetful, by daylight: #{received { |socket| forgetful(socket) }}"
Polyphony::Testing.faults(short_read: 0.2, short_write: 0.2, eintr: 0.1, seed: 7) do |faults|
  puts "forgetful, with faults: #{received { |socket| forgetful(socket) }}"
  puts "careful, with faults:   #{received { |socket| careful(socket) }}"
  puts "faults: #{faults.counts.keys.join(', ')}; all happened: #{faults.counts.values.all?(&:positive?)}"
end
