# frozen_string_literal: true

# What a fiber takes that has begun and waits.
Bench.row 'memory' do
  title 'memory of an idle fiber, of 10,000'
  metric :kb, 'KB', value: 14, ratio: 1.2
  grows 'fibers'
  rounds_of 3
  no_warm_up

  limit('Fiber.new, resumed', 10_000) { |n| resident(n) { Array.new(n) { Fiber.new { Fiber.yield }.tap(&:resume) } } }

  polyphony(10_000) do |n|
    resident(n) { Array.new(n) { spin { suspend } }.tap { snooze } }
  end

  older(3_000) { |n| resident(n) { Array.new(n) { spin { suspend } }.tap { snooze } } }
  async(10_000) do |n, task|
    resident(n) { Array.new(n) { task.async { sleep 1000 } }.tap { task.yield } }.tap { task.children.each(&:stop) }
  end

  beside('Thread', 2_000) { |n| resident(n) { Array.new(n) { Thread.new { sleep } }.tap { sleep 0.2 } } }
end
