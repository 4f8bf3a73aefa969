# frozen_string_literal: true

module Polyphony
  # For system calls that stop their thread until somebody else does something, and have no other form:
  # opening a FIFO, locking a file. Each is made in a thread of its own, where it can be broken off.
  # @api private
  module Aside
    WAKEUP = ::Thread.instance_method(:wakeup)
    private_constant :WAKEUP

    # One call: what becomes of it, and whether it is still wanted.
    class Errand
      def initialize(block)
        @block = block
        @wanted = true
        @thread = ::Thread.new { run }
      end

      # Waits for the end, while other fibers run.
      def result
        @thread.join
        raise @error.tap { |error| error.set_backtrace(caller) } if @error

        @result
      end

      # Breaks the call off. Its thread has ended on return. More than once, for it may have been just
      # about to make the call; and without a switch, where the fiber could be ended a second time.
      # @return [Object, nil] what it has come to all the same
      def abandon
        @wanted = false
        while @thread.alive?
          WAKEUP.bind_call(@thread)
          ::Thread.pass
        end
        @result
      rescue ThreadError
        @result # it has ended in between
      end

      private

      # Nothing is raised in the middle of the call, so what it has done is known.
      def run
        ::Thread.handle_interrupt(::Object => :never) { @result = call }
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @error = e
      end

      # A signal may interrupt it as well; then it goes on.
      def call
        @block.call
      rescue ::Errno::EINTR
        retry if @wanted && !::Thread.current.pending_interrupt?
        raise
      end
    end
    private_constant :Errand

    # @param undo [#call] gets a result which came when it was no longer wanted
    # @yield in another thread
    # @return [Object] what the block returns
    def self.run(undo, &block)
      errand = Errand.new(block)
      result = errand.result
      taken = true
      result
    ensure
      unless taken || !errand
        late = errand.abandon
        undo.call(late) if late
      end
    end
  end

  private_constant :Aside
end
