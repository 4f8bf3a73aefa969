# frozen_string_literal: true

require 'polyphony/core'

module Polyphony
  # Fibers that wait for each other, for locks or ends: they will for ever, unless somebody ends one of these waits.
  # @see Polyphony.report_deadlocks
  class Cycle
    # @return [Array<Fiber>] in order: each waits for the next, the last for the first
    attr_reader :fibers
    # @return [Float] how long all of them have waited
    attr_reader :seconds
    # @return [Array<Fiber>] others that wait for these
    attr_reader :behind

    # @api private
    def initialize(fibers, seconds, behind = [])
      @fibers = fibers
      @seconds = seconds
      @behind = behind
      @data = fibers.map { |fiber| WaitReport.data(fiber) }
      @lines = fibers.flat_map { |fiber| WaitReport.lines(fiber) }
    end

    # @return [Array] the same for those that have the same cause: where the fibers were spun, and what they wait for
    def place
      @data.map { |one| [one[:spun_at], one[:reason]] }.sort_by(&:to_s)
    end

    # @return [String] what is written to standard error
    def to_s
      lines = ["polyphony: #{fibers.size} fibers wait for each other, for #{format('%.1f', seconds)} s so far, and always will", *@lines]
      lines << "behind them: #{behind.first(5).map { |fiber| WaitReport.title(fiber) }.join(', ')}#{" and #{behind.size - 5} more" if behind.size > 5}" unless behind.empty?
      lines.join("\n  ")
    end

    # @return [Hash]
    def to_h(*)
      { seconds: seconds.round(3), fibers: @data, behind: behind.map { |fiber| WaitReport.data(fiber) } }
    end

    # @return [String]
    def to_json(*args)
      require 'json'
      to_h.to_json(*args)
    end
  end
end
