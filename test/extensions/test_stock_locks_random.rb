# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/lock_program'

# Random programs with Ruby's own locks and queues. POLYPHONY_SEEDS=1000..1999 runs those.
class TestStockLocksRandom < Polyphony::TestCase
  on_every_driver
  time_limit 120

  FIRST, LAST = ENV.fetch('POLYPHONY_SEEDS', '1..25').split('..').map { |text| Integer(text) }

  def unseen
    Polyphony.const_get(:StockLocks).unseen
  end

  def test_programs
    seeds = Polyphony::GCPressure::MODE == 'stress' ? [FIRST] : FIRST..LAST
    seeds.each do |seed|
      Polyphony::Watchdog.watch("seed #{seed}", patient(30)) do
        sent, received = Polyphony::LockProgram.new(seed).run
        assert_equal sent, received, "seed #{seed}"
        assert_equal 0, unseen, "seed #{seed}: a lock was given up and nobody was told"
        assert_empty Fiber.current.children, "seed #{seed}"
      end
    end
  end
end
