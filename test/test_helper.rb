# frozen_string_literal: true

# Every test file starts with: require_relative '../test_helper' (or 'test_helper').
#
#   POLYPHONY_BACKEND=io_uring|libev   the driver to test (test/run.rb goes through them)
#   POLYPHONY_LIB=DIR                  another lib folder, say one with a sanitized extension
#   POLYPHONY_GC=stress|compact        a collection at every allocation; objects move all the time
#   POLYPHONY_PATIENCE=N               everything is N times slower than usual
#   POLYPHONY_TEST_BUDGET=SECONDS      skip the tests that come after that time

POLYPHONY_ROOT = File.expand_path('..', __dir__)
POLYPHONY_LIB = File.expand_path(ENV.fetch('POLYPHONY_LIB', 'lib'), POLYPHONY_ROOT)
$LOAD_PATH.unshift(POLYPHONY_LIB) unless $LOAD_PATH.first == POLYPHONY_LIB
$stdout.sync = true

require 'minitest/autorun'
require_relative 'support/watchdog'      # these two before polyphony: their threads are plain
require_relative 'support/gc_pressure'
require 'polyphony'
require_relative 'support/test_case'

# Minitest keeps threads ready for parallel tests; ours are not, and would see those threads.
Minitest.parallel_executor = Object.new.tap do |none|
  def none.start; end
  def none.shutdown; end
end

puts "driver: #{Thread.current.backend.kind}, " \
     "POLYPHONY_BACKEND=#{ENV.fetch('POLYPHONY_BACKEND', '(unset)')}, #{RUBY_DESCRIPTION}"
