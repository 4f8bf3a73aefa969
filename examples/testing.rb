# frozen_string_literal: true

# Finds three mistakes: a cache that asks twice, a stop at the wrong moment that leaves it locked, and a fiber that is left behind.
#
#   ruby -Ilib examples/testing.rb

require 'polyphony/testing'

# Asks for what it does not know. Two mistakes: it asks twice, and a stop leaves the lock locked.
class Cache
  attr_reader :asked

  def initialize
    @values = {}
    @asked = 0
    @lock = Polyphony::Queue.new << :key
  end

  def fetch(name)
    unless @values[name]
      @lock.shift
      @asked += 1
      snooze                                            # here the answer would come
      @values[name] = name.to_s.upcase
      @lock << :key
    end
    @values[name]
  end

  def locked?
    @lock.empty?
  end
end

def told
  yield
  'no mistake'
rescue StandardError => e
  e.message.lines.last.strip
end

def twice
  cache = Cache.new
  Array.new(2) { spin { cache.fetch(:a) } }.each(&:await)
  raise 'asked twice' if cache.asked > 1
end

$stderr.reopen(File::NULL)                              # where seeds and places are told
puts "any order:  #{told { Polyphony::Testing.shuffle(seed: 1, runs: 10) { twice } }}"
puts "every wait: #{told do
  Polyphony::Testing.cancel_everywhere do |run|
    cache = Cache.new
    run.scenario { cache.fetch(:a) }
    run.check { raise 'still locked' if cache.locked? }
  end
end}"
puts "leaks:      #{told { Polyphony::Testing.no_leaks { spin(:forgotten) { sleep } } }[/\Afiber #<Fiber forgotten/]}"
