# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Polyphony::Testing.shuffle
class TestShuffle < Polyphony::TestCase
  on_every_driver

  def order(seed, count = 20)
    ran = []
    Polyphony::Testing.shuffle(seed: seed) { Array.new(count) { |i| spin { ran << i } }.each(&:await) }
    ran
  end

  def test_every_fiber_runs_once
    assert_equal (0...20).to_a, order(1).sort
    assert_equal (0...1000).to_a, order(2, 1000).sort
  end

  def test_the_same_seed_draws_the_same_order
    10.times { |seed| assert_equal order(seed), order(seed) }
  end

  def test_seeds_draw_different_orders
    assert_operator Array.new(10) { |seed| order(seed) }.uniq.size, :>=, 9
  end

  def test_any_fiber_may_be_first_and_any_may_be_last
    orders = Array.new(200) { |seed| order(seed, 4) }
    assert_equal [0, 1, 2, 3], orders.map(&:first).uniq.sort
    assert_equal [0, 1, 2, 3], orders.map(&:last).uniq.sort
  end

  def test_after_the_block_order_is_that_of_arrival
    order(3)
    ran = []
    Array.new(20) { |i| spin { ran << i } }.each(&:await)
    assert_equal (0...20).to_a, ran
  end

  def test_fibers_woken_by_time_are_drawn_too
    orders = Array.new(10) do |seed|
      ran = []
      Polyphony::Testing.virtual_clock do
        Polyphony::Testing.shuffle(seed: seed) { Array.new(8) { |i| spin { sleep 1; ran << i } }.each(&:await) }
      end
      ran
    end
    assert_operator orders.uniq.size, :>=, 9
    orders.each { |one| assert_equal (0...8).to_a, one.sort }
  end

  def test_a_race_that_never_shows_in_order_of_arrival_shows_by_lot
    lost = lambda do
      balance = 0
      Array.new(4) { spin { seen = balance; snooze; balance = seen + 1 } }.each(&:await)
      balance != 4
    end
    sure = lambda do
      balance = 0
      first = spin { balance = 1 }
      second = spin { balance *= 10 }
      [first, second].each(&:await)
      balance != 10
    end
    assert lost.call
    refute sure.call
    assert((0...20).any? { |seed| Polyphony::Testing.shuffle(seed: seed) { sure.call } })
  end

  def test_removed_and_merged_fibers_keep_their_places
    Polyphony::Testing.shuffle(seed: 4) do
      300.times do |round|
        fibers = Array.new(6) { |i| spin { i } }
        fibers.each { |fiber| fiber.schedule(nil) if round.odd? }
        fibers.each_slice(2) { |one, _| one.stop }
        assert_equal [nil, 1, nil, 3, nil, 5], fibers.map(&:await)
      end
    end
  end

  def test_fibers_with_priority_come_first
    Polyphony::Testing.shuffle(seed: 5) do
      20.times do
        ran = []
        fibers = Array.new(5) { |i| spin { suspend; ran << i } }
        snooze until fibers.all? { |fiber| fiber.state == :waiting }
        fibers.first(4).each(&:schedule)
        fibers.last.schedule_with_priority
        fibers.each(&:await)
        assert_equal 4, ran.first
      end
    end
  end

  def test_exceptions_arrive
    Polyphony::Testing.shuffle(seed: 6) do
      50.times do
        fibers = Array.new(4) { spin { outcome { sleep } } }
        snooze until fibers.all? { |fiber| fiber.state == :waiting }
        fibers.each { |fiber| fiber.raise(IOError, 'enough') }
        assert_equal [IOError] * 4, fibers.map { |fiber| fiber.await.class }
      end
    end
  end

  def test_threads_are_shuffled_too
    orders = Array.new(10) do |seed|
      Polyphony::Testing.shuffle(seed: seed) do
        Thread.new { ran = []; Array.new(10) { |i| spin { ran << i } }.each(&:await); ran }.value
      end
    end
    assert_operator orders.uniq.size, :>=, 8
  end

  def test_the_seed_is_told_when_the_block_fails
    _, told = capture_io { assert_raises(IOError) { Polyphony::Testing.shuffle(seed: 77) { raise IOError } } }
    assert_equal "polyphony: the order of fibers came from seed 77; POLYPHONY_SEED=77 repeats it\n", told
    _, told = capture_io { assert_raises(Minitest::Skip) { Polyphony::Testing.shuffle(seed: 77) { skip } } }
    assert_empty told
  end

  def test_runs_go_through_seeds_and_stop_at_the_first_that_fails
    seen = []
    assert_equal 12, Polyphony::Testing.shuffle(seed: 10, runs: 3) { |seed| seen << seed; seed }
    assert_equal [10, 11, 12], seen
    _, told = capture_io do
      assert_raises(IOError) { Polyphony::Testing.shuffle(seed: 10, runs: 9) { |seed| raise IOError if seed == 12 } }
    end
    assert_match(/seed 12;/, told)
  end

  def test_the_environment_says_which_seed_to_repeat
    code = "require 'polyphony/testing'; Polyphony::Testing.shuffle(runs: 5) { |seed| p seed }"
    assert_equal "1234\n", run_ruby(code, env: { 'POLYPHONY_SEED' => '1234' }).first
    assert_equal 5, run_ruby(code).first.lines.uniq.size
    assert_match(/POLYPHONY_SEED must be an Integer.*"abc"/, run_ruby(code, env: { 'POLYPHONY_SEED' => 'abc' })[1])
  end

  def test_settings_that_make_no_sense_are_refused
    assert_raises(ArgumentError) { Polyphony::Testing.shuffle(seed: -1) { flunk } }
    assert_raises(ArgumentError) { Polyphony::Testing.shuffle(seed: 1 << 32) { flunk } }
    assert_raises(ArgumentError) { Polyphony::Testing.shuffle(runs: 0) { flunk } }
    assert_raises(ArgumentError) { Polyphony::Testing.shuffle }
  end

  def test_a_block_within_a_block_has_its_own_seed_until_its_end
    inner = outer = nil
    Polyphony::Testing.shuffle(seed: 1) do
      inner = order(2)
      outer = []
      Array.new(20) { |i| spin { outer << i } }.each(&:await)
    end
    assert_equal order(2), inner
    refute_equal (0...20).to_a, outer
  end
end
