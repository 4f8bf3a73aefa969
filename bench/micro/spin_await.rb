# frozen_string_literal: true

Bench.row 'spin_await' do
  title 'spin + await, empty fiber'
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
end
