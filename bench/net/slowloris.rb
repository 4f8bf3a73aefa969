# frozen_string_literal: true

# Slowloris: thousands of clients that send a header line every so often and never come to an end, while wrk asks as
# usual. With room for all of them, and with the default limits, where they have to make room.
#
#   ruby bench/net/slowloris.rb [5000] [seconds]      POLYPHONY_BACKEND=io_uring|libev

require 'open3'
require_relative 'crowd'

count = Integer(ARGV.fetch(0, '5000'))
seconds = Integer(ARGV.fetch(1, '10'))
Bench::Crowd.raise_limit

# @return [String] what wrk says
def wrk(port, seconds)
  output, = Open3.capture2e('wrk', '-t1', '-c64', "-d#{seconds}s", '--latency', '--timeout', '20s', "http://127.0.0.1:#{port}/")
  rate = output[%r{Requests/sec:\s+([\d.]+)}, 1].to_f.round
  late = output[/99%\s+(\S+)/, 1]
  errors = output[/Socket errors: .*/] || 'no errors'
  "#{rate} requests/s, 99% within #{late}, #{errors}"
end

# Sends a line on each of them, again and again.
def drip(crowd)
  Thread.new do
    lines = 0
    loop do
      crowd.each { |socket| socket.write_nonblock("X-#{lines += 1}: y\r\n", exception: false) rescue nil } # rubocop:disable Style/RescueModifier
      sleep 2
    end
  end
end

{ 'room for all' => { 'connections' => count + 1_000 }, 'default limits' => {} }.each do |name, limits|
  crowd = Bench::Crowd.new(limits)
  quiet = wrk(crowd.port, [seconds / 2, 2].max)
  crowd.connect(count) { |socket| socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n") }
  dripping = drip(crowd)
  attacked = wrk(crowd.port, seconds)
  puts "#{name}: #{count} slow clients, driver #{ENV.fetch('POLYPHONY_BACKEND', 'auto')}", "  before: #{quiet}", "  during: #{attacked}",
       "  memory: #{crowd.memory / 1024} MB; #{crowd.alive} of them are left"
ensure
  dripping&.kill
  crowd&.stop
end
