# frozen_string_literal: true

module Polyphony
  # Ruby's Fiber::Scheduler on the backend of the thread, in C. +require 'polyphony'+ gives every thread
  # one, so that stock Ruby's blocking methods let other fibers run. It can also be used alone:
  #
  #   require 'polyphony/core'
  #   Fiber.set_scheduler(Polyphony::Scheduler.new)
  #   Fiber.schedule { puts IO.popen('uptime').read }
  #
  # All methods are hooks that Ruby calls; see Fiber::Scheduler in its documentation.
  class Scheduler
    # @!method block(blocker, timeout = nil)
    #   @return [Boolean] whether it was unblocked in time
    # @!method unblock(blocker, fiber)
    #   From any thread.
    #   @return [nil]
    # @!method kernel_sleep(duration = nil)
    #   @return [true]
    # @!method io_wait(io, events, timeout = nil)
    #   @return [Integer, false] events that are there; false after the timeout
    # @!method io_select(readables, writables = nil, exceptables = nil, timeout = nil)
    #   @return [Array(Array, Array, Array), nil] what is ready; nil after the timeout
    # @!method io_read(io, buffer, length, offset = 0)
    #   @return [Integer] bytes, or -errno
    # @!method io_write(io, buffer, length, offset = 0)
    #   @return [Integer] bytes, or -errno
    # @!method io_pread(io, buffer, from, length, offset)
    #   @return [Integer] bytes, or -errno
    # @!method io_close(descriptor)
    #   @return [true, Integer] -errno if it fails
    # @!method process_wait(pid, flags)
    #   @return [Process::Status, nil]
    # @!method address_resolve(hostname)
    #   @return [Array<String>, nil] numeric addresses
    # @!method blocking_operation_wait(work)
    #   For what Ruby lets run beside everything else, since 3.4: compression is done in another thread, calls
    #   to the file system at once.
    #   @param work [#call]
    #   @return [nil]
    # @!method fiber(&block)
    #   For Fiber.schedule: runs the block in a fiber, at once until it waits. The thread waits for its
    #   end.
    #   @return [Fiber]
    # @!method fiber_interrupt(fiber, exception)
    #   @return [nil]
    # @!method yield
    #   @return [nil]
    # @!method run
    #   Waits for the fibers of Fiber.schedule.
    #   @return [nil]
    # @!method close
    #   @see #run
    #   @return [nil]
    # @!method scheduler_close
    #   @see #close
    #   @return [nil]

    # @!method self.__foreign?
    #   @!visibility private
    #   @return [Boolean] whether somebody else's scheduler has the waits of the running fiber

    # For Timeout.timeout.
    # @param duration [Numeric]
    # @param exception [Class, Exception] since Ruby 3.4 it may have been made already, and is known again
    # @param message [String]
    # @yield [duration]
    # @return [Object] what the block returns
    def timeout_after(duration, exception, message, &block)
      return within(duration, [exception, message], &block) if exception.is_a?(::Class)

      begin
        exception.instance_variable_set(:@__polyphony_mark, mark = ::Object.new)
        within(duration, exception, &block)
      rescue exception.class => e
        raise exception.equal?(e) || !e.instance_variable_get(:@__polyphony_mark).equal?(mark) ? e : exception
      end
    end

    # How many may compute at once, in threads of the blocking pool: they take processors, and more threads would not help.
    # Asking for the number of those loads a file, and that is work of the kind it is wanted for.
    WORKERS = 4
    PLACES = PerProcess.new { Semaphore.new(WORKERS) }
    private_constant :WORKERS, :PLACES

    private

    # It is a copy of the exception that is raised.
    def within(duration, exception)
      CancelScope.cancel_after(duration, exception) { yield duration }
    end

    # Work of a blocking_operation_wait that is not done at once. In a fiber that is not a blocking one, Ruby
    # would ask again.
    # @return [nil]
    def __compute(work)
      PLACES.value.synchronize { Polyphony.blocking_pool.__complete { Fiber.new(blocking: true) { work.call }.resume } }
      nil
    end
  end

  # Stock methods in fibers for which Ruby does not ask the scheduler, run in one for which it does. In C.
  # @!visibility private
  module StandIn
    # @!method self.for(mod, *names, last_line: false, needs: nil, text: nil, path: nil,
    #     takes: false, turns: false, waits: true)
    #   From now on these methods of mod let other fibers run, in blocking fibers, too. Names the running
    #   Ruby does not have are left out.
    #   @param last_line [Boolean, Symbol] whether they set +$_+; +:each+: for each call of their block
    #   @param needs [Symbol] +:byte+, +:character+, +:line+, +:length+: if that is in Ruby's buffer of the
    #     IO, they do not wait
    #   @param text [Integer] which argument is turned into a String
    #   @param path [Integer] which argument names a file
    #   @param takes [Boolean] whether they gather what they read: it is put back if they are broken off
    #   @param turns [Boolean] whether others are to run now and then although they need not wait
    #   @param waits [Boolean] whether they may wait at all
    #   @return [Module] what was prepended
    # @!method self.wanted?
    #   @return [Boolean] whether the running fiber is a blocking one that could let others run
    # @!method self.possible?
    #   @return [Boolean] whether the running fiber could let others run
    # @!method self.call(method, receiver, *args, **options, &block)
    #   Calls an UnboundMethod there; the block is called in the fiber that gave it.
    #   @return [Object]
    # @!method self.run(&block)
    #   @return [Object] what the block returns, run in a non-blocking fiber
  end

  private_constant :StandIn
end
