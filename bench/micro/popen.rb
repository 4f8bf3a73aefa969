# frozen_string_literal: true

# Most of it is the kernel's work: making a hundred processes.
Bench.row 'popen' do
  title 'IO.popen, 100 at once (each)'
  metric :ns, 'ns', ratio: 1, peer: 1
  metric :cpu, 'us CPU without the children', ratio: 1, peer: 1
  no_warm_up

  command = -> { IO.popen(%w[echo hello], &:read) == "hello\n" or raise 'no answer' }

  limit('Thread', 100) do |n|
    measure_both(n) { Array.new(n) { Thread.new(&command) }.each(&:join) }
  end

  polyphony(100) { |n| measure_both(n) { Fiber.await(*Array.new(n) { spin(&command) }) } }

  peer('async', 100) do |n|
    require 'async'
    measure_both(n) { Async { |task| Array.new(n) { task.async { command.call } }.each(&:wait) } }
  end
end
