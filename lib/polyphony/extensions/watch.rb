# frozen_string_literal: true

module Polyphony
  # Child processes that do not outlive the fiber which has started them. (Inside of Polyphony, Ruby's own
  # module is ::Process.)
  module Process
    # How many seconds a child may take to end by itself when it is told to.
    GRACE = 5

    class << self
      # Runs a command, or the block in a forked child, and waits for its end. If the wait is cut short, the
      # child is ended, too. Its status is in +$?+.
      # @param command [String, Array, nil] what Kernel#spawn takes
      # @yield in the child, see Polyphony.fork
      # @return [true]
      # @raise [ArgumentError] without both
      # @raise [SystemCallError] if the command cannot be run
      #
      # @example
      #   move_on_after(10) { Polyphony::Process.watch('make') }
      def watch(command = nil, &block)
        raise ArgumentError, 'watch needs a command or a block to run' unless command || block

        pid = command ? ::Process.spawn(*command) : Polyphony.fork(&block)
        ended = ::Process.wait(pid)
        true
      ensure
        kill_process(pid) if pid && !ended
      end

      # Ends a child: by SIGTERM or, when that has not helped in time, by SIGKILL, which also goes to its process
      # group if it leads one. Waits for it; this cannot be cut short.
      # @param pid [Integer]
      # @param grace [Numeric] seconds that it may take to end by itself
      # @return [Process::Status, nil] nil if it is no child any more
      # @raise [ArgumentError] for what is no pid
      def kill_process(pid, grace: GRACE)
        raise ArgumentError, "no pid of a child: #{pid.inspect}" unless pid.is_a?(Integer) && pid > 1

        CancelScope.shield { terminate(pid, grace) || finish_off(pid) }
      rescue Errno::ESRCH, Errno::ECHILD
        nil
      end

      private

      def terminate(pid, grace)
        ::Process.kill(:TERM, pid)
        CancelScope.move_on_after(grace, nil) { ::Process.wait2(pid).last }
      end

      def finish_off(pid)
        leader = ::Process.getpgid(pid) == pid
        ::Process.kill(leader ? -9 : 9, pid)
        ::Process.wait2(pid).last
      end
    end
  end

  # @see Process.watch
  def self.watch_process(...)
    Process.watch(...)
  end
end
