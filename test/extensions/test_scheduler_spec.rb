# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/slow_names'
require 'json'

# What the gem fiber_scheduler_spec demands of a Fiber::Scheduler, in a Ruby of its own. It comes with the
# group :test of the Gemfile.
class TestSchedulerSpec < Polyphony::TestCase
  on_every_driver
  time_limit 180

  # Its examples are held to durations, some to half a millisecond, which a busy machine may miss: only what fails
  # each time has failed. After the first time only what has failed is run.
  ATTEMPTS = 25

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
    examples = judge(load, filter)
    assert_operator examples.count { |example| example['status'] != 'pending' }, :>=, at_least
    failed = failed_among(examples)
    ATTEMPTS.times do
      break if failed.empty?

      failed = failed_among(judge(load, "#{filter}\n#{only(failed.keys)}"))
    end
    assert_empty failed
  end

  def judge(load, filter)
    library = Polyphony::SlowNames.library or skip 'slow_names.c cannot be compiled here'
    env = { 'LD_PRELOAD' => [ENV['LD_PRELOAD'], library].compact.join(':') }
    code = PROGRAM.sub(/(?=^RSpec.describe)/) { "#{filter}\n" }
    out, err, status = run_ruby("#{load}\n#{code}", env: env, options: $LOAD_PATH.map { |folder| "-I#{folder}" }, timeout: 50)
    skip out if status.exitstatus == 3
    JSON.parse(out[/^\{.*\}$/] || flunk("#{status}\n#{out}\n#{err}"))['examples']
  end

  def only(descriptions)
    "RSpec.configure { |config| config.filter_run_including(full_description: Regexp.union(#{descriptions.inspect})) }"
  end

  # @return [Hash{String => String}] description => message
  def failed_among(examples)
    examples.select { |example| example['status'] == 'failed' }
            .to_h { |example| [example['full_description'], example['exception']['message']] }
  end
end
