# frozen_string_literal: true

# What Thread gains in C. See Polyphony::ThreadExtensions for what +require 'polyphony'+ adds.
class Thread
  # @!method self.backend
  #   @return [Polyphony::Backend] of the current thread, made on demand

  # @!method backend
  #   @return [Polyphony::Backend, nil] nil for another thread that has not waited yet: each opens
  #     its own

  # @!method backend=(backend)
  #   @param backend [Polyphony::Backend] one that this thread has opened
  #   @raise [ThreadError] if another one has, or if it is closed

  # @!method main_fiber
  #   @return [Fiber, nil] the thread's first fiber; nil as long as it has no backend

  # @!method <<(message)
  #   Puts a message into the mailbox of the main fiber. It is kept for a thread that has not begun.
  #   @return [self]

  # @!method switch_fiber
  #   Leaves the current fiber until it is scheduled: what suspend does.
  #   @return [Object] what it was scheduled with

  # @!method on_idle
  #   Calls the block each time all fibers wait, before waiting for events. Without a block: no more.
  #   @yield
  #   @return [self]

  # @!method idle_gc_period=(seconds)
  #   Switches Ruby's GC off and runs it when all fibers wait, at most once in that time.
  #   @param seconds [Numeric] 0: as usual
end
