# frozen_string_literal: true

Bench.row 'ping_pong' do
  title 'messages, ping-pong (each)'
  grows 'messages'
  metric :ns, 'ns', ratio: 2

  limit('Fiber#transfer', 2_000_000) do |n|
    main = Fiber.current
    other = Fiber.new { |message| loop { message = main.transfer(message) } }
    measure(n) { (n / 2).times { |i| other.transfer(i) } }
  end

  polyphony(400_000) do |n|
    main = Fiber.current
    other = spin { loop { main << receive } }
    measure(n) { (n / 2).times { |i| other << i; receive } }.tap { other.stop }
  end

  beside('Thread::Queue, 2 threads', 20_000) do |n|
    there = Thread::Queue.new
    back = Thread::Queue.new
    other = Thread.new { loop { back << there.shift } }
    measure(n, clock: Bench::Worker::WALL) { (n / 2).times { |i| there << i; back.shift } }.tap { other.kill.join }
  end

  older(100_000) do |n|
    main = Fiber.current
    other = spin { loop { main << receive } }
    measure(n) { (n / 2).times { |i| other << i; receive } }.tap { other.stop }
  end

  async(20_000) do |n, task|
    require 'async/queue'
    there = Async::Queue.new
    back = Async::Queue.new
    other = task.async { loop { back.enqueue(there.dequeue) } }
    measure(n) { (n / 2).times { |i| there.enqueue(i); back.dequeue } }.tap { other.stop }
  end
end
