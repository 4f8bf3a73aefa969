# frozen_string_literal: true

Bench.row 'timeout' do
  title 'timeout around nothing'
  grows 'timeouts'
  metric :ns, 'ns', ratio: 2, value: 400

  limit('C extension', 1_000_000) do |n|
    require Bench::Native.extension('limit_ext')
    measure(n) { n.times { Limit.timeout(10) {} } }
  end

  polyphony(1_000_000) do |n|
    measure(n) { n.times { Polyphony.backend_timeout(10, nil) {} } }
  end

  older(50_000) { |n| measure(n) { n.times { move_on_after(10) {} } } }
  async(100_000) { |n, task| measure(n) { n.times { task.with_timeout(10) {} } } }

  peer('eventmachine', 100_000) do |n|
    require 'eventmachine'
    figures = nil
    EM.run do
      figures = measure(n) { n.times { EM.cancel_timer(EM.add_timer(10) {}) } }
      EM.stop
    end
    figures
  end
end
