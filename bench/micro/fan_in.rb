# frozen_string_literal: true

# A hundred senders take turns, one message each time; how many there are is known beforehand.
Bench.row 'fan_in' do
  title 'messages, 100 to 1 (each)'
  grows 'messages'
  metric :ns, 'ns', ratio: 2

  limit('Fiber#transfer and an Array', 1_000_000) do |n|
    box = []
    ring = [Fiber.current]
    100.times { |i| ring << Fiber.new { loop { box.push(i); ring[(i + 2) % 101].transfer } } }
    measure(n) do
      (n / 100).times do
        ring[1].transfer
        box.shift until box.empty?
      end
    end
  end

  polyphony(500_000) do |n|
    main = Fiber.current
    turns = [n / 100, 1].max
    100.times { |i| spin { turns.times { main << i; snooze } } }
    measure(turns * 100) { (turns * 100).times { receive } }
  end

  beside('Thread::Queue, 100 threads', 20_000) do |n|
    box = Thread::Queue.new
    senders = Array.new(100) { |i| Thread.new { loop { box << i; Thread.pass } } }
    measure(n, clock: Bench::Worker::WALL) { n.times { box.shift } }.tap { senders.each(&:kill).each(&:join) }
  end

  older(50_000) do |n|
    main = Fiber.current
    turns = [n / 100, 1].max
    100.times { |i| spin { turns.times { main << i; snooze } } }
    measure(turns * 100) { (turns * 100).times { receive } }
  end
end
