# frozen_string_literal: true

# Uneven work, a few long tasks among many short ones, done in four ways in one and the same run: by one process; by
# as many processes as there are cores with a fixed part each; with parts that are even, as nobody knows beforehand, which is
# what the cores can do; and by a Polyphony::ProcessPool of that many.
#
#   ruby -Ilib bench/process_pool.rb [cores]      2 without a number
#
# Where others are busy, too, the time by the clock tells who had the luck. So there is another figure, which is what the clock would
# show if each process had a core: the processor time of the busiest process, or all of it divided by the cores if that is more.
#
#   BENCH_ROUNDS=3    rounds; by the clock the best of each way counts, of processor time the median
#   BENCH_SCALE=0.1   shorter (or longer) tasks, which are printed and not kept
#   BENCH_KEEP=0      only print; else the figures go to bench/results/process_pool-DRIVER.md
#   BENCH_ALONE=1     as if nobody else were there: real-time priority for some seconds, the parent's above that of the
#                     processes that compute, so that it has its turn when one of them waits for it. Takes the administrator, and chrt

$LOAD_PATH << File.expand_path('../lib', __dir__)
require 'polyphony'
require_relative 'support/machine'

CORES = Integer(ARGV.fetch(0, '2'))
ROUNDS = Integer(ENV.fetch('BENCH_ROUNDS', '3'))
SCALE = Float(ENV.fetch('BENCH_SCALE', '1'))
ALONE = ENV['BENCH_ALONE'] == '1'
KEEPS = SCALE == 1 && CORES == 2 && ENV['BENCH_KEEP'] != '0'
FACTS = Bench::Machine.new.facts.freeze
# Milliseconds of the tasks. The long ones are together, as in a list that is sorted by size or date.
LENGTHS = ([30 * SCALE] * 16 + [0.3 * SCALE] * 384).freeze

def compute(turns)
  value = 1
  turns.times { value = (value * 48_271) % 2_147_483_647 }
  value
end

def measure(clock = Process::CLOCK_MONOTONIC)
  start = Process.clock_gettime(clock)
  result = yield
  [Process.clock_gettime(clock) - start, result]
end

# What a task is asked for is turns, so that all ways do the same; how many of them a millisecond has is the machine's.
TURNS_IN_MS = Array.new(5) { 100 / measure(Process::CLOCK_PROCESS_CPUTIME_ID) { compute(100_000) }.first }.max
TURNS = LENGTHS.map { |ms| (ms * TURNS_IN_MS).to_i }.freeze

# Seconds of processor time of the main thread, which is the one that computes.
def used(pid)
  File.read("/proc/#{pid}/schedstat").to_i / 1e9
end

# @return [Array(Array, Array<Float>)] the results, and what each process has used
def measure_processor(pids)
  before = pids.map { |pid| used(pid) }
  result = yield
  [result, pids.map { |pid| used(pid) }.zip(before).map { |now, start| now - start }]
end

def prefer(pid, priority)
  system('chrt', '-f', '-p', priority.to_s, pid.to_s, exception: true) if ALONE
end

# Each process gets its part at once, and sends what it has found through a pipe.
def in_parts(parts)
  running = parts.map do |part|
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      writer.write(Marshal.dump(measure_processor(['self']) { part.map { |turns| compute(turns) } }))
      writer.close
      exit!(0)
    end
    writer.close
    prefer(pid, 5)
    [pid, reader]
  end
  running.map { |pid, reader| Marshal.load(reader.read).tap { reader.close; Process.wait(pid) } }
         .then { |answers| [answers.map(&:first), answers.flat_map(&:last)] }
end

def fixed
  TURNS.each_slice((TURNS.size / CORES.to_f).ceil).to_a
end

def even
  TURNS.each_slice(CORES).to_a.tap { |rows| rows.last.fill(0, rows.last.size...CORES) }.transpose
end

pool = Polyphony::ProcessPool.new(CORES, compute: method(:compute))
pool.stats[:pids].each { |pid| prefer(pid, 5) }
prefer(Process.pid, 10)
ways = {
  'one process' => -> { measure_processor(['self']) { TURNS.map { |turns| compute(turns) } } },
  'fixed parts' => -> { in_parts(fixed).then { |parts, used| [parts.flatten, used] } },
  'even parts' => -> { in_parts(even).then { |parts, used| [parts.transpose.flatten.first(TURNS.size), used] } },
  'process pool' => -> { measure_processor(['self', *pool.stats[:pids]]) { pool.map(TURNS, :compute) } }
}
clock = Hash.new { |hash, name| hash[name] = [] }
processor = Hash.new { |hash, name| hash[name] = [] }
own = []
ROUNDS.times do
  results = ways.map do |name, way|
    seconds, (result, used) = measure(&way)
    clock[name] << seconds
    processor[name] << (name == 'one process' ? used.sum : [used.max, used.sum / CORES].max)
    own << used.first if name == 'process pool'
    result
  end
  raise 'the ways differ' unless results.uniq.size == 1
end
stolen = pool.stats[:stolen]
pool.stop

middle = ->(values) { values.sort[values.size / 2] }
best = clock.transform_values(&:min)
busiest = processor.transform_values(&middle)
lines = [LENGTHS.tally.map { |ms, count| "#{count} tasks of #{ms.round(2)} ms" }.join(', ')]
lines << format('%-28s %10s %10s', "#{RUBY_ENGINE} #{RUBY_VERSION}, #{ROUNDS} rounds", 'clock', 'processor')
ways.each_key { |name| lines << format('%-28s %7.1f ms %7.1f ms', name, best[name] * 1000, busiest[name] * 1000) }
{ 'one process' => '(wanted: 1.8 on 2 cores)', 'fixed parts' => '(wanted: 1.5)', 'even parts' => '(they are the limit)' }.each do |name, note|
  lines << format('%-28s %10.2f %10.2f  %s', "over #{name}", *[best, busiest].map { |of| of[name] / of['process pool'] }, note)
end
lines << "stolen: #{stolen} of #{TURNS.size * ROUNDS}"
lines << format('processor time of the parent: %.0f us a task', middle.call(own) / TURNS.size * 1e6)
puts lines
return unless KEEPS

driver = Thread.current.backend.kind
File.write(File.expand_path("results/process_pool-#{driver}.md", __dir__), <<~MARKDOWN)
  # bench/process_pool.rb, #{driver}

  #{Bench::Machine.line(FACTS)}

  Load average when it began: #{FACTS[:load_average]}#{', with real-time priority (BENCH_ALONE=1)' if ALONE}.

  ```
  #{lines.join("\n")}
  ```
MARKDOWN
