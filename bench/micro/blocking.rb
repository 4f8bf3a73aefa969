# frozen_string_literal: true

Bench.row 'blocking' do
  title 'Polyphony.blocking, round trip'
  metric :ns, 'ns', ratio: 1.5

  limit('two Queues and a Thread', 30_000) do |n|
    there = Thread::Queue.new
    back = Thread::Queue.new
    worker = Thread.new { while (block = there.pop) do back << block.call end }
    measure(n, clock: Bench::Worker::WALL) { n.times { there << -> {}; back.pop } }.tap { there << nil; worker.join }
  end

  polyphony(30_000) do |n|
    Polyphony.blocking {}
    measure(n, clock: Bench::Worker::WALL) { n.times { Polyphony.blocking {} } }
  end
end
