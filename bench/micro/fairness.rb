# frozen_string_literal: true

# Ten fibers that are always ready beside one that sleeps and one that waits for a pipe.
busy = 10
figures = lambda do |worker, count, there, back|
  late = Array.new(count) { deadline = worker.now + 0.002; sleep 0.002; worker.now - deadline }.sort
  trips = Array.new(count) { worker.elapsed(Bench::Worker::WALL) { there << 'x'; back.readpartial(1) } }.sort
  { late: late[count * 99 / 100] * 1e3, trip: trips[count * 99 / 100] * 1e3 }
end

Bench.row 'fairness' do
  title 'beside 10 busy fibers'
  metric :late, 'ms p99 that a sleep is late', value: 0.1
  metric :trip, 'ms p99 there and back through pipes', value: 0.2
  rounds_of 3
  no_warm_up

  pipes = -> { [IO.pipe, IO.pipe].transpose }

  limit('Thread, nobody busy', 200) do |n|
    (from, back), (there, to) = pipes.call
    Thread.new { loop { to << from.readpartial(1) } }
    figures[self, n, there, back]
  end

  ours = lambda do |worker, n|
    (from, back), (there, to) = pipes.call
    spin { loop { to << from.readpartial(1) } }
    busy.times { spin { loop { snooze } } }
    figures[worker, n, there, back]
  end
  polyphony(200) { |n| ours[self, n] }
  older(100) { |n| ours[self, n] }

  async(100) do |n, task|
    (from, back), (there, to) = pipes.call
    others = [task.async { loop { to << from.readpartial(1) } }, *Array.new(busy) { task.async { |inner| loop { inner.yield } } }]
    figures[self, n, there, back].tap { others.each(&:stop) }
  end
end
