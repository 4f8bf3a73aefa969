# frozen_string_literal: true

# Random programs on every driver and in a model of the library, compared: ruby test/random/run.rb [COUNT [FIRST [KIND]]]. The first that
# differs is made smaller until nothing can be left out, and shown.
require 'rbconfig'
require 'pp'
require 'timeout'
require_relative '../support/drivers'
require_relative '../support/random/programs'
require_relative '../support/random/worlds'
require_relative '../support/random/shrink'

CHILD = File.expand_path('../support/random/child.rb', __dir__)
LIB = File.expand_path('../../lib', __dir__)
SLICE = 500
PATIENCE = 120

# @return [IO] the records of a child; a program on its standard input, or seeds as arguments
def child(driver, *words)
  IO.popen([{ 'POLYPHONY_BACKEND' => driver }, RbConfig.ruby, "-I#{LIB}", CHILD, 'real', *words.map(&:to_s)], 'r+b', err: File::NULL)
end

# @yield [IO] what is left undone when it takes too long is a hang
def patiently(io, seconds)
  Timeout.timeout(seconds) { yield io }
rescue Timeout::Error
  nil
ensure
  Process.kill(:KILL, io.pid)
  io.close
end

def expected(kind, body) = RandomPrograms.outcome(kind, body, RandomPrograms::ModelWorld.new)

def really(driver, kind, body)
  patiently(child(driver, kind), 10) do |io|
    io.write(Marshal.dump(body))
    io.close_write
    RandomPrograms::Record.read(io)&.outcome
  end
end

def report(driver, kind, seed)
  body = RandomPrograms.make(kind, seed)
  puts "#{kind}, seed #{seed}, #{driver}: differs from the model. Making it smaller ..."
  body = RandomPrograms::Shrink.smallest(body) { |smaller| really(driver, kind, smaller) != expected(kind, smaller) }
  puts body.pretty_inspect, '--- model', expected(kind, body), "--- #{driver}", really(driver, kind, body) || 'it hangs, or crashed'
end

# @return [Integer, nil] the first seed whose outcome is another one
def first_difference(driver, kind, seeds)
  done = seeds.first - 1
  patiently(child(driver, kind, seeds.first, seeds.last), PATIENCE) do |io|
    while (record = RandomPrograms::Record.read(io))
      return record.seed unless record.outcome == expected(kind, RandomPrograms.make(kind, record.seed))

      done = record.seed
    end
  end
  done == seeds.last ? nil : done + 1
end

count, first = ARGV.fetch(0, '10000').to_i, ARGV.fetch(1, '1').to_i
drivers = Polyphony::Drivers.refusals.select { |_name, refusal| refusal.nil? }.keys
clean = true
(ARGV[2]&.split(',') || RandomPrograms::KINDS.keys).each do |kind|
  drivers.each do |driver|
    found = (first...first + count).each_slice(SLICE).lazy.filter_map { |seeds| first_difference(driver, kind, seeds) }.first
    clean &&= found.nil?
    found ? report(driver, kind, found) : puts("#{kind}, #{driver}: #{count} programs from seed #{first} as the model says")
  end
end
exit clean
