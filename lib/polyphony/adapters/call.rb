# frozen_string_literal: true

require 'polyphony'

module Polyphony
  module Adapters
    # A call into a library that must come to its end even if nobody wants its result any more: it uses a connection meanwhile.
    # It goes on in a helper, while fibers wait for it; a wait that is ended does not end the call.
    # @api private
    class Call
      # @return [Exception, nil] what it has raised
      attr_reader :error

      # @yield in the helper
      def initialize(&block)
        @block = block
        @ticket = [true] # whoever takes it, the helper or somebody who withdraws the call
        @finished = false
      end

      # In the current fiber, at once.
      # @return [self]
      def here
        run
        self
      end

      # For what waits with the means of Ruby: other fibers of the thread run meanwhile.
      # @return [self]
      def in_fiber
        @helper = without_deadline { |fiber| fiber.spin(:call) { CancelScope.shield { within_scope { run } } } }
        self
      end

      # For what stops its thread. The thread has no fibers besides, and nothing is raised in it.
      # @return [self]
      def in_thread
        @helper = ::Thread.new { ::Thread.handle_interrupt(::Object => :never) { run } }
        @helper.report_on_exception = false
        self
      end

      # @return [Boolean]
      def finished?
        @finished
      end

      # A call that has not begun is not made any more.
      # @return [Boolean] whether it had not begun
      def withdraw
        return false unless @ticket.pop

        @finished = true
      end

      # Waits for the end.
      # @return [self]
      def wait
        @helper.is_a?(::Thread) ? @helper.join : @helper&.await
        self
      end

      # Waits for the end.
      # @return [Object] what the block returns
      # @raise [Exception] what it raises, with the frames of the caller
      def value
        wait
        raise from_here(@error) if @error

        @value
      end

      # The same for a part of another call, which has not ended before this one has: not even if its thread is killed.
      # @return [Object] what the block returns
      def value_of_all
        value
      ensure
        wait unless @finished
      end

      # Has a call that is in a fiber end, where it waits, or never begin.
      # @return [void]
      def cancel
        withdraw
        @scope&.cancel
      end

      # Ends a call that is in a fiber, where it waits.
      # @return [self]
      def stop
        @scope&.cancel
        wait
      end

      private

      # What is spun inherits it otherwise, and is ended with it.
      def without_deadline
        fiber = ::Fiber.current
        deadline = fiber.__deadline
        begin
          fiber.__deadline = nil
          yield fiber
        ensure
          fiber.__deadline = deadline
        end
      end

      def within_scope(&block)
        CancelScope.move_on_after(nil, nil) { |scope| @scope = scope; block.call }
      end

      # A thread does not know who wanted it.
      def from_here(error)
        error.set_backtrace([*error.backtrace, *caller(2)]) if @helper.is_a?(::Thread)
        error
      end

      def run
        return unless @ticket.pop

        @value = @block.call
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @error = e
      ensure
        @finished = true
      end
    end
    private_constant :Call
  end
end
