# frozen_string_literal: true

# Runs the interpreter's own test files without Polyphony and with it, and tells what differs:
#
#   ruby test/compat/run.rb [part of a file's name] [mode] [driver]
#
# Without words: all files, the modes main and spun, every driver that works here; then docs/compatibility.md
# is written. COMPAT_SOURCE names the sources of the interpreter, COMPAT_JOBS how many files are run at once.
# Everything about a run is in tmp/compat: results.json, and the output of each file in logs/.

require 'etc'
require 'json'
require_relative '../support/drivers'
require_relative 'setting'
require_relative 'plan'
require_relative 'file_run'
require_relative 'comparison'
require_relative 'page'

module Polyphony
  module Compat
    # One run, from the words of the command line to the exit status.
    class Run
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
        report
        write_page if @whole
        differences.none?(&:open?)
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
                    file: comparison.file, tests: comparison.compared.size,
                    what: open.empty? ? '' : "#{open.size} differ")
      end

      def differences
        @comparisons.flat_map(&:differences)
      end

      def write_results
        text = JSON.pretty_generate('ruby' => RUBY_DESCRIPTION, 'settings' => settings.map(&:to_s),
                                    'files' => @comparisons.to_h { |c| [c.file, c.to_h] })
        @results = File.join(Plan::CACHE, @whole ? 'results.json' : 'partial.json')
        File.write(@results, text)
      end

      def report
        list('passes in stock Ruby, not with Polyphony', differences.select(&:open?))
        list('differed once, and not when run again', differences.reject { |d| d.steady || d.explained? })
        tell_excluded
        tell_unused if @whole
        tell_counts
      end

      def list(title, differences)
        return if differences.empty?

        puts '', "== #{title}"
        differences.group_by { |d| [d.file, d.test] }.each do |(file, test), cases|
          puts "#{file} #{test} (#{cases.map(&:setting).join(' ')})"
          cases.map { |d| "#{d.outcome.verdict}: #{d.outcome.summary}" }.uniq.each { |line| puts "    #{line}" }
        end
      end

      def tell_excluded
        left = @comparisons.flat_map { |c| c.excluded.map { |test, why| [c.file, test, why] } }
        left.reject! { |_file, _test, why| why == 'skip' }
        return if left.empty?

        puts '', '== not compared: does not pass in stock Ruby here, or not always'
        left.each { |words| puts words.join('  ') }
      end

      def tell_unused
        return if @explanations.unused.empty?

        puts '', '== explained in differences.yml, but not seen'
        @explanations.unused.each { |entry| puts "#{entry.file} #{entry.tests.join(' ')}" }
      end

      def tell_counts
        puts '', "#{@comparisons.sum { |c| c.compared.size }} tests compared in #{@comparisons.size} files, " \
                 "#{(now - @begun).round} s, details in #{@results.delete_prefix("#{Dir.pwd}/")}"
        settings.each do |setting|
          mine = differences.select { |d| d.setting == setting }
          puts format('%<setting>-14s %<open>d differ, %<known>d differ and are explained, %<once>d differed once, ' \
                      '%<still>d stopped the loop for half a second',
                      setting: setting, open: mine.count(&:open?), known: mine.count(&:explained?),
                      once: mine.count { |d| !d.steady && !d.explained? },
                      still: @comparisons.sum { |c| c.gaps(setting, 0.5).size })
        end
      end

      def write_page
        Page.new(@plan, @comparisons, settings).write
      end
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('../..', __dir__))
begin
  exit Polyphony::Compat::Run.new(*ARGV.first(3).values_at(0, 1, 2)).call
rescue Polyphony::Compat::Source::Missing => e
  abort "compat: #{e.message}"
end
