# frozen_string_literal: true

# Timers that wait: what one more costs to arm and to cancel.
Bench.row 'timers_pending' do
  title 'timeout beside 30,000 pending ones'
  grows 'pending timers'
  metric :ns, 'ns'
  no_warm_up

  limit('C extension', 30_000) do |n|
    require Bench::Native.extension('limit_ext')
    n.times { |i| Limit.arm(100 + i * 0.01) }
    measure(200_000) { 200_000.times { Limit.timeout(500) {} } }
  end

  polyphony(30_000) do |n|
    n.times { |i| spin { sleep(100 + i * 0.01) } }
    snooze
    measure(200_000) { 200_000.times { Polyphony.backend_timeout(500, nil) {} } }
  end
end
