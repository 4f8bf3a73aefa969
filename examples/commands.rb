# frozen_string_literal: true

# Commands run side by side, each in a fiber of its own, while a clock ticks: their output, their statuses, one
# that takes too long, and a child that is ended with the fiber which watches it.
#   ruby -Ilib examples/commands.rb
require 'polyphony'
require 'open3'

ticks = 0
spin(:clock) { every(0.005) { ticks += 1 } }

jobs = {
  'backticks' => -> { `sleep 0.05; echo hello`.chomp },
  'system'    => -> { system('sleep 0.05; exit 3') },
  'popen'     => -> { IO.popen('tr a-z A-Z', 'r+') { |io| io << 'shout'; io.close_write; io.read } },
  'open3'     => -> { Open3.capture3('cat; echo oops >&2', stdin_data: 'in').first(2).map(&:chomp) },
  'fork'      => -> { Process.wait2(fork { sleep 0.05; exit!(5) }).last.exitstatus }
}

# $? is each fiber's own, whatever the others run meanwhile.
fibers = jobs.map { |name, job| spin { "#{name}: #{job.call.inspect}, #{$?&.exitstatus.inspect}" } }
puts fibers.map(&:await)
puts "the clock ticked meanwhile: #{ticks > 3}"

# A time limit ends the wait, not the child: its status is there for the next wait.
pid = spawn('sleep 0.05; exit 7')
puts "in time: #{move_on_after(0.01) { Process.wait(pid) }.inspect}"
puts "later: #{Process.wait2(pid).last.exitstatus}"

# watch ends the child, too.
move_on_after(0.05) { Polyphony::Process.watch('exec sleep 60') }
puts "watched: ended by signal #{$?.termsig}"

# Nobody is left behind.
puts "children left: #{Process.waitall.size}"
