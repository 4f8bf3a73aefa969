# frozen_string_literal: true

# The fibers exist and have their stacks before the clock starts: it is about timers.
Bench.row 'sleep_storm' do
  title '30,000 sleeps within 1 s: late'
  metric :p50, 'ms p50'
  metric :p99, 'ms p99', value: 10
  metric :early, 'early', value: 0
  metric :lost, 'lost', value: 0
  rounds_of 3
  no_warm_up

  limit('C, heap and epoll', 30_000) { |n| native('sleep_storm', n) }

  polyphony(30_000) do |n|
    random = Random.new(42)
    late = []
    fibers = Array.new(n) do
      duration = random.rand
      spin do
        suspend
        deadline = now + duration
        sleep duration
        late << now - deadline
      end
    end
    snooze
    fibers.each(&:schedule)
    sleep 2 # the longest one has had a second to be late
    late.sort!
    { p50: late[late.size / 2] * 1e3, p99: late[late.size * 99 / 100] * 1e3,
      early: late.count(&:negative?), lost: n - late.size }
  end
end
