# frozen_string_literal: true

# One of the interpreter's test files, run by its own runner, with a record of every test:
#
#   ruby [-r preload] child.rb SOURCE RECORD SKIP spun|plain [options of the runner] FILE
#
# RECORD is written line by line, so that whoever watches knows what runs, and what ran when the process
# died. SKIP is a file of tests to leave out: Class#method, or /pattern/. Nothing but the interpreter is
# loaded here.

module Polyphony
  # :nodoc:
  module Compat
    STOCK_WRITE = IO.instance_method(:syswrite) unless const_defined?(:STOCK_WRITE)

    # The file that the parent reads. Tabs between the fields, strings dumped.
    class Record
      RANK = %w[pass skip fail error].freeze

      def initialize(path)
        @file = File.new(path, File::WRONLY | File::APPEND | File::CREAT)
        @pid = ::Process.pid
      end

      def start(test)
        @verdict = 'pass'
        @message = ''
        @started = now
        line('start', test.dump)
        Beat.start if beat?
      end

      # A test may have several outcomes, one of its own and one of its teardown: the worst counts.
      def outcome(error)
        verdict = verdict(error)
        return if RANK.index(verdict) <= RANK.index(@verdict)

        @verdict = verdict
        @message = "#{"#{error.class}: " if verdict == 'error'}#{error.message}"
      end

      def finish(test)
        gap = beat? ? Beat.stop.round(3) : 0.0
        line('end', test.dump, @verdict, (now - @started).round(3), gap, @message.b[0, 4000].dump)
      end

      def over
        line('over')
      end

      private

      def beat?
        defined?(Beat) && Beat.on?
      end

      def verdict(error)
        case error
        when nil                              then 'pass'
        when Test::Unit::PendedError          then 'skip'
        when Test::Unit::AssertionFailedError then 'fail'
        else 'error'
        end
      end

      # A forked child that strays into the runner has nothing to say.
      def line(*fields)
        STOCK_WRITE.bind_call(@file, "#{fields.join("\t")}\n") if ::Process.pid == @pid
      end

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end
    end

    # Prepended to the runner.
    module Recording
      def _start_method(test)
        Compat.record.start("#{test.class}##{test.__name__}")
        super
      end

      def record(_suite, _method, _assertions, _time, error)
        Compat.record.outcome(error)
        super
      end

      def _end_method(test)
        Compat.record.finish("#{test.class}##{test.__name__}")
        super
      end

      def _run(*)
        super.tap { Compat.record.over }
      end
    end

    # Extends the class of all tests.
    module Skipping
      def test_methods
        super.reject { |name| Compat.skip?("#{self}##{name}") }
      end
    end

    # Prepended to the tests: each runs in a fiber of its own, where Ruby asks the scheduler.
    module Spun
      def run(runner)
        Fiber.current.spin(:test) { super(runner) }.await
      end
    end

    # Prepended to the tests, whose check for forgotten traces counts those of the whole VM: ours is on while a
    # generator rests.
    module NoTraceHunt
      def tracepoint_capture_stat_get = nil
    end

    class << self
      attr_accessor :record

      def read_skips(path)
        patterns, names = File.readlines(path, chomp: true).partition { |line| line.start_with?('/') }
        @pattern = Regexp.union(patterns.map { |line| Regexp.new(line[1..-2]) })
        @names = names.to_h { |line| [line, true] }
      end

      def skip?(test)
        @names[test] || @pattern.match?(test)
      end
    end
  end
end

# No terminal is in reach of the tests, whoever started them, and the whole family can be ended at once.
::Process.setsid
source, record, skip, how = ARGV.shift(4)
$LOAD_PATH.unshift("#{source}/tool/lib")
require 'test/unit'

Polyphony::Compat.record = Polyphony::Compat::Record.new(record)
Polyphony::Compat.read_skips(skip)
Test::Unit::Runner.prepend Polyphony::Compat::Recording
Test::Unit::TestCase.singleton_class.prepend Polyphony::Compat::Skipping
Test::Unit::TestCase.prepend Polyphony::Compat::NoTraceHunt
Test::Unit::TestCase.prepend Polyphony::Compat::Spun if how == 'spun'

# The runner finds its folder through the name of the program.
$0 = "#{source}/test/runner.rb"
load $0
