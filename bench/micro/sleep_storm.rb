# frozen_string_literal: true

# Fibers that sleep from +from+ seconds to +span+ more, and how late they wake. They exist and have their stacks before the clock starts: it is
# about timers.
storms = proc do |count, from, span|
  metric :early, 'early', value: 0
  metric :lost, 'lost', value: 0
  rounds_of 3
  no_warm_up

  polyphony(count) do |n|
    random = Random.new(42)
    late = []
    fibers = Array.new(n) do
      duration = from + random.rand * span
      spin do
        suspend
        deadline = now + duration
        sleep duration
        late << now - deadline
      end
    end
    snooze
    GC.start # what was needed to make them
    fibers.each(&:schedule)
    move_on_after(30) { fibers.each(&:await) }
    late.sort!
    { p50: late[late.size / 2] * 1e3, p99: late[late.size * 99 / 100] * 1e3,
      early: late.count(&:negative?), lost: n - late.size }
  end
end

Bench.row 'sleep_storm' do
  title '30,000 sleeps within 1 s: late'
  metric :p50, 'ms p50'
  metric :p99, 'ms p99', value: 10
  grows 'sleeps'
  limit('C, heap and epoll', 30_000) { |n| native('sleep_storm', n) }
  instance_exec(30_000, 0, 1, &storms)
end

# All are asleep before the first one is due. The limit is C with one heap and what the driver waits with: io_uring, or epoll_wait, which counts
# in milliseconds.
Bench.row 'sleep_storm_100000' do
  title '100,000 sleeps at once: late'
  metric :p50, 'ms p50'
  metric :p99, 'ms p99', ratio: 2
  mappings 220_000 # two for each fiber
  limit('C, heap and io_uring', 100_000, driver: 'io_uring') { |n| native('sleep_storm', n, 4, 3, 'uring') }
  limit('C, heap and epoll_wait', 100_000, driver: 'libev') { |n| native('sleep_storm', n, 4, 3, 'epoll') }
  beside('C, heap and epoll_pwait2', 100_000) { |n| native('sleep_storm', n, 4, 3, 'pwait2') }
  instance_exec(100_000, 4, 3, &storms)
end
