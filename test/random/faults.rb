# frozen_string_literal: true

# System calls that fail, for so many seeds on every driver: ruby test/random/faults.rb [COUNT [FIRST]]. Slices of it run with a ring
# of four entries, and of as many as usual.
require 'rbconfig'
require 'tmpdir'
require_relative '../support/drivers'
require_relative '../support/failing_calls'

SLICE = 10
LIB = File.expand_path('../../lib', __dir__)

count, first = ARGV.fetch(0, '100').to_i, ARGV.fetch(1, '1').to_i
drivers = Polyphony::Drivers.refusals.select { |_name, refusal| refusal.nil? }.keys
Dir.mktmpdir('failing_calls') do |folder|
  library = Polyphony::FailingCalls.build(folder) or abort 'failing_calls.c cannot be compiled here'
  (first...first + count).each_slice(SLICE).with_index do |seeds, i|
    drivers.each do |driver|
      env = { 'POLYPHONY_BACKEND' => driver, **Polyphony::FailingCalls.environment(library, entries: i.even? ? 4 : 0) }
      answer = IO.popen([env, 'timeout', '-s', 'KILL', '300', RbConfig.ruby, '-W0', "-I#{LIB}", Polyphony::FailingCalls::WORKLOAD, *seeds.minmax.map(&:to_s)],
                        err: %i[child out], &:read)
      puts "#{driver}, seeds #{seeds.first} to #{seeds.last}: #{answer.lines.last}"
      abort answer unless $?.success?
    end
  end
end
