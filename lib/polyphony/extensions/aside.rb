# frozen_string_literal: true

module Polyphony
  # For system calls that stop their thread until somebody else does something, and have no other form:
  # opening a FIFO, locking a file. Each is made in a thread of its own, where it can be broken off.
  # @api private
  module Aside
    WAKEUP = ::Thread.instance_method(:wakeup)
    RAISE = ::Thread.instance_method(:raise)
    # Ends a call that Ruby would make again when it is interrupted.
    Abandoned = ::Class.new(::Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it
    private_constant :WAKEUP, :RAISE, :Abandoned

    # One call: what becomes of it, and whether it is still wanted.
    class Errand
      def initialize(block, stubborn)
        @block = block
        @stubborn = stubborn
        @wanted = true
        @thread = ::Thread.new { run }
        @thread.report_on_exception = false # where it could not be told from others in time
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
        RAISE.bind_call(@thread, Abandoned) if @stubborn
        while @thread.alive?
          WAKEUP.bind_call(@thread)
          ::Thread.__polyphony_stock_pass
        end
        @result
      rescue ThreadError
        @result # it has ended in between
      end

      private

      # Nothing is raised in the middle of the call, so what it has done is known; unless there is no
      # other way to end it.
      def run
        ::Thread.handle_interrupt(::Object => :never) { @result = call }
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @error = e
      end

      # A signal may interrupt it as well; then it goes on.
      def call
        @stubborn ? ::Thread.handle_interrupt(Abandoned => :immediate, &@block) : @block.call
      rescue ::Errno::EINTR
        retry if @wanted && !::Thread.current.pending_interrupt?
        raise
      end
    end
    private_constant :Errand

    @waiting = {}.compare_by_identity # IO => fibers
    @told = {}.compare_by_identity # fiber => the error that wakes it

    class << self
      # @!method flock(descriptor, operation)
      #   flock(2), in the thread that calls it.
      #   @return [Integer] 0

      # @param undo [#call] gets a result which came when it was no longer wanted
      # @param io [IO, nil] what is being waited on
      # @param stubborn [Boolean] whether Ruby makes the call again when it is interrupted
      # @yield in another thread
      # @return [Object] what the block returns
      def run(undo, io = nil, stubborn: false, &block)
        errand = Errand.new(block, stubborn)
        result = watching(io) { errand.result }
        taken = true
        result
      ensure
        late = errand&.abandon unless taken
        undo.call(late) if late
      end

      # @return [Boolean] whether anybody waits on an IO
      def waiting?
        !@waiting.empty?
      end

      # Wakes the fibers that wait on an IO which is being closed.
      def release(io)
        @waiting.delete(io)&.each { |fiber| fiber.schedule(@told[fiber] = ::IOError.new('stream closed in another thread')) }
      end

      private

      def watching(io)
        return yield unless io

        begin
          (@waiting[io] ||= []) << ::Fiber.current
          yield
        ensure
          fibers = @waiting[io]
          @waiting.delete(io) if fibers && (fibers.delete(::Fiber.current); fibers.empty?)
          @told.delete(::Fiber.current)&.then { |error| ::Fiber.current.__unschedule(error) }
        end
      end
    end
  end

  private_constant :Aside
end
