# frozen_string_literal: true

module Polyphony
  module Compat
    # docs/compatibility-ruby.md: what came out of a whole run, per file, and why it is not the same where it is not.
    class Page
      PATH = File.expand_path('../../docs/compatibility-ruby.md', __dir__)

      def initialize(plan, comparisons, settings)
        @plan = plan
        @comparisons = comparisons
        @settings = settings
      end

      def write
        File.write(PATH, text)
      end

      # @return [String]
      def text
        [head, counts, open_ones, explained, files, not_compared, left_out].compact.join("\n")
      end

      private

      def head
        <<~TEXT
          # Compatibility with stock Ruby

          `bundle exec rake compat` wrote this page. It runs the interpreter's own test files twice without Polyphony and then with
          it, and compares test by test; here Ruby #{RUBY_VERSION}p#{RUBY_PATCHLEVEL} with its own tests, on #{drivers.join(' and ')}.

          * *main*: `-rpolyphony`, a backend open and a fiber that beats every 5 ms, the test in the root fiber. Processes that the test
            starts are run the same way.
          * *spun*: the same, with each test in a fiber of its own. Processes that the test starts are stock.

          A test counts when it passes both times without Polyphony. It *differs* when it then fails, hangs, is skipped or is missing in
          two runs of two; *once* means in one run of two. How the harness works: [decision 031](decisions/031-compat.md).
        TEXT
      end

      def drivers
        @settings.map(&:driver).uniq
      end

      def modes
        @settings.map(&:mode).uniq
      end

      def differences
        @differences ||= @comparisons.flat_map(&:differences)
      end

      def counts
        rows = @settings.map do |setting|
          mine = differences.select { |d| d.setting == setting }
          [setting.mode, setting.driver, mine.count(&:open?), mine.count(&:explained?),
           mine.count { |d| !d.steady && !d.explained? }]
        end
        "#{total} tests in #{@comparisons.size} files are compared.\n\n" +
          table(%w[mode driver differ explained once], rows)
      end

      def total
        @comparisons.sum { |comparison| comparison.count }
      end

      def table(head, rows)
        ([head, head.map { '---' }] + rows).map { |row| "| #{row.join(' | ')} |\n" }.join
      end

      def open_ones
        lines = grouped(differences.select(&:open?)).map { |name, cases| "* #{name}: #{where(cases)}\n" }
        "## Differences that nobody has explained\n\n#{lines.empty? ? "None.\n" : lines.join}"
      end

      def grouped(differences)
        differences.group_by { |d| "#{d.file} `#{d.test}`" }
      end

      # In words: the settings, or only the mode when every driver is in it.
      def where(cases)
        by_mode = cases.map(&:setting).group_by(&:mode)
        by_mode.map { |mode, all| all.size == drivers.size ? mode : all.join(', ') }.join(', ')
      end

      def explained
        found = differences.select(&:explained?).group_by { |d| [d.file, d.reason] }
        return "## Differences that are explained\n\nNone.\n" if found.empty?

        parts = found.map do |(file, reason), cases|
          tests = cases.group_by(&:test).map { |test, mine| "`#{test}` (#{where(mine)})" }
          "* #{file}: #{tests.join(', ')}.\n  #{reason.tr("\n", ' ')}\n"
        end
        "## Differences that are explained\n\nThey stand in `test/compat/differences.yml`.\n\n#{parts.join}"
      end

      def files
        parts = @comparisons.group_by { |c| @plan.groups.fetch(c.file) }.sort_by { |group, _| @plan.groups.values.index(group) }
        parts.map { |group, mine| "## #{group}\n\n#{table(['file', 'tests', 'not compared', *modes], rows(mine))}" }
             .join("\n")
      end

      def rows(comparisons)
        comparisons.map do |c|
          [c.file, c.count, c.excluded.size, *modes.map { |mode| cell(c, mode) }]
        end
      end

      # How many tests differ, on any driver.
      def cell(comparison, mode)
        mine = comparison.differences.select { |d| d.setting.mode == mode && d.steady }
        open, known = mine.partition(&:open?).map { |list| list.map(&:test).uniq.size }
        return 'same' if open.zero? && known.zero?

        [("**#{open} differ**" if open.positive?), ("#{known} explained" if known.positive?)].compact.join(', ')
      end

      def not_compared
        lines = @comparisons.flat_map do |c|
          c.excluded.reject { |_, why| why == 'skip' }.map { |test, why| "* #{c.file} `#{test}`: #{why}\n" }
        end
        skipped = @comparisons.sum { |c| c.excluded.count { |_, why| why == 'skip' } }
        "## Not compared\n\n#{skipped} tests are skipped by stock Ruby here. These do not pass in it, or not always:\n\n" \
          "#{lines.empty? ? "None.\n" : lines.join}"
      end

      def left_out
        lines = @plan.reasons_left_out.map { |pattern, reason| "* `#{pattern}`: #{reason}\n" }
        "These are never run:\n\n#{lines.join}"
      end
    end
  end
end
