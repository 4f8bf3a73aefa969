# frozen_string_literal: true

require_relative '../support/slow_http'

# With 200 that wait 50 ms each, 4,000 answers a second would be all there are.
Bench.row 'net_http' do
  title 'Net::HTTP, 200 at once, server takes 50 ms'
  metric :rate, 'req/s', better: :higher, ratio: 1, peer: 1
  metric :cpu, 'us CPU/req', ratio: 1, peer: 1
  rounds_of 5
  no_warm_up

  limit('Thread', 10) { |n| Bench::SlowHTTP.measure(n) { |clients| clients.map { |client| Thread.new(&client) }.each(&:join) } }

  polyphony(10) { |n| Bench::SlowHTTP.measure(n) { |clients| Fiber.await(*clients.map { |client| spin(&client) }) } }

  peer('async', 10) do |n|
    require 'async'
    Bench::SlowHTTP.measure(n) { |clients| Async { |task| clients.map { |client| task.async { client.call } }.each(&:wait) } }
  end

  peer('carbon_fiber', 10) do |n|
    require 'carbon_fiber'
    Bench::SlowHTTP.measure(n) { |clients| in_scheduler(CarbonFiber::Scheduler, clients) }
  end
end
