# frozen_string_literal: true

require 'rbconfig'

module Polyphony
  # A fiber that has kept its thread to itself: other fibers of that thread could not run.
  # @see Polyphony.report_stalls
  class Stall
    # Lines of Ruby's own and of ours, which say little of where the trouble is.
    # @api private
    OURS = %r{\A(<internal:|#{Regexp.escape(File.expand_path('../..', __dir__))}/polyphony(/|\.rb))}.freeze

    # How many lines of the backtrace are shown.
    SHOWN = 3
    private_constant :SHOWN

    # @return [Fiber] whose turn it was
    attr_reader :fiber
    # @return [Thread] that it kept
    attr_reader :thread
    # @return [Float] how long; so far, if it goes on
    attr_reader :seconds
    # @return [Array<String>] where it was, the innermost line first, without lines of Polyphony
    attr_reader :backtrace
    # @return [Symbol] +:waiting+ in a call that does not let other fibers run, +:computing+, or +:unknown+ if it was over before
    #   it could be looked at; the backtrace then tells where the fiber came to a switchpoint again
    attr_reader :kind

    # @return [Array<Fiber>] those of the same thread that could have run: they were in the queue, or their sleep was over; 100 at most.
    #   Who waited for input cannot be known, because nobody has looked
    attr_reader :waiting

    # @api private
    def initialize(fiber:, thread:, seconds:, backtrace:, kind:, over:, rivals: 0, waiting: [])
      @fiber = fiber
      @thread = thread
      @seconds = seconds
      @backtrace = (backtrace || []).grep_v(OURS)
      @kind = kind
      @over = over
      @rivals = rivals
      @waiting = waiting
    end

    # @return [Boolean] whether the fiber has given way since
    def over?
      @over
    end

    # @return [String, nil] the innermost line; nil if the fiber has ended
    def location
      backtrace.first
    end

    # @return [Array<String>] the same for stalls that have the same cause: the innermost line, and the innermost of the program
    def place
      [location || "#{fiber.location} (ended)", own_line].compact.uniq
    end

    # @return [String] what is written to standard error
    def to_s
      ["polyphony: #{WaitReport.in_line(fiber.inspect)} #{over? ? 'kept' : 'has kept'} its thread for #{format('%.3f', seconds)} s#{' so far' unless over?}, " \
       "no other fiber could run there#{where}", *lines.map { |line| "    #{line}" }, *who_waited, "  #{advice}", *adapter_advice].join("\n")
    end

    private

    # The innermost that is neither a gem's nor Ruby's.
    def own_line
      backtrace.find { |line| !line.match?(LIBRARIES) }
    end

    def lines
      lines = backtrace.first(SHOWN)
      own = own_line
      own.nil? || lines.include?(own) ? lines : [*lines, '...', own]
    end

    def who_waited
      return if waiting.empty?

      names = waiting.first(SHOWN).map { |fiber| WaitReport.in_line(fiber.tag ? "#{fiber.tag} (#{fiber.location})" : fiber.location) }
      "  Meanwhile waited #{names.join(', ')}#{" and #{waiting.size - SHOWN} more" if waiting.size > SHOWN}."
    end

    def where
      return '; it has ended' if backtrace.empty?

      { waiting: ', waiting in', computing: ', computing in' }.fetch(kind, '; it gave way again in')
    end

    def advice
      return BUSY_THREADS if kind == :computing && @rivals.positive?

      ADVICE.fetch(kind)
    end

    # A call of C code's own has no line in the backtrace that would tell the gem.
    def adapter_advice
      gems = ADAPTED.reject { |gem, name| !::Object.const_defined?(name) || ::Object.autoload?(name) || adapter?(gem) }.keys
      return if gems.empty?

      "  If it is a call of #{gems.join(', ')}: require 'polyphony/adapters/auto', with which it lets other fibers run."
    end

    def adapter?(gem)
      $LOADED_FEATURES.any? { |path| path.end_with?("/polyphony/adapters/#{gem}.rb") }
    end

    # Gems whose calls stop the thread unless they have their adapter, and what is there when they are loaded.
    ADAPTED = { 'pg' => :PG, 'mysql2' => :Mysql2, 'trilogy' => :Trilogy, 'sqlite3' => :SQLite3, 'extralite' => :Extralite }.freeze
    private_constant :ADAPTED

    ADVICE = {
      waiting: 'Run it in Polyphony.blocking { }: a thread waits there, and this one goes on.',
      computing: 'Let it snooze now and then, or give the work to a process, or to a thread with Polyphony.blocking { }.',
      unknown: 'What comes before that line waits or computes: run it in Polyphony.blocking { }.'
    }.freeze
    BUSY_THREADS = 'Other threads were computing, too, and Ruby runs one at a time: perhaps it only waited for its turn.'
    private_constant :ADVICE, :BUSY_THREADS

    # Where gems and Ruby's own libraries live.
    LIBRARIES = begin
      folders = [RbConfig::CONFIG['rubylibprefix'], *(Gem.path if defined?(Gem)), *(Gem.default_dir if defined?(Gem))]
      /\A(#{folders.compact.uniq.map { |folder| Regexp.escape(folder) }.join('|')})/.freeze
    end
    private_constant :LIBRARIES
  end
end
