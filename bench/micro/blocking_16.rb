# frozen_string_literal: true

# 16 fibers, each of which has one block after the other run in a thread: what a call costs when there is always another one to do. The limit is a
# bounded set of stock threads with a queue, which 16 stock threads wait for.
Bench.row 'blocking_16' do
  title 'Polyphony.blocking, 16 fibers: a call'
  metric :ns, 'ns', value: 7000
  grows 'calls'

  limit('16 Threads, a Queue and 4 Threads', 32_000) do |n|
    there = Thread::Queue.new
    workers = Array.new(4) { Thread.new { while (job = there.pop) do job.last << job.first.call end } }
    callers = proc do
      Array.new(16) { Thread.new { back = Thread::Queue.new; (n / 16).times { there << [-> {}, back]; back.pop } } }.each(&:join)
    end
    measure(n, clock: Bench::Worker::WALL, &callers).tap { 4.times { there << nil }; workers.each(&:join) }
  end

  polyphony(32_000) do |n|
    Polyphony.blocking {}
    measure(n, clock: Bench::Worker::WALL) { Array.new(16) { spin { (n / 16).times { Polyphony.blocking {} } } }.each(&:await) }
  end
end
