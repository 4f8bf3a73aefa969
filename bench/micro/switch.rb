# frozen_string_literal: true

Bench.row 'switch' do
  title 'switch, 2 fibers'
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
end
