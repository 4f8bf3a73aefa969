# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/random/programs'
require_relative '../support/random/real_world'
require_relative '../support/random/shrink'

# Random programs, here and in a model of the library in plain Ruby, which runs in a process without it.
# POLYPHONY_SEEDS=1000..1999 runs those; rake random[10000] runs many, and makes the one that fails smaller.
class TestRandom < Polyphony::TestCase
  on_every_driver
  time_limit 120

  FIRST, LAST = ENV.fetch('POLYPHONY_SEEDS', '1..100').split('..').map { |text| Integer(text) }
  CHILD = File.expand_path('../support/random/child.rb', __dir__)

  def expected(kind)
    IO.popen([RbConfig.ruby, '--disable-gems', CHILD, 'model', kind, FIRST.to_s, LAST.to_s], 'rb') do |io|
      records = []
      while (record = RandomPrograms::Record.read(io))
        records << record
      end
      records
    end
  end

  def compare(kind)
    heavy
    records = expected(kind)
    assert_equal LAST - FIRST + 1, records.size
    records.each do |record|
      body = RandomPrograms.make(kind, record.seed)
      outcome = Polyphony::Watchdog.watch("#{kind}, seed #{record.seed}", patient(30)) do
        RandomPrograms.outcome(kind, body, RandomPrograms::RealWorld.new)
      end
      assert_equal record.outcome, outcome.b.force_encoding('UTF-8'), "#{kind}, seed #{record.seed}: #{body.inspect}"
    end
  end

  def test_fibers_do_what_the_model_does_in_that_order
    compare('order')
  end

  def test_threads_pipes_and_queues_tell_each_fiber_what_the_model_does
    compare('apart')
  end

  def test_a_program_that_fails_is_made_smaller
    body = [[:snooze], [:spin, [[:note, 1], [:several, :race, [[[:snooze], [:boom, 7]], [[:sleep, 1]]]], [:snooze]]], [:sleep, 2]]
    assert_equal [[:boom, 7]], RandomPrograms::Shrink.smallest(body) { |smaller| smaller.flatten.include?(:boom) }
    inside = RandomPrograms::Shrink.smallest(body) { |smaller| smaller.flatten.each_cons(3).any? { |words| words == [:several, :race, :boom] } }
    assert_equal [[:several, :race, [[[:boom, 7]]]]], inside
  end
end
