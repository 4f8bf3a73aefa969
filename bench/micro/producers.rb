# frozen_string_literal: true

Bench.row 'producers' do
  title 'a queue, 10 producers and 10 consumers (an item)'
  grows 'items'
  metric :ns, 'ns', peer: 1

  limit('Thread::Queue', 200_000) do |n|
    queue = Thread::Queue.new
    each = [n / 10, 1].max
    bodies = [-> { each.times { queue << 1 } }, -> { each.times { queue.shift } }] * 10
    measure(each * 10, clock: Bench::Worker::WALL) { bodies.map { |body| Thread.new(&body) }.each(&:join) }
  end

  ours = lambda do |worker, n|
    queue = Polyphony::Queue.new
    each = [n / 10, 1].max
    bodies = [-> { each.times { queue << 1 } }, -> { each.times { queue.shift } }] * 10
    worker.measure(each * 10, clock: Bench::Worker::WALL) { bodies.map { |body| spin { body.call } }.each(&:await) }
  end
  polyphony(200_000) { |n| ours[self, n] }
  older(100_000) { |n| ours[self, n] }

  async(100_000) do |n, task|
    require 'async/queue'
    queue = Async::Queue.new
    each = [n / 10, 1].max
    bodies = [-> { each.times { queue.enqueue(1) } }, -> { each.times { queue.dequeue } }] * 10
    measure(each * 10, clock: Bench::Worker::WALL) { bodies.map { |body| task.async { body.call } }.each(&:wait) }
  end
end
