# frozen_string_literal: true

require_relative '../test_helper'

# A twentieth of what `rake soak` does, a few rounds of what `rake soak:churn` does, and a little of what `rake hostile` does.
class TestSoak < Polyphony::TestCase
  on_every_driver
  time_limit 240

  SCRIPT = File.join(POLYPHONY_ROOT, 'test/soak/memory.rb')
  HOSTILE = File.join(POLYPHONY_ROOT, 'test/soak/hostile.rb')
  CHURN = File.join(POLYPHONY_ROOT, 'test/soak/churn.rb')

  def test_memory_stays_what_it_was
    heavy
    skip 'no /proc/self/status' unless File.exist?('/proc/self/status')
    out, err, = run_ruby('load ARGV.shift', SCRIPT, '1/20', timeout: 120)
    assert_empty err
    assert_equal 3, out.scan('steady').size, out
  end

  def test_a_mixture_of_everything_leaves_nothing_behind
    heavy
    skip 'no /proc/self/status' unless File.exist?('/proc/self/status')
    out, err, status = run_ruby('load ARGV.shift', CHURN, '1', timeout: 200)
    assert_empty err
    assert_predicate status, :success?
    assert_match(/ rounds, nothing left$/, out)
  end

  # Smuggling, bad chunks, rapid resets.
  def test_attacks_under_load_are_defended
    heavy
    skip 'no /proc/self/status' unless File.exist?('/proc/self/status')
    out, err, status = run_ruby('load ARGV.shift', HOSTILE, '2', '6', '9', '25', timeout: 200)
    assert_empty err
    assert_predicate status, :success?, out
    assert_match(/^[1-9]\d* good answers in \d+ s\n\d+ attacks: all defended$/, out)
  end
end
