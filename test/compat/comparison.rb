# frozen_string_literal: true

require 'yaml'
require_relative 'file_run'
require_relative 'setting'

module Polyphony
  module Compat
    # The differences that are known and explained, in differences.yml.
    class Explanations
      Entry = Struct.new(:file, :tests, :modes, :drivers, :reason, :used) do
        def about?(file, test, setting)
          file == self.file && tests.include?(test) &&
            (modes.nil? || modes.include?(setting.mode)) &&
            (drivers.nil? || drivers.include?(setting.driver))
        end
      end

      LIST = File.expand_path('differences.yml', __dir__)
      KEYS = %w[tests modes drivers reason].freeze

      # @return [Array<Entry>]
      attr_reader :entries

      # @raise [ArgumentError] for an entry that says something else than it may
      def initialize(text = File.read(LIST))
        @entries = (YAML.safe_load(text, aliases: true) || {}).flat_map do |file, list|
          list.map { |entry| entry_of(file, entry) }
        end
      end

      # @return [String, nil]
      def reason(file, test, setting)
        entry = @entries.find { |candidate| candidate.about?(file, test, setting) }
        entry&.used = true
        entry&.reason
      end

      # @return [Array<Entry>] those that explained nothing
      def unused
        @entries.reject(&:used)
      end

      private

      def entry_of(file, entry)
        unknown = entry.keys - KEYS
        raise ArgumentError, "#{file}: no such key: #{unknown.join(', ')}; there are #{KEYS.join(', ')}" if unknown.any?

        Entry.new(file, entry.fetch('tests'), entry['modes'], entry['drivers'], entry.fetch('reason').strip, false)
      end
    end

    # A test that passes without Polyphony and does not with it. It is +steady+ when it differed in two
    # runs of two.
    Difference = Struct.new(:file, :test, :setting, :outcome, :reason, :steady) do
      def explained?
        !reason.nil?
      end

      # Whether somebody has to look at it.
      def open?
        steady && !explained?
      end
    end

    # One file: what it does without Polyphony, twice, and what is different with it.
    class Comparison
      attr_reader :file, :differences

      # @param stock [Array<Hash{String => Outcome}>] of the runs without Polyphony
      def initialize(file, stock, explanations)
        @file = file
        @stock = stock
        @explanations = explanations
        @differences = []
        @runs = {}
      end

      # @return [Array<String>] tests that pass without Polyphony, each time
      def compared
        @compared ||= @stock.first.keys.select { |test| @stock.all? { |run| run[test]&.pass? } }
      end

      # @return [Integer]
      def count
        compared.size
      end

      # @return [Hash{String => String}] the others => why they are not compared
      def excluded
        @excluded ||= (@stock.flat_map(&:keys).uniq - compared).to_h do |test|
          [test, @stock.map { |run| run[test]&.verdict || 'missing' }.uniq.join(', ')]
        end
      end

      # Takes the outcomes of a setting in.
      # @yield when there is something nobody has explained: runs it again
      # @yieldreturn [Hash{String => Outcome}]
      def add(setting, outcomes)
        @runs[setting] = outcomes
        found = differing(outcomes).map { |test| difference(test, setting, outcomes[test]) }
        again = found.all?(&:explained?) ? nil : differing(yield)
        found.each { |difference| difference.steady = again.nil? || again.include?(difference.test) }
        @differences.concat(found)
      end

      # @param least [Float] seconds
      # @return [Hash{String => Float}] tests in which the loop stood still for longer => how long
      def gaps(setting, least = 0.1)
        @runs.fetch(setting).select { |_test, outcome| outcome.gap > least }.transform_values(&:gap)
      end

      # @return [Hash] for the machine-readable file
      def to_h
        { 'compared' => count, 'excluded' => excluded,
          'seconds' => @stock.last.each_value.sum(&:seconds).round(1),
          'settings' => @runs.to_h { |setting, outcomes| [setting.to_s, run_to_h(setting, outcomes)] } }
      end

      private

      def differing(outcomes)
        compared.reject { |test| outcomes[test]&.pass? }
      end

      def difference(test, setting, outcome)
        outcome ||= Outcome.new('missing', 'was not run', 0, 0)
        Difference.new(@file, test, setting, outcome, @explanations.reason(@file, test, setting), true)
      end

      def run_to_h(setting, outcomes)
        mine = @differences.select { |difference| difference.setting == setting }
        { 'seconds' => outcomes.each_value.sum(&:seconds).round(1),
          'gaps' => gaps(setting),
          'differences' => mine.to_h { |d| [d.test, difference_to_h(d)] } }
      end

      def difference_to_h(difference)
        { 'verdict' => difference.outcome.verdict, 'message' => difference.outcome.message.scrub('?'),
          'reason' => difference.reason, 'steady' => difference.steady }
      end
    end

    # The same, as an earlier run has recorded it: explaining a difference does not take another run.
    class Recorded
      attr_reader :file, :count, :excluded, :differences

      # @param record [Hash] what Comparison#to_h made
      def initialize(file, record, explanations)
        @file = file
        @count = record.fetch('compared')
        @excluded = record.fetch('excluded')
        @runs = record.fetch('settings')
        @differences = @runs.flat_map do |name, run|
          setting = Setting.named(name)
          run.fetch('differences').map { |test, told| difference(test, setting, told, explanations) }
        end
      end

      # @see Comparison#gaps
      def gaps(setting, least = 0.1)
        @runs.fetch(setting.to_s).fetch('gaps').select { |_test, gap| gap > least }
      end

      private

      def difference(test, setting, told, explanations)
        outcome = Outcome.new(told.fetch('verdict'), told.fetch('message'), 0, 0)
        Difference.new(@file, test, setting, outcome, explanations.reason(@file, test, setting), told.fetch('steady'))
      end
    end
  end
end
