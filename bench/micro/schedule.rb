# frozen_string_literal: true

# Only the scheduling is timed; the fibers run, and wait again, outside of it.
Bench.row 'schedule' do
  title 'schedule, 1,000 waiting fibers'
  metric :ns, 'ns'
  grows 'wakes'

  limit('Array#push', 4_000_000) do |n|
    fibers = Array.new(1000) { Object.new }
    measure_batches(n, 1000) do
      queue = []
      elapsed { fibers.each { |fiber| queue.push(fiber) } }
    end
  end

  polyphony(1_000_000) do |n|
    fibers = Array.new(1000) { spin { loop { suspend } } }
    snooze
    measure_batches(n, 1000) { elapsed { fibers.each(&:schedule) }.tap { snooze } }
      .tap { fibers.each(&:stop) }
  end
end
