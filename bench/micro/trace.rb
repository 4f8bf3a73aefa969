# frozen_string_literal: true

# The same switches as in the row "switch", while a trace is made: see docs/decisions/080-timelines.md.
Bench.row 'trace' do
  title 'switch, 2 fibers, traced'
  metric :ns, 'ns'

  limit('Fiber#transfer', 2_000_000) do |n|
    main = Fiber.current
    other = Fiber.new { loop { main.transfer } }
    measure(n) { (n / 2).times { other.transfer } }
  end

  polyphony(2_000_000) do |n|
    other = spin { loop { snooze } }
    Polyphony::Trace.start
    measure(n) { (n / 2).times { snooze } }.tap { Polyphony::Trace.stop; other.stop }
  end
end
