# frozen_string_literal: true

Bench.row 'switch_1000' do
  title 'switch, 1,000 fibers'
  metric :ns, 'ns', ratio: 1.6
  grows 'switches'

  # A ring: each fiber knows the next one.
  limit('Fiber#transfer', 2_000_000) do |n|
    ring = [Fiber.current]
    999.times { |i| ring << Fiber.new { loop { ring[(i + 2) % 1000].transfer } } }
    measure(n) { (n / 1000).times { ring[1].transfer } }
  end

  polyphony(2_000_000) do |n|
    others = Array.new(999) { spin { loop { snooze } } }
    snooze
    measure(n) { (n / 1000).times { snooze } }.tap { others.each(&:stop) }
  end
end
