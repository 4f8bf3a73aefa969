# frozen_string_literal: true

# Runs the suite: the C tests of layer 0, then the tests which concern the tree and the gem (the
# files directly in test/), then everything in test/*/ once per driver that works here.
# Each of these, and each folder, is a process of its own: a crash in one does not hide the others, and what the tests
# of one have left in memory does not make each collection and each fork of the others slower.
#
#   ruby test/run.rb [files or folders] [-- options of minitest]

require 'etc'
require 'rbconfig'
require_relative 'support/drivers'
require_relative 'support/watched_process'

module Polyphony
  # One run of the suite and its summary.
  class SuiteRun
    COUNTS = %i[runs assertions failures errors skips].freeze
    SUMMARY = /^(\d+) runs, (\d+) assertions, (\d+) failures, (\d+) errors, (\d+) skips$/.freeze

    def initialize(argv)
      split = argv.index('--') || argv.size
      @paths = argv[0...split]
      @options = argv[(split + 1)..] || []
      @lines = []
      @total = COUNTS.to_h { |name| [name, 0] }
      @failed = false
    end

    # @return [Boolean] whether all went well
    def call
      run_c_tests if @paths.empty?
      once, per_driver = test_files.partition { |file| File.dirname(file) == 'test' }
      run_ruby_tests('tree and gem', once, {})
      run_on_drivers(per_driver)
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

    def run_on_drivers(files)
      return if files.empty?

      Drivers.refusals.each do |driver, refusal|
        if refusal
          note(driver, "not run: #{refusal}")
        else
          run_folders(driver, files)
        end
      end
    end

    def run_folders(driver, files)
      files.group_by { |file| file[%r{\A(?:test/)?([^/]+)}, 1] }.each do |folder, some|
        run_ruby_tests("#{driver} #{folder}", some, 'POLYPHONY_BACKEND' => driver)
      end
    end

    def run_ruby_tests(title, files, env)
      return if files.empty?

      puts "\n== #{title}"
      load_files = 'ARGV.shift(Integer(ARGV.shift)).each { |file| require File.expand_path(file) }'
      command = [RbConfig.ruby, '-w', '-Ilib', '-Itest', '-e', load_files,
                 files.size.to_s, *files, *@options]
      run = WatchedProcess.new(env, command)
      began = now
      run.call
      count(title, run, now - began)
    end

    def count(title, run, seconds)
      summary = run.output.scan(SUMMARY).last
      if summary
        COUNTS.zip(summary) { |name, n| @total[name] += n.to_i }
        note(title, "#{COUNTS.zip(summary).map { |name, n| "#{n} #{name}" }.join(', ')} in #{seconds.round} s")
      end
      return if run.success? && summary

      @failed = true
      return if summary && run.exit_code == 1

      @total[:errors] += 1
      note(title, "ended early: #{run.describe_end}")
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end

    def note(title, text)
      @lines << format('%-20s %s', title, text)
    end

    def report
      puts '', '== summary', @lines
      puts COUNTS.map { |name| "#{@total[name]} #{name}" }.join(', ')
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('..', __dir__))
exit Polyphony::SuiteRun.new(ARGV).call
