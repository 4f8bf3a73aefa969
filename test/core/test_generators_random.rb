# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/generator_world'

# Random programs with generators (see the support file), the same ones each time. GENERATORS_SEED=n begins with that one,
# GENERATORS_COUNT=n runs so many: for the search for others that fail.
class TestGeneratorsRandom < Polyphony::TestCase
  on_every_driver

  SEED = Integer(ENV.fetch('GENERATORS_SEED', '1'))
  COUNT = Integer(ENV.fetch('GENERATORS_COUNT', '60'))

  def run_worlds(count, **options)
    count.times do |n|
      seed = SEED + n
      faults = Polyphony::GeneratorWorld.new(seed, **options).run(patient(20))
      assert_empty faults.uniq, "GENERATORS_SEED=#{seed}"
    end
  end

  def test_exceptions_from_a_fiber
    heavy
    run_worlds(COUNT)
  end

  def test_exceptions_from_another_thread
    heavy
    run_worlds(COUNT, raiser: :thread)
  end

  def test_the_main_fiber_takes_part
    heavy
    run_worlds(COUNT, main: true)
  end

  def test_the_main_fiber_takes_part_and_exceptions_come_from_another_thread
    heavy
    run_worlds(COUNT, main: true, raiser: :thread)
  end
end
