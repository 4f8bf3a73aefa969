# frozen_string_literal: true

# Runs the suite: the C tests of layer 0, then the tests which concern the tree and the gem (the
# files directly in test/), then everything in test/*/ once per driver that works here.
# Each of these, and each folder, is a process of its own: a crash in one does not hide the others, and what the tests
# of one have left in memory does not make each collection and each fork of the others slower.
#
# When all is run, both drivers are at work at the same time: most of the tests wait most of the time. The second one goes
# through the folders from the last to the first, so that the same tests seldom run side by side. What concerns the tree comes
# after the folders of the first. What a process has written is shown when it has ended.
#
# With POLYPHONY_BACKEND set, only on that one.
#
# When all is run, up to three tests of a process that failed are run once more by themselves. Those that pass are named as unstable;
# more than three of these in all fail the run, and any does with POLYPHONY_STRICT set.
#
#   ruby test/run.rb [files or folders] [-- options of minitest]

require 'etc'
require 'rbconfig'
require 'stringio'
require_relative 'support/drivers'
require_relative 'support/second_try'
require_relative 'support/watched_process'

module Polyphony
  # One run of the suite and its summary.
  class SuiteRun
    COUNTS = %i[runs assertions failures errors skips].freeze
    # What minitest writes of each test that failed.
    FAILURE = /^ +\d+\) (?:Failure|Error):\n.*?(?=^ +\d+\) |^\d+ runs)/m.freeze
    SUMMARY = /^(\d+) runs, (\d+) assertions, (\d+) failures, (\d+) errors, (\d+) skips$/.freeze

    LAST_WORDS = 8_000                                  # characters
    MOST_UNSTABLE = 3

    # Tests that run in one process.
    Part = Struct.new(:title, :files, :env)

    def initialize(argv)
      split = argv.index('--') || argv.size
      @paths = argv[0...split]
      @options = argv[(split + 1)..] || []
      @lines = []
      @failures = []
      @unstable = []
      @total = COUNTS.to_h { |name| [name, 0] }
      @failed = false
      @lock = Mutex.new
      @running = {}
    end

    # @return [Boolean] whether all went well
    def call
      run_c_tests if @paths.empty?
      once, per_driver = test_files.partition { |file| File.dirname(file) == 'test' }
      tree = Part.new('tree and gem', once, {})
      lanes = per_driver.empty? ? [] : lanes_of(per_driver)
      if side_by_side?(lanes)
        run_side_by_side([[*lanes.first, tree], *lanes.drop(1)])
      else
        [tree, *lanes.flatten(1)].each { |part| run_part(part) }
      end
      report
      !@failed
    end

    private

    def test_files
      paths = @paths.empty? ? ['test'] : @paths
      files = paths.flat_map do |path|
        File.directory?(path) ? Dir["#{path}/**/test_*.rb"].sort : [path]
      end
      files.map { |file| file.delete_prefix('./') } - ['test/test_helper.rb', 'test/support/test_case.rb']
    end

    def run_c_tests
      return unless File.exist?('test/c/Makefile')

      puts '== C tests of layer 0, and what fuzzing has found'
      jobs = "-j#{Etc.nprocessors}"
      ok = system('make', '-s', jobs, '-C', 'test/c') && system('make', '-s', jobs, '-C', 'test/fuzz', 'replay')
      note('C tests', ok ? 'passed' : 'FAILED')
      @total[:errors] += 1 unless ok
      @failed ||= !ok
    end

    # @return [Array<Array<Part>>] for each driver that works here
    def lanes_of(files)
      wanted = ENV['POLYPHONY_BACKEND'].to_s.delete_prefix('auto')
      Drivers.refusals.filter_map do |driver, refusal|
        next unless wanted.empty? || wanted == driver

        note(driver, "not run: #{refusal}") if refusal
        parts_of(driver, files) unless refusal
      end
    end

    # By hand one part is run, and one wants to see it go on.
    def side_by_side?(lanes)
      @paths.empty? && lanes.size > 1 && Etc.nprocessors > 1
    end

    def run_side_by_side(lanes)
      puts "\n== #{lanes.flatten(1).map(&:title).join(', ')}: each is shown when it has ended"
      threads = lanes.map.with_index do |parts, i|
        Thread.new { (i.odd? ? parts.reverse : parts).each { |part| run_part(part, StringIO.new) } }
      end
      threads.each(&:join)
      order = lanes.flatten(1).map(&:title)
      @lines = @lines.sort_by.with_index { |(title, _), i| [order.index(title) || -1, i] }
    ensure
      # If somebody ends this before they have ended.
      @running.to_a.each { |part, output| puts "\n== #{part.title}, not ended", output.string.lines.drop(2) }
    end

    # @return [Array<Part>]
    def parts_of(driver, files)
      files.group_by { |file| file[%r{\A(?:test/)?([^/]+)}, 1] }.flat_map do |folder, some|
        bundles(folder, driver).map do |title, (env, chosen)|
          Part.new("#{driver} #{folder}#{title}", some & (chosen || some), { 'POLYPHONY_BACKEND' => driver, **env })
        end
      end
    end

    # The adapters run with the gems they are for, on each driver also with other versions of some.
    # @return [Hash{String => Array}] what is added to the title => to the environment, and the files if not all
    def bundles(folder, driver)
      return { '' => [{}] } unless folder == 'adapters'

      name, gemfile = driver == 'libev' ? [', older gems', 'test/adapters/older/Gemfile'] : [', gems between', 'test/adapters/between/Gemfile']
      { '' => [bundle('test/adapters/Gemfile')], name => [bundle(gemfile), tests_of(gemfile)] }
    end

    # @return [Array<String>] those with the name of one of its gems in theirs
    def tests_of(gemfile)
      names = File.read(gemfile).scan(/^gem '([\w-]+)'/).flatten.map { |name| name == 'activerecord' ? 'active_record' : name.tr('-', '_') }
      Dir['test/adapters/test_*.rb'].grep(/_(?:#{names.join('|')})(?:_|\.rb)/).sort
    end

    # Where it is not installed the tests run without, and say what they skip. Bundler 4 tells children the name of the lockfile, too.
    def bundle(gemfile)
      return {} unless File.exist?("#{gemfile}.lock")

      { 'BUNDLE_GEMFILE' => File.expand_path(gemfile), 'BUNDLE_LOCKFILE' => File.expand_path("#{gemfile}.lock"),
        'BUNDLE_PATH' => File.expand_path('vendor/apps') }
    end

    # @param output [IO, StringIO] what the process writes, as it comes
    def run_part(part, output = $stdout)
      return if part.files.empty?

      @running[part] = output unless output == $stdout
      output.puts "\n== #{part.title}"
      run = WatchedProcess.new(part.env, command(part.files), output: output)
      began = now
      run.call
      unstable = names_that_pass_now(part, run, output)
      @lock.synchronize do
        $stdout.write(@running.delete(part).string) if @running.key?(part)
        count(part.title, run, now - began, unstable)
      end
    end

    # @return [Array<String>] all the tests of the part that have failed, if none does again
    def names_that_pass_now(part, run, output)
      again = SecondTry.after(run) if second_try?
      return [] unless again

      output.puts "\n== #{part.title}, once more: #{again.names.join(', ')}"
      second = WatchedProcess.new(part.env, command(part.files, again.options), output: output)
      second.call
      again.passed?(second) ? again.names : []
    end

    # By hand one wants to see what fails; `rake release:check` runs a part without anybody who looks.
    def second_try?
      (@paths.empty? || ENV['POLYPHONY_SECOND_TRY']) && !ENV['POLYPHONY_STRICT']
    end

    def command(files, options = @options)
      load_files = 'ARGV.shift(Integer(ARGV.shift)).each { |file| require File.expand_path(file) }'
      [RbConfig.ruby, '-w', '-Ilib', '-Itest', '-e', load_files, files.size.to_s, *files, *options]
    end

    def count(title, run, seconds, unstable)
      seed = run.output[/--seed \d+/]
      @failures.concat(run.output.scan(FAILURE).map { |text| "#{title}, #{seed}:#{text}" })
      summary = run.output.scan(SUMMARY).last
      if summary
        COUNTS.zip(summary) { |name, n| @total[name] += n.to_i }
        note(title, "#{COUNTS.zip(summary).map { |name, n| "#{n} #{name}" }.join(', ')} in #{seconds.round} s")
      end
      @unstable.concat(unstable.map { |name| "#{title}: #{name}" })
      @failed ||= @unstable.size > MOST_UNSTABLE
      return if summary && (run.success? || unstable.any?)

      @failed = true
      return if summary && run.exit_code == 1

      @total[:errors] += 1
      note(title, "ended early: #{run.describe_end}")
      @failures << "#{title}, #{seed}, ended early:\n#{last_words(run.output)}"
    end

    # What the watchdog of the tests or Ruby wrote before the process ended, or just the end: above, it drowns in what the others wrote.
    def last_words(output)
      from = output.rindex(/^watchdog: .* hangs|\[BUG\]/) || [output.size - LAST_WORDS, 0].max
      output[from, LAST_WORDS]
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end

    def note(title, text)
      @lines << [title, text]
    end

    def report
      puts '', '== failures', @failures unless @failures.empty?
      puts '', '== summary', @lines.map { |title, text| format('%-20s %s', title, text) }
      puts '', 'UNSTABLE, failed and passed when run once more by themselves:', @unstable unless @unstable.empty?
      puts COUNTS.map { |name| "#{@total[name]} #{name}" }.join(', ')
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('..', __dir__))
exit Polyphony::SuiteRun.new(ARGV).call
