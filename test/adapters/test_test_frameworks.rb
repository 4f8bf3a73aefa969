# frozen_string_literal: true

require_relative '../support/adapter_case'
require 'tmpdir'

# rspec, minitest and dotenv themselves, with Polyphony loaded: suites that use fibers, and the locals of threads and fibers.
class TestTestFrameworks < Polyphony::AdapterCase
  def setup
    super
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.remove_entry(@folder)
    super
  end

  def gem_paths(*names)
    paths = $LOAD_PATH.grep(%r{/gems/(#{names.join('|')})-\d})
    skip "not in this bundle: #{names.first}" if paths.empty?
    paths.map { |path| "-I#{path}" }
  end

  def run_file(code, options:, program: 'load ARGV[0]')
    path = File.join(@folder, 'suite.rb')
    File.write(path, code)
    out, err, status = run_ruby(program, path, options: ['-rpolyphony', *options], gems: true, env: { 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil })
    [out, err, status]
  end

  SPEC = <<~'RUBY'
    RSpec.describe 'fibers' do
      let(:queue) { Polyphony::Queue.new }
      around { |example| Timeout.timeout(5) { example.run } }
      before { @fiber = spin { queue.shift * 2 } }
      after { @fiber.stop; @fiber.await }

      it('waits') { queue << 21; expect(@fiber.await).to eq(42) }
      it('raises') { expect { spin { raise IOError, 'lost' }.await }.to raise_error(IOError, 'lost') }
      it('mocks') { thing = double; expect(thing).to receive(:call).twice; 2.times { spin { thing.call }.await } }
      it('shares let') { expect(spin { queue }.await).to equal(queue) }
      it('changes') { n = 0; expect { spin { n += 1 }.await }.to change { n }.by(1) }
      it('fails') { spin { expect(1).to eq(2) }.await }
      it('passes in a fiber', :aggregate_failures) { spin { expect(1).to eq(1); sleep 0.001; expect(2).to eq(2) }.await }
    end
  RUBY

  def test_an_rspec_suite_with_fibers
    paths = gem_paths('rspec', 'rspec-core', 'rspec-expectations', 'rspec-mocks', 'rspec-support', 'diff-lcs')
    out, err, status = run_file(SPEC, options: paths, program: "require 'rspec/core'; exit RSpec::Core::Runner.run([ARGV[0]])")
    assert_match(/7 examples, 1 failure$/, out, err)
    assert_match(/expected: 2\n\s+got: 1/, out)
    assert_equal 1, status.exitstatus
  end

  MINITEST = <<~'RUBY'
    require 'minitest/autorun'
    class TestParallel < Minitest::Test
      parallelize_me!
      20.times do |i|
        define_method("test_#{i}") { assert_equal [i, i + 1], Fiber.await(*Array.new(2) { |j| spin { sleep 0.001; i + j } }) }
      end
      def test_that_fails = spin { flunk 'here' }.await
      def test_that_skips = spin { skip 'there' }.await
      def test_of_a_limit = assert_nil(move_on_after(0.001) { sleep })
    end
  RUBY

  def test_a_parallel_minitest_suite_with_fibers
    out, err, status = run_file(MINITEST, options: gem_paths('minitest'))
    assert_match(/^23 runs, 22 assertions, 1 failures, 0 errors, 1 skips$/, out, err)
    assert_match(/TestParallel#test_that_fails .*\n.*here/, out)
    assert_equal 1, status.exitstatus
  end

  def test_dotenv_in_fibers
    paths = gem_paths('dotenv')
    File.write(File.join(@folder, '.env'), "A=1\nB=${A}2\nC=$(echo three)\n")
    out, err, status = run_file(<<~RUBY, options: paths)
      require 'dotenv'
      beats = 0
      spin { loop { beats += 1; snooze } }
      values = spin { Dotenv.load('#{@folder}/.env') }.await
      puts values.values_at('A', 'B', 'C').inspect, ENV.values_at('A', 'B', 'C').inspect, beats.positive?
    RUBY
    assert_predicate status, :success?, err
    assert_equal [%w[1 12 three].inspect] * 2 + ['true'], out.lines(chomp: true)
  end

  # Thread.current[:x] belongs to the fiber, thread_variable_get to the thread, Fiber[:x] is inherited: as in stock Ruby.
  def test_locals_of_threads_and_fibers
    Thread.current[:local] = 1
    Thread.current.thread_variable_set(:variable, 2)
    Fiber[:storage] = 3
    seen = spin { [Thread.current[:local], Thread.current.thread_variable_get(:variable), Fiber[:storage]] }.await
    assert_equal [nil, 2, 3], seen
    spin { Thread.current[:local] = 9; sleep 0.001; Fiber[:storage] = 9 }.await
    assert_equal [1, 3], [Thread.current[:local], Fiber[:storage]]
    # What waits in the main fiber does so on behalf of it, in another fiber: its locals stay.
    input, output = IO.pipe
    spin { output << 'x'; output.close }
    assert_equal ['x', 1], [input.read, Thread.current[:local]]
    input.close
  ensure
    Thread.current[:local] = Fiber[:storage] = nil
    Thread.current.thread_variable_set(:variable, nil)
  end
end
