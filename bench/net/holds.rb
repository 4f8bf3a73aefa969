# frozen_string_literal: true

# How much memory an idle keep-alive connection takes, with ten thousand of them in one worker, and whether others
# are served meanwhile.
#
#   ruby bench/net/holds.rb [10000]      POLYPHONY_BACKEND=io_uring|libev

require_relative 'crowd'

count = Integer(ARGV.fetch(0, '10000'))
abort "#{count} connections need more descriptors than #{Bench::Crowd.raise_limit}" if Bench::Crowd.raise_limit < count + 100

crowd = Bench::Crowd.new('connections' => count + 100, 'keep_alive' => 600)
begin
  200.times { crowd.ask }
  before = crowd.memory
  took = crowd.now
  crowd.connect(count) do |socket|
    socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    raise 'no answer' unless socket.readpartial(1_000).start_with?('HTTP/1.1 200')
  end
  took = crowd.now - took
  held = crowd.memory
  cpu = crowd.cpu
  asked = Array.new(100) { crowd.ask }.sort
  sleep 2
  idle = crowd.cpu - cpu
  alive = crowd.alive
  crowd.leave
  sleep 0.05 until crowd.ask < 0.1
  fiber = Bench::Crowd.fiber(count)
  each = (held - before) / count.to_f

  puts "driver: #{ENV.fetch('POLYPHONY_BACKEND', 'auto')}, connections: #{count}, opened and answered in #{took.round(1)} s",
       format('memory: %.1f MB before, %.1f MB with them, %.1f MB when they were gone', before / 1024.0, held / 1024.0, crowd.memory / 1024.0),
       format('each: %.1f KB, of which its fiber %.1f KB', each, fiber),
       "alive after that: #{alive} of #{count}",
       format('a fresh request beside them: median %.2f ms, slowest of 100 %.2f ms', asked[50] * 1000, asked.last * 1000),
       format('CPU time for these and two idle seconds: %.2f s', idle)
  exit alive == count
ensure
  crowd.stop
end
