# frozen_string_literal: true

# As many fibers as there is work: the cost of a switch must not depend on how many there are.
Bench.row 'switch_crowd' do
  title 'switch, 10,000 fibers'
  grows 'fibers'
  metric :ns, 'ns', ratio: 1.6

  turns = ->(n) { [500_000 / n, 20].max }

  limit('Fiber#transfer', 10_000) do |n|
    ring = [Fiber.current]
    (n - 1).times { |i| ring << Fiber.new { loop { ring[(i + 2) % n].transfer } } }
    ring[1].transfer
    measure(n * turns[n]) { turns[n].times { ring[1].transfer } }
  end

  polyphony(10_000) do |n|
    others = Array.new(n - 1) { spin { loop { snooze } } }
    snooze
    measure(n * turns[n]) { turns[n].times { snooze } }.tap { others.each(&:stop) }
  end
end
