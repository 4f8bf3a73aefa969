# frozen_string_literal: true

# Computes on all cores while a clock ticks. A few long tasks among many short ones do not keep the others waiting; a task
# that takes too long is ended in its worker; a worker that dies is replaced.
#   ruby -Ilib examples/process_pool.rb
require 'polyphony'
require 'tempfile'

# How many steps it takes to come to 1.
def steps(number)
  count = 0
  (count += 1; number = number.even? ? number / 2 : 3 * number + 1) while number > 1
  count
end

def longest_below(limit)
  (1...limit).max_by { |number| steps(number) }
end

def report_up_to(limit)
  (limit / 4).step(limit, limit / 4) { |n| longest_below(n); Polyphony::ProcessPool.progress(n) }
  longest_below(limit)
end

Polyphony::ProcessPool.open(2, longest: method(:longest_below), slowly: method(:report_up_to), for_ever: -> { loop { 1 + 1 } },
                               once: ->(path) { File.delete(path); exit!(1) }) do |pool|
  ticks = 0
  clock = spin(:clock) { every(0.005) { ticks += 1 } }
  limits = [30_000, 20_000] + [100] * 50
  puts "longest below #{limits.uniq.inspect}: #{pool.map(limits, :longest).uniq.inspect}"
  clock.stop
  puts "the clock went on: #{ticks.positive?}"

  puts "with reports: #{pool.process(:slowly, 4000) { |n| puts "  below #{n} is done" }}"
  puts "with a limit: #{move_on_after(0.05, with_value: 'given up') { pool.process(:for_ever) }}"

  begin
    pool.process(Integer.method(:sqrt), -1)
  rescue Math::DomainError => e
    puts "an error: #{e.message}"
  end
  begin
    pool.process(:once, Tempfile.create('once').tap(&:close).path)
  rescue Polyphony::ProcessPool::WorkerDied => e
    puts "a death: #{e.message.sub(/\d+/, 'N')}"
  end
  puts "and on: #{pool.process(:longest, 10)}, workers: #{pool.stats[:alive]}"
end
