# frozen_string_literal: true

require 'io/wait'

module Polyphony
  # Runs a command, shows its output as it comes, keeps it, and ends it when it has been silent for
  # too long or has taken longer than it may. The tests have a watchdog of their own, which tells
  # more; this one is for a process that is stuck in C with the GVL held, where no Ruby runs.
  class WatchedProcess
    SILENCE = 300
    GRACE = 20

    attr_reader :output

    # @param limit [Numeric, nil] seconds it may take in all
    # @param output [IO, StringIO] where its output is shown
    def initialize(env, command, silence: SILENCE, limit: nil, output: $stdout)
      @env = env
      @command = command
      @silence = silence
      @limit = limit
      @shown = output
      @output = +''
    end

    def call
      IO.pipe do |reader, writer|
        pid = ::Process.spawn(@env, *@command, out: writer, err: writer, in: File::NULL)
        writer.close
        follow(reader, pid)
        _, @status = ::Process.wait2(pid)
      end
    end

    def success?
      @status.success?
    end

    def exit_code
      @status.exitstatus
    end

    def describe_end
      return "#{@given_up}, ended by us" if @given_up

      @status.signaled? ? "signal #{Signal.signame(@status.termsig)}" : "exit status #{exit_code}"
    end

    private

    # Ends with the command rather than with the pipe: a grandchild may hold the pipe open.
    def follow(reader, pid)
      @started = @heard = now
      loop do
        if reader.wait_readable(0.2)
          chunk = reader.read_nonblock(65_536, exception: false)
          break if chunk.nil?

          show(chunk) unless chunk == :wait_readable
        elsif ended?(pid)
          break
        end
        check_time(pid)
      end
    end

    def show(chunk)
      @shown.write(chunk)
      @output << chunk.scrub
      @heard = now
    end

    def check_time(pid)
      if @given_up
        ::Process.kill(:KILL, pid) if now > @given_up_at + GRACE
      elsif now - @heard > @silence
        give_up_on(pid, "silent for #{@silence} seconds")
      elsif @limit && now - @started > @limit
        give_up_on(pid, "still running after #{@limit} seconds")
      end
    end

    # SIGSEGV makes Ruby write where it is, in Ruby and in C.
    def give_up_on(pid, why)
      @given_up = why
      @given_up_at = now
      ::Process.kill(:SEGV, pid)
    end

    # Looks without taking the status away from wait2.
    def ended?(pid)
      File.read("/proc/#{pid}/stat")[/\) (\S)/, 1] == 'Z'
    rescue Errno::ENOENT
      false
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
