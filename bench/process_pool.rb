# frozen_string_literal: true

# Uneven work, a few long tasks among many short ones, done in four ways in one and the same run: by one process; by
# as many processes as there are cores with a fixed part each; with parts that are even, as nobody knows beforehand, which is
# what the cores can do; and by a Polyphony::ProcessPool of that many.
#
#   ruby -Ilib bench/process_pool.rb [cores]      2 without a number
#
#   BENCH_ROUNDS=3    rounds; the best of each way counts
#   BENCH_SCALE=0.1   shorter (or longer) tasks

$LOAD_PATH << File.expand_path('../lib', __dir__)
require 'polyphony'

CORES = Integer(ARGV.fetch(0, '2'))
ROUNDS = Integer(ENV.fetch('BENCH_ROUNDS', '3'))
SCALE = Float(ENV.fetch('BENCH_SCALE', '1'))
# The long ones are together, as in a list that is sorted by size or date.
TURNS = ([600_000] * 16 + [6_000] * 384).map { |turns| (turns * SCALE).to_i }.freeze

def compute(turns)
  value = 1
  turns.times { value = (value * 48_271) % 2_147_483_647 }
  value
end

def measure
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  result = yield
  [Process.clock_gettime(Process::CLOCK_MONOTONIC) - start, result]
end

# Each process gets its part at once, and sends what it has found through a pipe.
def in_parts(parts)
  running = parts.map do |part|
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.write(Marshal.dump(part.map { |turns| compute(turns) }))
      writer.close
      exit!(0)
    end
    writer.close
    [pid, reader]
  end
  running.map { |pid, reader| Marshal.load(reader.read).tap { reader.close; Process.wait(pid) } }
end

def fixed
  TURNS.each_slice((TURNS.size / CORES.to_f).ceil).to_a
end

def even
  TURNS.each_slice(CORES).to_a.tap { |rows| rows.last.fill(0, rows.last.size...CORES) }.transpose
end

pool = Polyphony::ProcessPool.new(CORES, compute: method(:compute))
ways = {
  'one process' => -> { TURNS.map { |turns| compute(turns) } },
  'fixed parts' => -> { in_parts(fixed).flatten },
  'even parts' => -> { in_parts(even).transpose.flatten.first(TURNS.size) },
  'process pool' => -> { pool.map(TURNS, :compute) }
}
best = Hash.new(Float::INFINITY)
ROUNDS.times do
  results = ways.map do |name, way|
    seconds, result = measure(&way)
    best[name] = [best[name], seconds].min
    result
  end
  raise 'the ways differ' unless results.uniq.size == 1
end
stolen = pool.stats[:stolen]
# Where others are busy, too, the wall tells little: what the parent does for a task, and how even the parts are.
cpu = lambda do |pid|
  stat = "/proc/#{pid}/stat"
  File.exist?(stat) ? File.read(stat).sub(/\(.*\)/, '').split.values_at(11, 12).sum(&:to_i) * 10 : 0
end
pids = pool.stats[:pids]
before = pids.map(&cpu)
own = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
pool.map(TURNS, :compute)
own = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - own
parts = pids.map(&cpu).zip(before).map { |after, start| after - start }
pool.stop

ways.each_key { |name| puts format('%-14s %8.1f ms', name, best[name] * 1000) }
puts format('over one process: %.2f (wanted: 1.8 on 2 cores)', best['one process'] / best['process pool'])
puts format('over fixed parts: %.2f (wanted: 1.5)', best['fixed parts'] / best['process pool'])
puts format('over even parts:  %.2f (they are the limit)', best['even parts'] / best['process pool'])
puts "stolen: #{stolen} of #{TURNS.size * ROUNDS}"
puts format('CPU: %.0f us a task in the parent; workers %s ms', own / TURNS.size * 1e6, parts.join(' and '))
