# frozen_string_literal: true

Bench.row 'snooze' do
  title 'snooze, no other fiber'
  metric :ns, 'ns'
  grows 'switches'

  limit('Fiber#transfer to itself', 5_000_000) do |n|
    fiber = Fiber.current
    measure(n) { n.times { fiber.transfer } }
  end

  polyphony(5_000_000) do |n|
    measure(n) { n.times { snooze } }
  end
end
