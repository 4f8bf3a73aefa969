# frozen_string_literal: true

require_relative '../support/echo'

# Ahead of every peer with 64 connections. With a thousand, what counts is how much more a crowd costs us than C: 0.85 of what we have with 64 is
# wanted.
wanted_of = { 64 => [{ 'io_uring' => 0.85, 'libev' => 0.75 }, 1], 1000 => [{ 'io_uring' => 0.85 * 0.85, 'libev' => 0.85 * 0.75 }, nil] }

wanted_of.each do |connections, (limit, peer)|
  Bench.row "echo_#{connections}" do
    title "TCP echo, #{connections} connections"
    metric :rate, 'req/s', better: :higher, ratio: limit, peer: peer
    metric :cpu, 'us CPU/req'
    metric :p999, 'us p99.9', ratio: 2
    metric :all, 'ms until all were answered'
    metric :starved, 'starved', value: 0
    rounds_of 3
    no_warm_up

    # Per mille of a second: half a second of counted answers.
    limit('C, io_uring', 500, driver: 'io_uring') do |ms|
      Bench::Echo.measure(Bench::Echo.native('echo_uring'), connections, ms / 1000.0)
    end

    limit('C, epoll', 500, driver: 'libev') do |ms|
      Bench::Echo.measure(Bench::Echo.native('echo_epoll'), connections, ms / 1000.0)
    end

    polyphony(500) { |ms| Bench::Echo.measure(Bench::Echo.ours, connections, ms / 1000.0) }

    %w[polyphony-1.6-io_uring polyphony-1.6-libev async eventmachine nio4r carbon_fiber uringmachine].each do |name|
      peer(name, 500) { |ms| Bench::Echo.measure(Bench::Echo.with(name[/[a-z_]+(4r)?/]), connections, ms / 1000.0) }
    end
    beside('Thread', 500) { |ms| Bench::Echo.measure(Bench::Echo.with('Thread'), connections, ms / 1000.0) }
  end
end

# The same by the number of connections: what they cost when there are more of them.
Bench.row 'echo_crowd' do
  title 'TCP echo, 1,000 connections: what a request costs'
  metric :cpu, 'us CPU/req'
  grows 'connections'
  rounds_of 3
  no_warm_up

  limit('C, io_uring', 1000, driver: 'io_uring') { |n| Bench::Echo.measure(Bench::Echo.native('echo_uring'), n, 0.5) }
  limit('C, epoll', 1000, driver: 'libev') { |n| Bench::Echo.measure(Bench::Echo.native('echo_epoll'), n, 0.5) }
  polyphony(1000) { |n| Bench::Echo.measure(Bench::Echo.ours, n, 0.5) }
end
