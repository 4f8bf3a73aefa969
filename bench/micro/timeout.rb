# frozen_string_literal: true

Bench.row 'timeout' do
  title 'timeout around nothing'
  metric :ns, 'ns', ratio: 2, value: 400

  limit('C extension', 1_000_000) do |n|
    require Bench::Native.extension('limit_ext')
    measure(n) { n.times { Limit.timeout(10) {} } }
  end

  polyphony(1_000_000) do |n|
    measure(n) { n.times { Polyphony.backend_timeout(10, nil) {} } }
  end
end
