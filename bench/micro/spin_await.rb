# frozen_string_literal: true

Bench.row 'spin_await' do
  title 'spin + await, empty fiber'
  grows 'fibers, one after the other'
  metric :ns, 'ns', ratio: 3

  limit('Fiber.new + resume', 200_000) do |n|
    measure(n) { n.times { Fiber.new {}.resume } }
  end

  polyphony(100_000) do |n|
    measure(n) { n.times { spin {}.await } }
  end

  beside('Thread.new + join', 3_000) do |n|
    measure(n, clock: Bench::Worker::WALL) { n.times { Thread.new {}.join } }
  end

  older(5_000) { |n| measure(n) { n.times { spin {}.await } } }
  async(10_000) { |n, task| measure(n) { n.times { task.async {}.wait } } }
end
