# frozen_string_literal: true

Bench.row 'mutex' do
  title 'Mutex#synchronize, nobody waits'
  metric :ns, 'ns', ratio: 1.1
  grows 'locks'

  limit('bare Ruby', 1_000_000) { |n| lock = Mutex.new; measure(n) { n.times { lock.synchronize {} } } }
  polyphony(1_000_000) { |n| lock = Mutex.new; measure(n) { n.times { lock.synchronize {} } } }
  older(200_000) { |n| lock = Mutex.new; measure(n) { n.times { lock.synchronize {} } } }
  async(500_000) { |n, _task| lock = Mutex.new; measure(n) { n.times { lock.synchronize {} } } }
end
