# frozen_string_literal: true

require 'socket'

# Fifty who ask and fifty who answer, a line each time, with stock gets and puts.
Bench.row 'line_echo' do
  title 'gets/puts line echo, 50 socket pairs (a line there and back)'
  metric :ns, 'ns', ratio: 0.8, peer: 0.9
  metric :cpu, 'us CPU', ratio: 0.8, peer: 0.9

  line = "a line of some thirty characters\n"

  # Returns procs: those who answer, and those who ask n lines in all.
  sides = lambda do |n|
    pairs = Array.new(50) { UNIXSocket.pair }
    answer = pairs.map { |_, socket| -> { (got = socket.gets) ? socket.puts(got) : break while true } }
    ask = pairs.map do |socket, _|
      lambda do
        (n / 50).times { socket.puts(line); socket.gets == line or raise 'no answer' }
        socket.close
      end
    end
    answer + ask
  end

  limit('Thread', 20_000) do |n|
    procs = sides.call(n)
    measure_both(n) { procs.map { |side| Thread.new(&side) }.each(&:join) }
  end

  polyphony(20_000) do |n|
    procs = sides.call(n)
    measure_both(n) { Fiber.await(*procs.map { |side| spin(&side) }) }
  end

  peer('async', 20_000) do |n|
    require 'async'
    procs = sides.call(n)
    measure_both(n) { Async { |task| procs.map { |side| task.async { side.call } }.each(&:wait) } }
  end

  peer('carbon_fiber', 20_000) do |n|
    require 'carbon_fiber'
    procs = sides.call(n)
    measure_both(n) { in_scheduler(CarbonFiber::Scheduler, procs) }
  end
end
