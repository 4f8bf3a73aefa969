# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # What runs in a forked process.
    # @api private
    class Worker
      # What the terminal or the system sends to all processes is the parent's business. When that ends, so does this one.
      # A handler, because programs that a task starts would inherit that a signal is ignored.
      OTHERS = %w[INT TERM HUP].freeze
      # Ignored by every process that does not ask for it: it does no harm if it comes late.
      SIGNAL = 'URG'
      private_constant :OTHERS, :SIGNAL

      # @param socket [UNIXSocket] to the parent
      # @param claims [Claims] a word for each slot
      # @param fibers [Integer] how many tasks at a time
      # @param tasks [Hash{Symbol => #call}]
      # @param share [Array<IO>] what is left open
      def initialize(socket, claims, fibers:, tasks:, share:)
        @socket = socket
        @claims = claims
        @fibers = fibers
        @tasks = tasks
        @share = share
        @jobs = {}
        @inbox = Queue.new.__for_ourselves
        @lock = Mutex.new
      end

      # Returns when the parent wants no more.
      # @param parent [Integer] pid
      def run(parent)
        Polyphony.__end_with__(@socket.fileno, parent)
        OTHERS.each { |name| leave_to_parent(name) }
        Polyphony.__give_up_descriptors__([@socket.fileno, *@share.map(&:fileno)])
        ::STDIN.reopen(::File::NULL) unless ::STDIN.closed?
        ::Process.setproctitle("#{$PROGRAM_NAME} (worker of #{parent})")
        Polyphony.__as_main { serve }
        flush
      end

      # Tells the parent.
      def post(kind, slot, payload = '')
        @lock.synchronize { Polyphony.backend_write(@socket, *Frames.build(kind, slot, payload)) }
      end

      # @return [Boolean] whether nobody wants what is in the slot any more
      def cancelled?(slot)
        @claims[slot] == Frames::CANCELLED
      end

      # @return [Boolean] whether it has nobody to answer to any more; what runs is broken off
      def ending?
        @ending
      end

      # Ends this process.
      def quit(status)
        flush
        exit!(status)
      end

      private

      def leave_to_parent(name)
        before = ::Signal.trap(name) {} # rubocop:disable Lint/EmptyBlock
        ::Signal.trap(name, before) if before == 'IGNORE'
      end

      def serve
        ::Signal.trap(SIGNAL) { end_cancelled }
        runners = Array.new(@fibers) { spin(:runner) { @inbox.each { |entry| take(*entry) } } }
        Frames.new(@socket).each { |kind, slot, payload, flags| hear(kind, slot, payload, flags) }
        @inbox.close
        runners.each(&:await)
      ensure
        @ending = true
        ::Signal.trap(SIGNAL, 'DEFAULT')
      end

      def hear(kind, slot, payload, flags)
        kind == Frames::RUN ? @inbox << [slot, payload, flags] : @jobs[slot]&.grant(payload.unpack1('L'))
      end

      def take(slot, payload, flags)
        return post(Frames::SKIPPED, slot) unless @claims.change(slot, Frames::OFFERED, Frames::TAKEN)

        @jobs[slot] = job = Job.new(self, slot, flags)
        kind, answer = job.run(payload, @tasks)
        @jobs.delete(slot)
        flush
        cancelled?(slot) ? post(Frames::ENDED, slot) : post(kind, slot, answer)
      end

      # In the middle of anything that runs in the main thread. The one that runs comes last: that raises.
      def end_cancelled
        jobs = @jobs.select { |slot, _| cancelled?(slot) }.values
        jobs.partition(&:running?).reverse_each { |some| some.each(&:cancel) }
      end

      # Nobody does it at the end: see Child.
      def flush
        $stdout.flush
        $stderr.flush
      rescue ::IOError, ::SystemCallError
        nil # closed, or nobody reads it any more
      end
    end
  end
end
