# frozen_string_literal: true

module Polyphony
  # A few tests of a run that failed, to be run once more by themselves: a fault that is there every time fails twice and fails
  # the suite; one that needs this machine at this moment does not keep everybody else's work out, but is named in the summary,
  # where it stays until it is mended (docs/decisions/150-second-tries.md). What ends by a signal gets no second try: a crash is
  # never the machine's fault.
  class SecondTry
    MOST = 3                                            # tests of one process
    FAILED = /^ +\d+\) (?:Failure|Error):\n(\S+?#.+?)(?: \[[^\]\n]*:\d+\])?:$/.freeze
    COUNTED = /^(\d+) runs, \d+ assertions, 0 failures, 0 errors, (\d+) skips$/.freeze

    attr_reader :names

    # @param run [WatchedProcess] that has ended
    # @return [SecondTry, nil] if there is something to be tried again
    def self.after(run)
      return if run.exit_code != 1

      names = run.output.scan(FAILED).flatten.uniq
      new(names, run.output[/--seed (\d+)/, 1]) if names.size.between?(1, MOST)
    end

    def initialize(names, seed)
      @names = names
      @seed = seed
    end

    # @return [Array<String>] what minitest is to be told
    def options
      ['--seed', @seed, '-n', "/\\A(?:#{@names.map { |name| Regexp.escape(name) }.join('|')})\\z/"]
    end

    # @return [Boolean] whether each of them ran this time, and none failed
    def passed?(run)
      ran, skipped = run.output.scan(COUNTED).last&.map(&:to_i)
      run.success? && ran == @names.size && skipped.zero?
    end
  end
end
