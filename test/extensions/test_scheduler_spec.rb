# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/slow_names'
require 'json'

# What the gem fiber_scheduler_spec demands of a Fiber::Scheduler, in a Ruby of its own. It comes with the
# group :test of the Gemfile.
class TestSchedulerSpec < Polyphony::TestCase
  on_every_driver
  time_limit 180

  # Its examples are held to tenths of a second, which a busy machine may miss: only what fails each
  # time has failed.
  ATTEMPTS = 3

  # Some examples demand that a stock method goes through the hook. With all of Polyphony it goes a shorter
  # way, to the same effect, and those that demand the effect are left.
  EFFECTS = 'RSpec.configure { |config| config.filter_run_excluding(full_description: /calls #/) }'

  PROGRAM = <<~'RUBY'
    begin
      require 'rspec'
      require 'fiber_scheduler_spec'
    rescue LoadError => e
      print e.message
      exit 3
    end
    RSpec.describe(Polyphony::Scheduler) { include_examples FiberSchedulerSpec }
    exit RSpec::Core::Runner.run(%w[--format json])
  RUBY

  def test_alone
    assert_all_pass "require 'polyphony/core'", at_least: 40
  end

  def test_with_all_of_polyphony
    assert_all_pass "require 'polyphony'", EFFECTS, at_least: 26
  end

  private

  def assert_all_pass(load, filter = '', at_least:)
    heavy
    failed = nil
    ATTEMPTS.times do
      examples = judge("#{load}\n#{PROGRAM.sub(/(?=^RSpec.describe)/) { "#{filter}\n" }}")
      assert_operator examples.count { |example| example['status'] != 'pending' }, :>=, at_least
      failed = still_failed(failed, examples)
      break if failed.empty?
    end
    assert_empty failed
  end

  def judge(code)
    library = Polyphony::SlowNames.library or skip 'slow_names.c cannot be compiled here'
    env = { 'LD_PRELOAD' => [ENV['LD_PRELOAD'], library].compact.join(':') }
    out, err, status = run_ruby(code, env: env, options: $LOAD_PATH.map { |folder| "-I#{folder}" }, timeout: 50)
    skip out if status.exitstatus == 3
    JSON.parse(out[/^\{.*\}$/] || flunk("#{status}\n#{out}\n#{err}"))['examples']
  end

  def still_failed(before, examples)
    now = examples.select { |example| example['status'] == 'failed' }
                  .to_h { |example| [example['full_description'], example['exception']['message']] }
    before ? now.slice(*before.keys) : now
  end
end
