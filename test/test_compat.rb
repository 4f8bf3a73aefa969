# frozen_string_literal: true

require 'minitest/autorun'
require 'tmpdir'
require_relative 'compat/setting'
require_relative 'compat/plan'
require_relative 'compat/comparison'
require_relative 'compat/page'
require_relative 'support/drivers'

# The judge is judged: what `rake compat` makes of tests that pass, fail, hang, crash and leave. Its
# sources are a few lines here, in the place of the interpreter's.
class TestCompat < Minitest::Test
  include Polyphony::Compat

  UNIT = <<~'RUBY'
    module Test
      module Unit
        class AssertionFailedError < StandardError; end
        class PendedError < AssertionFailedError; end

        class TestCase
          attr_reader :__name__

          def self.inherited(suite) = (@@suites ||= []) << suite
          def self.suites = @@suites
          def self.test_methods = public_instance_methods(true).grep(/^test/).sort
          def initialize(name) = @__name__ = name

          def run(runner)
            __send__(__name__)
            runner.record(self.class, __name__, 0, 0, nil)
          rescue StandardError => e
            runner.record(self.class, __name__, 0, 0, e)
          end
        end

        class Runner
          def _start_method(test) = nil
          def _end_method(test) = nil
          def record(*) = nil

          def _run(files)
            files.each { |file| load file }
            TestCase.suites.each do |suite|
              suite.test_methods.each do |name|
                test = suite.new(name)
                _start_method(test)
                test.run(self)
                _end_method(test)
              end
            end
          end
        end
      end
    end
  RUBY
  RUNNER = "Test::Unit::Runner.new._run(ARGV.grep(/\\.rb\\z/))\n"

  # What FileRun wants to know.
  FakePlan = Struct.new(:source, :extensions, :left_out) do
    def folder(name)
      File.join(source, name)
    end
  end

  def run_file(code, setting: Setting.stock(1), left_out: [], usual: {}, patience: 20)
    Dir.mktmpdir do |source|
      FileUtils.mkdir_p(%w[tool/lib/test test].map { |name| "#{source}/#{name}" })
      File.write("#{source}/tool/lib/test/unit.rb", UNIT)
      File.write("#{source}/test/runner.rb", RUNNER)
      File.write("#{source}/test/test_it.rb", "class TestIt < Test::Unit::TestCase\n#{code}\nend\n")
      plan = FakePlan.new(source, source, left_out)
      FileRun.new(plan, 'test_it.rb', setting, usual, patience: patience).call
    end
  end

  def verdicts(outcomes)
    outcomes.to_h { |test, outcome| [test.delete_prefix('TestIt#test_'), outcome.verdict] }
  end

  def test_each_outcome_has_its_verdict
    outcomes = run_file(<<~RUBY)
      def test_fine = nil
      def test_pended = raise(Test::Unit::PendedError, 'not here')
      def test_wrong = raise(Test::Unit::AssertionFailedError, "1 expected\\nbut was 2")
      def test_worse = raise(IOError, 'closed')
    RUBY
    assert_equal({ 'fine' => 'pass', 'pended' => 'skip', 'wrong' => 'fail', 'worse' => 'error',
                   FileRun::THE_END => 'pass' }, verdicts(outcomes))
    assert_equal '1 expected but was 2', outcomes['TestIt#test_wrong'].summary
    assert_equal 'IOError: closed', outcomes['TestIt#test_worse'].summary
  end

  def test_the_others_are_run_when_the_process_dies_in_one
    outcomes = run_file(<<~RUBY)
      def test_1 = nil
      def test_2 = Process.kill(:KILL, Process.pid)
      def test_3 = exit!(3)
      def test_4 = nil
    RUBY
    assert_equal({ '1' => 'pass', '2' => 'crash', '3' => 'exit', '4' => 'pass', FileRun::THE_END => 'pass' },
                 verdicts(outcomes))
  end

  def test_a_test_without_end_is_ended_and_its_place_told
    usual = { 'TestIt#test_1' => Outcome.new('pass', '', 0, 0) }
    outcomes = run_file(<<~RUBY, usual: usual, patience: 1)
      def test_1 = sleep
      def test_2 = nil
    RUBY
    assert_equal({ '1' => 'timeout', '2' => 'pass', FileRun::THE_END => 'pass' }, verdicts(outcomes))
    assert_match(/sleep/, outcomes['TestIt#test_1'].summary)
  end

  def test_a_process_that_does_not_end_is_ended
    usual = { 'TestIt#test_1' => Outcome.new('pass', '', 0, 0) }
    outcomes = run_file('def test_1 = at_exit { sleep }', usual: usual, patience: 1)
    assert_equal({ '1' => 'pass', FileRun::THE_END => 'timeout' }, verdicts(outcomes))
  end

  def test_a_file_that_does_not_load_says_why
    outcomes = run_file("require 'no_such_library'")
    assert_equal [FileRun::THE_END], outcomes.keys
    assert_match(/no_such_library/, outcomes[FileRun::THE_END].summary)
  end

  def test_left_out_is_not_run
    outcomes = run_file("def test_1 = nil\ndef test_2 = nil", left_out: ['/It#test_2/'])
    assert_equal ['TestIt#test_1', FileRun::THE_END], outcomes.keys
  end

  def test_what_a_test_leaves_behind_is_ended
    Dir.mktmpdir do |folder|
      run_file("def test_1 = File.write('#{folder}/pid', spawn('sleep 100', pgroup: true).to_s)")
      pid = Integer(File.read("#{folder}/pid"))
      assert_raises(Errno::ESRCH) { loop { Process.kill(0, pid); Process.detach(pid); sleep 0.01 } }
    end
  end

  # Whether Polyphony is there, the test is in the root fiber, a fiber beats, a process it starts has Polyphony.
  MODES = { 'stock' => '0100', 'main' => '1111', 'spun' => '1010', 'loaded' => '1101' }.freeze

  def test_the_modes_are_what_they_say
    MODES.each do |mode, expected|
      outcomes = run_file(<<~'RUBY', setting: Setting.new(mode, Polyphony::Drivers.refusals.key(nil)))
        def test_1
          here = !!defined?(Polyphony::Backend)
          root = !here || Fiber.current.main?
          beat = here && Thread.current.main_fiber.children.any? { |fiber| fiber.tag == :beat }
          there = `#{ENV['RUBY']} -e 'print !!defined?(Polyphony::Backend)'` == 'true'
          raise [here, root, beat, there].map { |yes| yes ? 1 : 0 }.join
        end
      RUBY
      assert_equal "RuntimeError: #{expected}", outcomes['TestIt#test_1'].summary, mode
    end
  end

  # --- comparing --------------------------------------------------------------------------------------------------

  MAIN = Setting.new('main', 'libev')
  SPUN = Setting.new('spun', 'libev')

  def outcomes(verdicts)
    verdicts.to_h { |test, verdict| ["T##{test}", Outcome.new(verdict.to_s, "it was #{verdict}", 1.0, 0.0)] }
  end

  def comparison(explanations = '', stock: [{ a: :pass, b: :pass }] * 2)
    Comparison.new('x.rb', stock.map { |verdicts| outcomes(verdicts) }, Explanations.new(explanations))
  end

  def test_what_does_not_always_pass_in_stock_ruby_is_not_compared
    compared = comparison(stock: [{ a: :pass, b: :fail, c: :pass, d: :skip },
                                  { a: :pass, b: :fail, c: :error, d: :skip, e: :pass }])
    assert_equal %w[T#a], compared.compared
    assert_equal({ 'T#b' => 'fail', 'T#c' => 'pass, error', 'T#d' => 'skip', 'T#e' => 'missing, pass' },
                 compared.excluded)
  end

  def test_whatever_is_not_a_pass_differs
    compared = comparison
    compared.add(MAIN, outcomes(a: :pass, b: :skip)) { outcomes(b: :pass) }
    compared.add(SPUN, outcomes(a: :pass)) { outcomes(a: :pass) }
    found = compared.differences.map { |d| [d.test, d.setting.mode, d.outcome.verdict, d.open?] }
    assert_equal [['T#b', 'main', 'skip', false], ['T#b', 'spun', 'missing', true]], found
  end

  def test_a_difference_that_is_explained_is_not_run_again
    compared = comparison("x.rb:\n- tests: ['T#b']\n  modes: [main]\n  reason: because\n")
    compared.add(MAIN, outcomes(a: :pass, b: :fail)) { flunk 'was run again' }
    assert_equal [['because', true, false]], compared.differences.map { |d| [d.reason, d.steady, d.open?] }
    compared.add(SPUN, outcomes(a: :pass, b: :fail)) { outcomes(a: :pass, b: :fail) }
    assert_predicate compared.differences.last, :open?
  end

  def test_an_explanation_that_explains_nothing_is_found
    explanations = Explanations.new("x.rb:\n- tests: ['T#b']\n  drivers: [libev]\n  reason: because\n")
    assert_nil explanations.reason('x.rb', 'T#b', Setting.new('main', 'io_uring'))
    assert_equal 1, explanations.unused.size
    assert_equal 'because', explanations.reason('x.rb', 'T#b', MAIN)
    assert_empty explanations.unused
  end

  def test_an_explanation_with_a_word_nobody_knows_is_refused
    error = assert_raises(ArgumentError) { Explanations.new("x.rb:\n- tests: []\n  mode: main\n  reason: x\n") }
    assert_match(/no such key: mode; there are tests, modes/, error.message)
  end

  def test_the_explanations_in_the_tree_are_well_formed
    Explanations.new.entries.each do |entry|
      refute_empty entry.tests, entry.file
      refute_empty entry.reason, entry.file
      assert_empty(Array(entry.modes) - Setting::MODES, entry.file)
      assert_empty(Array(entry.drivers) - Polyphony::Drivers::ALL, entry.file)
    end
  end

  # --- the page -----------------------------------------------------------------------------------------------------

  def test_the_page_tells_of_every_file_and_difference
    compared = comparison("x.rb:\n- tests: ['T#b']\n  modes: [main]\n  reason: because\n")
    compared.add(MAIN, outcomes(a: :pass, b: :fail)) { flunk }
    compared.add(SPUN, outcomes(a: :pass, b: :fail)) { outcomes(a: :pass, b: :fail) }
    plan = Struct.new(:groups, :reasons_left_out).new({ 'x.rb' => 'Things' }, { 'far_away' => 'too far' })
    text = Page.new(plan, [compared], [MAIN, SPUN]).text
    ['| main | libev | 0 | 1 | 0 |', '| spun | libev | 1 | 0 | 0 |', '* x.rb `T#b`: spun',
     "* x.rb: `T#b` (main).\n  because", "## Things\n", '| x.rb | 2 | 0 | 1 explained | **1 differ** |',
     '* `far_away`: too far'].each { |part| assert_includes text, part }
  end

  # --- the sources --------------------------------------------------------------------------------------------------

  def test_sources_of_another_version_are_refused
    Dir.mktmpdir do |tree|
      FileUtils.mkdir_p("#{tree}/include/ruby")
      File.write("#{tree}/include/ruby/version.h", "#define RUBY_API_VERSION_MAJOR 2\n#define RUBY_API_VERSION_MINOR 6\n")
      File.write("#{tree}/version.h", "#define RUBY_VERSION_TEENY 1\n#define RUBY_PATCHLEVEL 33\n")
      error = assert_raises(Source::Missing) { Source.new(tree, given: tree).path }
      assert_match(/those of Ruby 2\.6\.1p33, but this is #{RUBY_VERSION}.*COMPAT_SOURCE/, error.message)
    end
  end

  def test_a_folder_without_sources_is_refused
    error = assert_raises(Source::Missing) { Source.new('/tmp', given: '/nowhere').path }
    assert_match(%r{no sources of Ruby in /nowhere}, error.message)
  end
end
