# frozen_string_literal: true

# A drifting loop would end later by what each tick cost; one that misses ticks, by those. +late+ is
# when the last tick came after its due time, which the cost of the last may add to.
Bench.row 'every' do
  title '1,000 ticks of 1 ms: the last one'
  metric :late, 'ms late', value: 1
  metric :early, 'early', value: 0
  rounds_of 3
  no_warm_up

  limit('sleep to a grid', 1000) do |n|
    early = 0
    started = now
    1.upto(n) do |tick|
      left = started + tick * 0.001 - now
      sleep left if left.positive?
      early += 1 if now < started + tick * 0.001
    end
    { late: (now - started) * 1e3 - n, early: early }
  end

  polyphony(1000) do |n|
    ticks = early = 0
    started = now
    every(0.001) do
      ticks += 1
      early += 1 if now < started + ticks * 0.001
      break if ticks == n
    end
    { late: (now - started) * 1e3 - n, early: early }
  end
end
