# frozen_string_literal: true

require 'minitest/autorun'
require 'stringio'
require_relative '../lib/polyphony/cli'

# What the command answers without the extension; `doctor` is tested with the installed gem.
class TestCLI < Minitest::Test
  def test_it_tells_its_version
    assert_equal [0, "polyphony #{Polyphony::VERSION}\n", ''], call('--version')
  end

  def test_without_words_it_helps
    status, out, = call
    assert_equal 0, status
    assert_match(/^usage: polyphony/, out)
  end

  def test_an_unknown_command_is_named_and_is_an_error
    status, out, err = call('dance')
    assert_equal 64, status
    assert_empty out
    assert_match(/no such command: dance/, err)
  end

  private

  def call(*words)
    out = StringIO.new
    err = StringIO.new
    [Polyphony::CLI.new(words, out: out, err: err).run, out.string, err.string]
  end
end
