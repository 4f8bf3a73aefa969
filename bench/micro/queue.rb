# frozen_string_literal: true

Bench.row 'queue' do
  title 'queue push + shift, nobody waits'
  grows 'items'
  metric :ns, 'ns', ratio: 1.3

  limit('Thread::Queue', 2_000_000) do |n|
    queue = Thread::Queue.new
    measure(n) { n.times { queue.push(1); queue.shift } }
  end

  polyphony(2_000_000) do |n|
    queue = Polyphony::Queue.new
    measure(n) { n.times { queue.push(1); queue.shift } }
  end

  older(200_000) do |n|
    queue = Polyphony::Queue.new
    measure(n) { n.times { queue.push(1); queue.shift } }
  end

  async(200_000) do |n, _task|
    require 'async/queue'
    queue = Async::Queue.new
    measure(n) { n.times { queue.enqueue(1); queue.dequeue } }
  end
end
