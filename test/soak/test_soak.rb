# frozen_string_literal: true

require_relative '../test_helper'

# A twentieth of what `rake soak` does.
class TestSoak < Polyphony::TestCase
  on_every_driver
  time_limit 240

  SCRIPT = File.join(POLYPHONY_ROOT, 'test/soak/memory.rb')

  def test_memory_stays_what_it_was
    heavy
    skip 'no /proc/self/status' unless File.exist?('/proc/self/status')
    out, err, = run_ruby('load ARGV.shift', SCRIPT, '1/20', timeout: 120)
    assert_empty err
    assert_equal 3, out.scan('steady').size, out
  end
end
