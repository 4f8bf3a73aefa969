# frozen_string_literal: true

Bench.row 'threads_ping_pong' do
  title 'messages across threads, there and back (each)'
  metric :ns, 'ns'
  grows 'messages'

  limit('Thread::Queue', 20_000) do |n|
    there = Thread::Queue.new
    back = Thread::Queue.new
    other = Thread.new { loop { back << there.shift } }
    measure(n, clock: Bench::Worker::WALL) { (n / 2).times { |i| there << i; back.shift } }.tap { other.kill.join }
  end

  polyphony(20_000) do |n|
    main = Fiber.current
    other = Thread.new { loop { main << receive } }
    measure(n, clock: Bench::Worker::WALL) { (n / 2).times { |i| other << i; receive } }.tap { other.kill.join }
  end
end
