# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # A worker process, as its parent sees it.
    # @api private
    class Child
      # Frames that are written at a time.
      MOST = 256
      private_constant :MOST

      # @return [Integer]
      attr_reader :pid
      # @return [Claims] a word for each slot
      attr_reader :claims
      # @return [::Process::Status, nil] when it has ended
      attr_reader :status
      # @return [Boolean] whether it has ever done anything
      attr_accessor :useful

      # Forks.
      # @param slots [Integer] how many tasks it may have at a time
      # @param lock [::Thread::Mutex] held while it is told something
      # @yield [UNIXSocket, Claims] in the child, which ends with the block
      def initialize(slots, lock)
        @claims = Claims.new(slots)
        @lock = lock
        @outbox = Queue.new.__for_ourselves
        @socket, theirs = ::UNIXSocket.pair
        @pid = ProcessFork.child { live(theirs) { yield theirs, @claims } }
        Polyphony.__process_claim__(@pid, 1)
      rescue ::StandardError
        @socket&.close
        raise
      ensure
        theirs&.close
      end

      # Never waits, from any thread. What is for one that has ended is dropped.
      # @param frame [Array<String>]
      def post(frame)
        @outbox << frame unless @outbox.closed?
      end

      # @return [Boolean] whether it had not begun to be written
      def take_back(frame)
        !@outbox.delete(frame).nil?
      end

      # It gets no more, and ends when it has done what it has.
      def dismiss
        @outbox.close
      end

      # Only with the lock: from when it has been reaped, the number may be another's.
      def signal(name)
        ::Process.kill(name, @pid) unless @gone
      end

      # Serves the socket until the process has ended, and been reaped.
      # @yield [kind, slot, payload] what it says
      def attend(&block)
        writer = spin(:writer) { write }
        watcher = spin(:watcher) { watch }
        Frames.new(@socket).each(&block)
      ensure
        CancelScope.shield { finish(watcher, writer) }
      end

      private

      # Nothing of the parent's may run at the end: neither what is at_exit nor what is in ensure blocks.
      def live(theirs)
        @socket.close
        yield
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- there is nobody to rescue it
        $stderr.write(e.full_message(highlight: false))
        exit!(1)
      ensure
        exit!(0)
      end

      # Frames are written by this fiber alone, and never in part.
      def write
        @outbox.each do |frame|
          [frame, *@outbox.shift_all].each_slice(MOST) { |some| Polyphony.backend_write(@socket, *some.flatten) }
        end
        @socket.shutdown(::Socket::SHUT_WR)
      rescue Errno::EPIPE, Errno::ECONNRESET, Errno::ENOTCONN
        nil # it has ended
      end

      # A child of the worker's may still have the socket, so that its end would not be seen there. What has been
      # written can be read.
      def watch
        Polyphony.__process_await__(@pid) until @lock.synchronize { reap }
        @socket.shutdown(::Socket::SHUT_RDWR)
      rescue Errno::ENOTCONN
        nil # all is said
      end

      def reap
        status = Polyphony.__process_wait__(@pid, ::Process::WNOHANG) or return false
        @status = status if status.pid == @pid # else somebody else was told
        @gone = true
      end

      # If it has not ended, it has closed the socket, and is of no use.
      def finish(watcher, writer)
        @lock.synchronize { signal(:KILL) }
        watcher&.await
        writer&.stop
        writer&.await
      ensure
        Polyphony.__process_claim__(@pid, -1)
        @outbox.close
        @socket.close
      end
    end
  end
end
