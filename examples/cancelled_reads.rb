# frozen_string_literal: true

# Reads that are cut off again and again lose nothing. A peer sends ten thousand numbered bytes; each
# read gets so little time that many end without having read. What comes out is complete.
#   ruby -Ilib examples/cancelled_reads.rb
require 'polyphony'
require 'socket'

BYTES = Array.new(10_000) { |i| i % 256 }.pack('C*')

reader, writer = UNIXSocket.pair
spin(:peer) do
  BYTES.scan(/.{1,50}/mn) { |chunk| Polyphony.backend_write(writer, chunk); sleep 0.0005 }
  writer.close
end

received = +''.b
cut_off = 0
loop do
  chunk = move_on_after(0.0003, with_value: :cut_off) do
    Polyphony.backend_read(reader, nil, 64, false, 0)
  end
  break if chunk.nil?

  chunk == :cut_off ? cut_off += 1 : received << chunk
end

puts "reads that were cut off: #{cut_off.positive? ? 'many' : 'none'}"
puts "bytes received: #{received.bytesize}"
puts "all there, in order: #{received == BYTES}"
