# frozen_string_literal: true

Bench.row 'switch' do
  title 'switch, 2 fibers'
  grows 'switches'
  metric :ns, 'ns', ratio: 1.3

  limit('Fiber#transfer', 2_000_000) do |n|
    main = Fiber.current
    other = Fiber.new { loop { main.transfer } }
    measure(n) { (n / 2).times { other.transfer } }
  end

  polyphony(2_000_000) do |n|
    other = spin { loop { snooze } }
    measure(n) { (n / 2).times { snooze } }.tap { other.stop }
  end

  beside('Thread.pass', 40_000) do |n|
    other = Thread.new { loop { Thread.pass } }
    measure(n, clock: Bench::Worker::WALL) { (n / 2).times { Thread.pass } }.tap { other.kill.join }
  end

  older(400_000) do |n|
    other = spin { loop { snooze } }
    measure(n) { (n / 2).times { snooze } }.tap { other.stop }
  end

  async(200_000) do |n, task|
    other = task.async { |inner| loop { inner.yield } }
    measure(n) { (n / 2).times { task.yield } }.tap { other.stop }
  end

  peer('libev_scheduler', 200_000) do |n|
    require 'libev_scheduler'
    measure(n) { in_scheduler(Libev::Scheduler, [-> { (n / 2).times { sleep 0 } }] * 2) }
  end

  carbon_fiber(200_000) { |n| [n, [-> { (n / 2).times { sleep 0 } }] * 2] }
  uringmachine(400_000) { |n, machine| [n, [-> { (n / 2).times { machine.snooze } }] * 2] }

  peer('eventmachine', 100_000) do |n|
    require 'eventmachine'
    left = n
    step = proc { (left -= 1).positive? ? EM.next_tick(step) : EM.stop }
    measure(n) { EM.run { step.call } }
  end
end
