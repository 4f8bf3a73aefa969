# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'
require 'tmpdir'

module Polyphony
  module Compat
    # What became of one test. The verdicts: pass, skip, fail and error are the runner's; a test is crash
    # when the process died in it, exit when it left the process, timeout when it had no end, and missing
    # when it was not run.
    Outcome = Struct.new(:verdict, :message, :seconds, :gap) do
      # @return [String] what it was about, in one line
      def summary
        message.to_s.scrub('?').split("\n").map(&:strip).reject(&:empty?).join(' ')[0, 200]
      end

      def pass?
        verdict == 'pass'
      end
    end

    # Runs one file in one setting, in a process of its own. When that dies, or hangs, the test that it was
    # in gets the blame, and the file is run again without those that are done.
    class FileRun
      # The process itself counts as a test: it has to end by itself when all tests are done.
      THE_END = '(end of the process)'
      MOST_STARTS = 25
      # On a machine that is busy with other things COMPAT_PATIENCE=3 makes all limits longer, also the tests' own.
      PATIENCE_FACTOR = Float(ENV.fetch('COMPAT_PATIENCE', 1))
      PATIENCE = 20 * PATIENCE_FACTOR

      # @param plan [Plan]
      # @param file [String] below the folder test/ of the sources
      # @param usual [Hash{String => Outcome}] of the run without Polyphony: tells how long tests take
      # @param patience [Numeric] seconds that any test may take, besides five times the usual
      def initialize(plan, file, setting, usual = {}, patience: PATIENCE)
        @plan = plan
        @patience = patience
        @file = file
        @setting = setting
        @usual = usual
        @outcomes = {}
        @log = File.join(plan.folder('logs'), setting.to_s, "#{file.tr('/', '-')}.log")
        FileUtils.mkdir_p(File.dirname(@log))
        FileUtils.rm_f(@log)
      end

      # @return [Hash{String => Outcome}] by test
      def call
        deadline = now + file_limit
        MOST_STARTS.times do
          break if Dir.mktmpdir('compat') { |folder| run_once(folder, deadline) } == :over
          break if now > deadline
        end
        @outcomes
      end

      private

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end

      # @return [Symbol] :over when there is nothing left to run
      def run_once(folder, deadline)
        @current = nil
        @over = false
        record = File.join(folder, 'record')
        FileUtils.touch(record)
        pid = start(folder, record)
        status = File.open(record) { |file| watch(pid, file, deadline) }
        @over || @current.nil? ? note_the_end(status) : blame(status)
      ensure
        end_session(pid) if pid
      end

      CHILD = File.expand_path('child.rb', __dir__)
      private_constant :CHILD

      def start(folder, record)
        skip = File.join(folder, 'skip')
        File.write(skip, (@plan.left_out + @outcomes.keys).map { |line| "#{line}\n" }.join)
        work = File.join(folder, 'work')
        Dir.mkdir(work)
        spawn(environment(work), RbConfig.ruby, *@setting.options, CHILD, @plan.source, record, skip,
              @setting.how, '-v', '--test-order=sorted', "--excludes-dir=#{@plan.source}/test/excludes",
              "#{@plan.source}/test/#{@file}",
              unsetenv_others: true, chdir: @plan.source, in: File::NULL, %i[out err] => [@log, 'a'],
              rlimit_core: 0)
      end

      # As on a fresh machine: neither the user's settings nor bundler's reach the tests.
      def environment(work)
        conf = "#{@plan.source}/debian/openssl.cnf"
        env = { 'PATH' => ENV.fetch('PATH'), 'HOME' => work, 'TMPDIR' => work, 'USER' => ENV['USER'],
                'LANG' => 'C.UTF-8', 'LC_ALL' => 'C.UTF-8', 'RUBY' => RbConfig.ruby,
                'RUBYLIB' => @plan.extensions, 'RUBY_TEST_TIMEOUT_SCALE' => PATIENCE_FACTOR.to_s,
                'OPENSSL_CONF' => (conf if File.exist?(conf)) }
        env.compact.merge(@setting.environment)
      end

      # @return [::Process::Status, nil] nil when it was ended by us
      def watch(pid, record, deadline)
        @waiter = ::Process.detach(pid)
        @since = now
        until @waiter.join(0.5)
          read(record)
          return stop(pid, record) if now - @since > limit_of(@current) || now > deadline
        end
        read(record)
        @waiter.value
      end

      # @return [nil]
      def stop(pid, record)
        ::Process.kill(:SEGV, pid) # Ruby writes where it is
        @waiter.join(2)
        end_session(pid)
        @waiter.join
        read(record)
      end

      def read(record)
        record.each_line(chomp: true) { |line| take(*line.split("\t")) }
        nil
      end

      def take(event, test = nil, verdict = nil, seconds = nil, gap = nil, message = nil)
        @since = now
        case event
        when 'start' then @current = test.undump
        when 'over'  then @over = true
        else
          @outcomes[test.undump] = Outcome.new(verdict, message.undump, seconds.to_f, gap.to_f)
          @current = nil
        end
      end

      def limit_of(test)
        return 6 * PATIENCE if @usual.empty?

        @patience + (5 * (@usual[test]&.seconds || 0))
      end

      def file_limit
        return 20 * PATIENCE if @usual.empty?

        (6 * @patience) + (5 * @usual.each_value.sum(&:seconds))
      end

      def note_the_end(status)
        @outcomes[THE_END] =
          if !@over || !status&.exited? then ending(status)
          elsif @outcomes.empty?        then Outcome.new('missing', "no test was run: #{last_words}", 0, 0)
          else Outcome.new('pass', '', 0, 0)
          end
        :over
      end

      def blame(status)
        @outcomes[@current] = ending(status)
        :again
      end

      def ending(status)
        if status.nil?         then Outcome.new('timeout', "does not end, in #{place}", 0, 0)
        elsif status.signaled? then Outcome.new('crash', "SIG#{Signal.signame(status.termsig)} #{bug}", 0, 0)
        else Outcome.new('exit', "exit #{status.exitstatus}: #{last_words}", 0, 0)
        end
      end

      def log
        File.binread(@log)
      end

      def bug
        log.lines.grep(/\[BUG\]/).last.to_s.chomp
      end

      # Where Ruby says it was, when we ended it: the two innermost lines.
      def place
        frames = log.rpartition('-- Ruby level backtrace information').last.split("\n\n").first.to_s.lines
        frames.drop(1).last(2).reverse.map(&:strip).join(', from ')
      end

      # What looks like the reason, or else how it ended.
      def last_words
        lines = log.lines.map(&:strip)
        lines.grep(/\(\w+(::\w+)*Error\)|cannot load such file/).last || lines.last(3).join(' ')
      end

      # Whatever a test left behind is in the session of the process that we started. Its number is not
      # given to another process while somebody is in that session.
      def end_session(pid)
        left = session(pid)
        left |= [pid] if @waiter&.alive?
        left.each do |member|
          ::Process.kill(:KILL, member)
        rescue Errno::ESRCH
          next
        end
      end

      # proc(5): behind the name, which may hold anything, come state, parent, group, session.
      def session(pid)
        Dir['/proc/[0-9]*/stat'].filter_map do |file|
          fields = File.read(file).rpartition(') ').last.split
          Integer(file[/\d+/]) if fields[3] == pid.to_s
        rescue Errno::ENOENT, Errno::ESRCH
          next
        end
      end
    end
  end
end
