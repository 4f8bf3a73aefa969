# frozen_string_literal: true

# What tee(1) does: what comes in goes to a file and on to the output, and never through Ruby's
# memory. Without input of your own it makes some. Linux only.
#   echo hello | ruby -Ilib examples/tee.rb -    or    ruby -Ilib examples/tee.rb
require 'polyphony'
require 'tempfile'

input = Polyphony.pipe
output = Polyphony.pipe
file = Tempfile.new('tee')

spin(:source) do
  if ARGV.first == '-'
    Polyphony.backend_splice($stdin, input, -65_536)
  else
    3.times { |i| input << "line #{i}\n"; sleep 0.02 }
  end
  input.close
end

printer = spin(:printer) do
  output.read_loop { |chunk| $stdout.write(chunk) }
end

# First a copy to the output, then the same bytes, which are still there, to the file.
loop do
  count = output.tee_from(input, 65_536)
  break if count.zero?

  count -= Polyphony.backend_splice(input, file, count) while count.positive?
end
output.close
printer.await
puts "the file has #{File.size(file.path)} bytes"
file.close!
