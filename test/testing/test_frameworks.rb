# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/doc_block'
require 'tmpdir'

# The helpers for minitest and RSpec, in suites of their own.
class TestTestingFrameworks < Polyphony::TestCase
  on_every_driver

  MINITEST = <<~'RUBY'
    require 'minitest/autorun'
    require 'polyphony/testing/minitest'

    class TestClean < Minitest::Test
      include Polyphony::Testing::Minitest

      def test_that_leaves_nothing = assert_equal(1, spin { 1 }.await)
      def test_that_leaves_a_fiber = spin(:stray) { suspend }
      def test_that_leaves_an_error = spin { raise IOError, 'unheard' }
      def test_that_uses_the_words
        virtual_clock { |clock| sleep 1000; assert_equal 1000, clock.elapsed }
        left, right = network.pair
        left << 'x'
        assert_equal 'x', right.readpartial(1)
        assert_equal 4, cancel_everywhere { nil }
      end
    end

    class TestTimed < TestClean
      polyphony virtual_clock: true, leaks: false
      def test_that_leaves_nothing = sleep(100_000)
      def test_that_leaves_an_error = nil
    end

    class TestByLot < Minitest::Test
      include Polyphony::Testing::Minitest
      polyphony shuffle: 77
      def test_that_fails = flunk('here')
      def test_that_skips = skip('there')
      def test_that_passes = assert_equal(3, [spin { 1 }, spin { 2 }].sum(&:await))
    end
  RUBY

  SPEC = <<~'RUBY'
    require 'polyphony/testing/rspec'

    RSpec.describe 'clean', :polyphony do
      it('leaves nothing') { expect(spin { 1 }.await).to eq(1) }
      it('leaves a fiber') { spin(:stray) { suspend } }
      it('has the words') { virtual_clock { sleep 100_000 }; expect(cancel_everywhere { nil }).to eq(4) }
    end

    RSpec.describe 'timed', polyphony: { virtual_clock: true, shuffle: 77 } do
      it('passes') { sleep 100_000 }
      it('fails') { expect(1).to eq(2) }
    end

    RSpec.describe('untagged') { it('may leave what it likes') { spin { suspend } } }
  RUBY

  RSPEC = "begin; require 'rspec/core'; rescue LoadError; abort 'no rspec'; end; exit RSpec::Core::Runner.run([ARGV[0]])"

  def run_suite(code, program)
    Dir.mktmpdir do |folder|
      path = File.join(folder, 'suite.rb')
      File.write(path, code)
      run_ruby(program, path, gems: true, env: { 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil, 'POLYPHONY_SEED' => nil }, timeout: 60)
    end
  end

  def test_minitest
    out, err, status = run_suite(MINITEST, 'load ARGV.shift')
    assert_match(/^11 runs, \d+ assertions, 3 failures, 0 errors, 1 skips$/, out, err)
    assert_match(/TestClean#test_that_leaves_a_fiber .*\nleft behind by this test:\n  fiber #<Fiber stray:/, out)
    assert_match(/TestClean#test_that_leaves_an_error .*\nleft behind by this test:\n  error that nobody waited for: IOError: unheard/, out)
    assert_match(/TestClean#test_that_leaves_an_error \[\S*suite\.rb:9\]:/, out, 'the place is the test')
    assert_match(/TestByLot#test_that_fails/, out)
    assert_equal ['polyphony: in TestByLot#test_that_fails the order of fibers came from seed 77; POLYPHONY_SEED=77 repeats it'],
                 err.lines(chomp: true).grep(/polyphony:/)
    assert_equal 1, status.exitstatus
  end

  def test_rspec
    out, err, status = run_suite(SPEC, RSPEC)
    skip 'the gem rspec is not installed' if err.include?('no rspec')
    assert_match(/^6 examples, 2 failures$/, out, err)
    assert_match(/left behind:\n\s+fiber #<Fiber stray:/, out)
    assert_match(%r{Failure/Error: it\('leaves a fiber'\) \{ spin\(:stray\)}, out, 'the place is the example')
    assert_equal ['polyphony: in timed fails the order of fibers came from seed 77; POLYPHONY_SEED=77 repeats it'],
                 err.lines(chomp: true).grep(/polyphony:/)
    assert_equal 1, status.exitstatus
  end

  # What they say of a client that takes its time.
  GUIDE = Polyphony::DocBlock.in(File.read(File.join(POLYPHONY_ROOT, 'docs/guide/testing.md')), 'docs/guide/testing.md').to_h do |block|
    [block.code[%r{\Arequire 'polyphony/testing/(\w+)'}, 1], "class Client; def fetch = (sleep(3600) && nil); end\n#{block.code}"]
  end

  def test_the_guide_on_minitest
    out, err, = run_suite("require 'minitest/autorun'\n#{GUIDE.fetch('minitest')}", 'load ARGV.shift')
    assert_match(/^1 runs, 1 assertions, 0 failures, 0 errors, 0 skips$/, out, err)
  end

  def test_the_guide_on_rspec
    out, err, = run_suite(GUIDE.fetch('rspec'), RSPEC)
    skip 'the gem rspec is not installed' if err.include?('no rspec')
    assert_match(/^1 example, 0 failures$/, out, err)
  end

  def test_unknown_settings_are_refused
    code = "require 'polyphony/testing/minitest'; class T < Minitest::Test; include Polyphony::Testing::Minitest; polyphony clock: 1; end"
    assert_match(/leaks, virtual_clock, shuffle, but no clock/, run_ruby(code, gems: true)[1])
  end
end
