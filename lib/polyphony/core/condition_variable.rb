# frozen_string_literal: true

module Polyphony
  # Lets fibers that hold a lock wait, without it, until another one tells them that something has
  # changed. In C.
  #
  # @example
  #   lock, filled, items = Polyphony::Mutex.new, Polyphony::ConditionVariable.new, []
  #   spin { lock.synchronize { items << 1; filled.signal } }
  #   lock.synchronize { filled.wait(lock) while items.empty?; items.shift }  #=> 1
  class ConditionVariable
    # @!method wait(lock, timeout = nil)
    #   Gives up the lock, waits for a signal, and takes the lock again: whatever ends the wait, the
    #   lock is held when this method is left. Ask for what you wait for in a loop.
    #   @param lock [Mutex, Monitor, #unlock, #conditional_release] held by the current fiber; of
    #     another class it needs +lock+ or +conditional_reacquire+, too
    #   @param timeout [Numeric, nil] seconds
    #   @return [Boolean] false after the timeout
    #   @raise [ThreadError] if the current fiber does not hold the lock
    #   @raise [TypeError] if it is no lock

    # @!method signal
    #   Wakes the one who has waited longest. If that one is cancelled at the same time, the next.
    #   @return [self]

    # @!method broadcast
    #   Wakes all who wait.
    #   @return [self]
  end
end
