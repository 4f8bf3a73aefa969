# frozen_string_literal: true

Bench.row 'queue_ping_pong' do
  title 'two queues, ping-pong (each)'
  metric :ns, 'ns'
  grows 'items'

  limit('Fiber#transfer', 2_000_000) do |n|
    main = Fiber.current
    other = Fiber.new { |message| loop { message = main.transfer(message) } }
    measure(n) { (n / 2).times { |i| other.transfer(i) } }
  end

  polyphony(400_000) do |n|
    there = Polyphony::Queue.new
    back = Polyphony::Queue.new
    other = spin { loop { back << there.shift } }
    measure(n) { (n / 2).times { |i| there << i; back.shift } }.tap { other.stop }
  end
end
