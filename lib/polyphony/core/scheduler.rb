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
    # @!method io_pwrite(io, buffer, from, length, offset)
    #   @return [Integer] bytes, or -errno
    # @!method io_close(descriptor)
    #   @return [true, Integer] -errno if it fails
    # @!method process_wait(pid, flags)
    #   @return [Process::Status, nil]
    # @!method address_resolve(hostname)
    #   @return [Array<String>, nil] numeric addresses
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

    # @!method self.__foreign?
    #   @!visibility private
    #   @return [Boolean] whether somebody else's scheduler has the waits of the running fiber

    # For Timeout.timeout.
    # @param duration [Numeric]
    # @param klass [Class, Exception] as for raise; newer Rubies give an exception that they know again
    # @param message [String]
    # @yield [duration]
    # @return [Object] what the block returns
    def timeout_after(duration, klass, message)
      return CancelScope.cancel_after(duration, [klass, message]) { yield duration } if klass.is_a?(Class)

      raising_itself(klass.exception(message)) { |error| CancelScope.cancel_after(duration, error) { yield duration } }
    end

    # For all threads: it does not end with one of them. (Asking for the number of processors loads a file,
    # and that is work of the kind it is wanted for.)
    POOL = ThreadPool.new(4)
    private_constant :POOL

    # For work that Ruby lets run beside everything else, compression for instance. Closing a descriptor is
    # handed over, too (3.4): that is done at once and without a switch, as in other Rubies.
    # @param work [#call]
    # @return [nil]
    def blocking_operation_wait(work)
      if caller_locations(1, 1)&.first&.base_label == 'close' then work_off(work)
      else POOL.process { work_off(work) }
      end
      nil
    end

    private

    # A scope raises copies. They have the note with them that tells whose they are.
    def raising_itself(error)
      error.instance_variable_set(:@__polyphony_limit, error)
      yield error
    rescue error.class => e
      raise unless e.instance_variable_get(:@__polyphony_limit).equal?(error)

      error.set_backtrace(e.backtrace)
      raise error, cause: nil
    end

    # In a blocking fiber, for in others Ruby asks again.
    def work_off(work)
      Fiber.new(blocking: true) { work.call }.resume
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
