# frozen_string_literal: true

module Polyphony
  module Compat
    # What somebody at a terminal wants to know when all is done.
    class Report
      def initialize(comparisons, settings, explanations)
        @comparisons = comparisons
        @settings = settings
        @explanations = explanations
      end

      # @param whole [Boolean] whether every file was run in every setting
      def tell(whole:)
        list('passes in stock Ruby, not with Polyphony', differences.select(&:open?))
        list('differed once, and not when run again', differences.reject { |d| d.steady || d.explained? })
        tell_excluded
        tell_unused if whole
        tell_counts
      end

      private

      def differences
        @differences ||= @comparisons.flat_map(&:differences)
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
        puts '', "#{@comparisons.sum(&:count)} tests compared in #{@comparisons.size} files"
        @settings.each do |setting|
          mine = differences.select { |d| d.setting == setting }
          puts format('%<setting>-14s %<open>d differ, %<known>d differ and are explained, %<once>d differed once, ' \
                      '%<still>d stopped the loop for half a second',
                      setting: setting, open: mine.count(&:open?), known: mine.count(&:explained?),
                      once: mine.count { |d| !d.steady && !d.explained? },
                      still: @comparisons.sum { |c| c.gaps(setting, 0.5).size })
        end
      end
    end
  end
end
