# frozen_string_literal: true

# The fibers that sleep have begun to; their timers are all due before the one that is measured,
# and after it, in equal parts. +flat+ compares with the same without them, in the same process.
Bench.row 'timeout_10000' do
  title 'timeout, 10,000 timers pending'
  metric :ns, 'ns', ratio: 2
  metric :flat, 'x without them', value: 1.3

  limit('C extension', 1_000_000) do |n|
    require Bench::Native.extension('limit_ext')
    alone = measure(n) { n.times { Limit.timeout(500) {} } }[:ns]
    10_000.times { |i| Limit.arm(100 + i * 0.08) }
    pending = measure(n) { n.times { Limit.timeout(500) {} } }[:ns]
    { ns: pending, flat: pending / alone }
  end

  polyphony(1_000_000) do |n|
    alone = measure(n) { n.times { Polyphony.backend_timeout(500, nil) {} } }[:ns]
    fibers = Array.new(10_000) { |i| spin { sleep(100 + i * 0.08) } }
    snooze
    pending = measure(n) { n.times { Polyphony.backend_timeout(500, nil) {} } }[:ns]
    fibers.each(&:stop)
    snooze
    { ns: pending, flat: pending / alone }
  end
end
