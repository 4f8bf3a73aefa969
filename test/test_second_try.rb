# frozen_string_literal: true

require 'minitest/autorun'
require 'stringio'
require 'tmpdir'
require_relative 'support/second_try'
require_relative 'support/watched_process'

# Which tests of a run are run once more, and what becomes of them.
class TestSecondTry < Minitest::Test
  HEAD = <<~RUBY
    require 'minitest/autorun'
    FIRST = !File.exist?('been_here')
    at_exit { File.write('been_here', '') }
    class TestSome < Minitest::Test
      def test_well
        assert true
      end
  RUBY

  def test_what_fails_once_passes_the_second_time
    first, second = tries('def test_luck; refute FIRST; end', 'def test_error; raise "no" if FIRST; end')
    assert_equal %w[TestSome#test_error TestSome#test_luck], first.names.sort
    assert first.passed?(second), second.output
    assert_match(/^2 runs, /, second.output)
  end

  def test_what_fails_always_fails_twice
    first, second = tries('def test_broken; flunk; end', 'def test_luck; refute FIRST; end')
    refute first.passed?(second)
  end

  def test_what_is_skipped_the_second_time_has_not_passed
    first, second = tries('def test_once; skip unless FIRST; flunk; end')
    refute first.passed?(second)
  end

  def test_no_second_try_for_what_is_more_than_luck
    assert_nil tries('def test_nothing; end').first, 'all went well'
    assert_nil tries(*Array.new(4) { |i| "def test_#{i}; flunk; end" }).first, 'four tests'
    assert_nil tries('def test_crash; Process.kill(:KILL, $$); sleep; end').first, 'a signal'
    assert_nil tries('def test_gone; exit!(3); end').first, 'no summary'
  end

  private

  # @return [Array(SecondTry, WatchedProcess)]
  def tries(*tests)
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, 'test_some.rb'), "#{HEAD}#{tests.join("\n")}\nend\n")
      again = Polyphony::SecondTry.after(run_in(dir, []))
      [again, again && run_in(dir, again.options)]
    end
  end

  def run_in(dir, options)
    run = Polyphony::WatchedProcess.new({}, [RbConfig.ruby, '-C', dir, 'test_some.rb', *options], output: StringIO.new)
    run.call
    run
  end
end
