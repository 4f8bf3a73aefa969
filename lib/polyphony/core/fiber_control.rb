# frozen_string_literal: true

module Polyphony
  # Stopping, raising, restarting: each schedules an exception on the fiber, which gets it at the
  # point where it waits.
  module FiberControl
    # Ends the fiber; +value+ becomes its result. A fiber that has not begun never runs its block. The
    # program's main fiber exits.
    # @param value [Object]
    # @return [self, nil] nil if it had ended already
    def interrupt(value = nil)
      __schedule_if_alive(__program? ? SystemExit.new : MoveOn.new(value))
    end
    alias stop interrupt
    alias move_on interrupt

    # As interrupt. A fiber that is not ours (Fiber.new) gets Ruby's own method, where there is one,
    # unless it waits.
    # @param value [Object]
    # @return [self, nil] nil if it had ended already
    def kill(value = nil)
      __ours? || !defined?(super) ? interrupt(value) : super()
    end

    # Raises Cancel, or the given exception, in the fiber; uncaught it goes to the parent.
    # @param exception [Exception, Class]
    # @return [self, nil] nil if it had ended already
    # @raise [TypeError] for anything else
    def cancel(exception = Cancel)
      __schedule_if_alive(FiberControl.exception(exception))
    end

    # Asks the fiber to end. Its result is nil.
    # @param graceful [Boolean] sets graceful_shutdown?, which ensure blocks may ask for
    # @return [self, nil] nil if it had ended already
    def terminate(graceful: false)
      self.graceful_shutdown = graceful
      __schedule_if_alive(__program? ? SystemExit.new : Terminate.new)
    end

    # @!visibility private
    # Terminates it for good: a restart that comes while it ends has no effect.
    def __end(graceful: false)
      __doom.terminate(graceful: graceful)
    end

    # @!visibility private
    # Whether the program ends with it.
    def __program?
      main? && thread == Thread.main
    end

    # @!visibility private
    # Whether it is left and found by our switches. Others are resumed, except while they wait.
    def __ours?
      __spun? || main? || __away?
    end

    # Raises in the fiber, at the point where it waits. Arguments as for Kernel#raise, +cause:+
    # included. A fiber that is not ours (Fiber.new) gets Ruby's own method, unless it waits.
    # @return [self]
    def raise(*args, **options)
      return super unless __ours?

      __schedule_if_alive(FiberControl.exception(*args, **options))
      self
    end

    # Runs the block on this fiber at the point where it waits.
    # @return [self]
    def interject(&block)
      Kernel.raise ArgumentError, 'interject needs a block to run' unless block

      schedule(Interjection.new(block))
    end

    # Runs the block again. A fiber that has not ended unwinds first, its ensure blocks run, its children end,
    # and its mailbox is emptied. For one that has ended a new fiber is made, with the same block,
    # tag, monitors, and parent.
    # @param value [Object] what the block gets
    # @return [Fiber] itself, or the new one
    # @raise [RuntimeError] for a main fiber
    # @raise [FiberError] for a fiber that is not ours, and if its parent has ended
    def restart(value = nil)
      Kernel.raise 'the main fiber cannot be restarted' if main?
      Kernel.raise FiberError, "#{inspect} was not made by spin: it cannot be restarted" unless __spun?
      return __drop_messages if __schedule_if_alive(Restart.new(value))

      again = __respawn(value)
      monitors.each { |monitor| again.monitor(monitor) }
      again
    end
    alias reset restart

    # Switches to the fiber at once, past the run queue, and raises what comes back if it is an exception.
    # @param value [Object] what its own transfer returns
    # @return [Object] what this fiber is switched to with
    def safe_transfer(value = nil)
      result = transfer(value)
      result.is_a?(::Exception) ? Kernel.raise(result) : result
    end

    # @return [Polyphony::Event] for whoever wants to wake this fiber
    def auto_watcher
      self.__auto_watcher ||= Event.new
    end

    # @return [Boolean] whether the fiber has ended
    def dead?
      state == :dead
    end

    # @return [Boolean, nil] whether it runs now; nil when it has ended
    def running?
      current = state
      current == :dead ? nil : current == :running
    end

    # @return [String] where its block is written, or where it was spun if the block is the library's own,
    #   as with after; (root) for a main fiber, (unknown) for a block that is not written in Ruby and
    #   for a fiber that is not ours
    def location
      return main? ? '(root)' : '(unknown)' unless __block

      place = Backtrace.place_of(__block)
      place = caller.first&.slice(/\A.*?:\d+/) if place&.start_with?(Backtrace::DIR)
      place || '(unknown)'
    end

    # @return [String] tag, location and state; Ruby's own text for a fiber that is not ours
    def inspect
      return super unless __spun? || main?

      name = tag ? " #{tag}:#{object_id}" : ":#{object_id}"
      "#<Fiber#{name} #{location} (#{state})>"
    end
    alias to_s inspect

    # @!visibility private
    # The exception meant by the arguments of raise.
    def self.exception(error = nil, *rest, cause: nil)
      error, rest = RuntimeError, [error] if error.is_a?(String)
      rest = ['unhandled exception'] if error.nil? && rest.empty? # Ruby's words for raise alone
      error ||= RuntimeError
      unless error.respond_to?(:exception)
        Kernel.raise TypeError, "expected an exception or its class, got #{error.inspect}"
      end
      result = error.exception(*rest.first(1))
      give_cause(result, cause) if cause
      result.set_backtrace(rest[1]) if rest[1]
      result
    end

    # Only raising it gives an exception a cause. That this was done here must not be seen in it.
    def self.give_cause(error, cause)
      raised = error.backtrace
      Kernel.raise error, cause: cause
    rescue Exception => e # rubocop:disable Lint/RescueException
      Kernel.raise unless e.equal?(error)

      error.set_backtrace(nil) unless raised
      error.raising_fiber = nil unless raised
    end
    private_class_method :give_cause
  end

  # Fibers for signal handlers.
  module OutOfBand
    # Runs the block in a fiber of its own, before all others, without a parent. Errors go to the main
    # fiber of the thread.
    # @return [Fiber] with the tag +:oob+
    def schedule_priority_oob_fiber(&block)
      raise ArgumentError, 'schedule_priority_oob_fiber needs a block to run' unless block

      fiber = spin(:oob, &block)
      fiber.oob = true
      fiber.parent = nil
      fiber.schedule_with_priority
    end
  end

  ::Fiber.prepend FiberControl
  ::Fiber.extend OutOfBand
end
