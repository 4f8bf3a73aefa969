# frozen_string_literal: true

# Runs the interpreter's own test files without Polyphony and with it, and tells what differs:
#
#   ruby test/compat/run.rb [part of a file's name] [mode] [driver]
#   ruby test/compat/run.rb --page         writes the page again, with the explanations of today
#
# Without words: all files, the modes main and spun, every driver that works here; then docs/compatibility-ruby.md
# is written. COMPAT_SOURCE names the sources of the interpreter, COMPAT_JOBS how many files are run at once;
# COMPAT_PATIENCE=3 makes all limits three times as long, for a machine that has other things to do.
# Everything about a run is in tmp/compat: results.json, and the output of each file in logs/.

require 'etc'
require 'json'
require_relative '../support/drivers'
require_relative 'setting'
require_relative 'plan'
require_relative 'file_run'
require_relative 'comparison'
require_relative 'report'
require_relative 'page'

module Polyphony
  module Compat
    # One run, from the words of the command line to the exit status.
    class Run
      RESULTS = File.join(Plan::CACHE, 'results.json')
      PARTIAL = File.join(Plan::CACHE, 'partial.json')

      def initialize(filter, mode, driver)
        @whole = [filter, mode, driver].all? { |word| word.to_s.empty? }
        @modes = chosen(mode, Setting::MODES, Setting::USUAL, 'mode')
        @drivers = chosen(driver, working_drivers, working_drivers, 'driver')
        @plan = Plan.new(filter)
        abort "compat: no file is named like #{filter}; the list is in test/compat/files.yml" if @plan.files.empty?

        @explanations = Explanations.new
        @lock = Mutex.new
        @comparisons = []
      end

      # @return [Boolean] whether nothing differs that nobody has explained
      def call
        @begun = now
        puts "compat: #{@plan.files.size} files, #{settings.join(' ')}, against Ruby #{RUBY_VERSION} alone"
        work_off(@plan.files)
        @comparisons.sort_by!(&:file)
        write_results
        Report.new(@comparisons, settings, @explanations).tell(whole: @whole)
        puts "#{(now - @begun).round} s, details in #{@results.delete_prefix("#{Dir.pwd}/")}"
        Page.new(@plan, @comparisons, settings).write if @whole
        @comparisons.flat_map(&:differences).none?(&:open?)
      end

      # Writes the page again, with what the last whole run has recorded and what is explained by now.
      # @return [Boolean] as call
      def self.rewrite_page
        abort 'compat: nothing is recorded: run it without words first' unless File.exist?(RESULTS)
        record = JSON.parse(File.read(RESULTS))
        settings = record.fetch('settings').map { |name| Setting.named(name) }
        explanations = Explanations.new
        comparisons = record.fetch('files').map { |file, told| Recorded.new(file, told, explanations) }
        Report.new(comparisons, settings, explanations).tell(whole: true)
        Page.new(Plan.new(nil), comparisons, settings).write
        comparisons.flat_map(&:differences).none?(&:open?)
      end

      private

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end

      def chosen(word, possible, usual, what)
        return usual if word.to_s.empty?
        return [word] if possible.include?(word)

        abort "compat: no such #{what}: #{word}; there are #{possible.join(', ')}"
      end

      def working_drivers
        @working_drivers ||= Drivers.refusals.select { |_name, refusal| refusal.nil? }.keys
      end

      def settings
        Setting.all(@modes, @drivers)
      end

      def work_off(files)
        queue = Queue.new
        files.each { |file| queue << file }
        queue.close
        workers = Array.new(Integer(ENV.fetch('COMPAT_JOBS', Etc.nprocessors))) do
          Thread.new { work(queue) }.tap { |thread| thread.abort_on_exception = true }
        end
        workers.each(&:join)
      ensure
        workers&.each(&:kill)&.each(&:join) # which ends the processes they have started
      end

      def work(queue)
        while (file = queue.shift)
          comparison = compare(file)
          @lock.synchronize do
            @comparisons << comparison
            tell(comparison)
          end
        end
      end

      # One setting after the other: some files use names or ports that they have to have for themselves.
      def compare(file)
        stock = [1, 2].map { |turn| FileRun.new(@plan, file, Setting.stock(turn)).call }
        comparison = Comparison.new(file, stock, @explanations)
        settings.each do |setting|
          run = -> { FileRun.new(@plan, file, setting, stock.last).call }
          comparison.add(setting, run.call, &run)
        end
        comparison
      end

      def tell(comparison)
        open = comparison.differences.select(&:open?)
        puts format('%<time>4d s  %<done>3d/%<all>d  %<file>-40s %<tests>4d tests  %<what>s',
                    time: now - @begun, done: @comparisons.size, all: @plan.files.size,
                    file: comparison.file, tests: comparison.count,
                    what: open.empty? ? '' : "#{open.size} differ")
      end

      def write_results
        text = JSON.pretty_generate('ruby' => RUBY_DESCRIPTION, 'settings' => settings.map(&:to_s),
                                    'files' => @comparisons.to_h { |c| [c.file, c.to_h] })
        @results = @whole ? RESULTS : PARTIAL
        File.write(@results, text)
      end
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('../..', __dir__))
begin
  run = Polyphony::Compat::Run
  exit ARGV == ['--page'] ? run.rewrite_page : run.new(*ARGV.values_at(0, 1, 2)).call
rescue Polyphony::Compat::Source::Missing => e
  abort "compat: #{e.message}"
end
