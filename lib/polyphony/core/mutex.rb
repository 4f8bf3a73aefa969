# frozen_string_literal: true

module Polyphony
  # A lock for fibers, of one thread or of several. Those who wait get it in order of arrival. In C.
  #
  # A fiber that ends without unlocking leaves the lock to the next one.
  #
  # @example
  #   lock = Polyphony::Mutex.new
  #   2.times { spin { lock.synchronize { sleep 1 } } }  # one after the other
  class Mutex
    # @!method synchronize
    #   Runs the block while the current fiber holds the lock. A fiber that holds it already just
    #   runs the block.
    #   @yield
    #   @return [Object] what the block returns

    # @!method lock
    #   Waits for the lock.
    #   @return [self]
    #   @raise [ThreadError] if the current fiber holds it already

    # @!method unlock
    #   @return [self]
    #   @raise [ThreadError] if the current fiber does not hold it

    # @!method try_lock
    #   Takes the lock unless that means waiting.
    #   @return [Boolean] whether the current fiber has got it

    # @!method owned?
    #   @return [Boolean] whether the current fiber holds it

    # @!method locked?
    #   @return [Fiber, nil] who holds it

    # @!method holders
    #   @return [Array(Array(Fiber, Float))] who holds it, and since when on the monotonic clock;
    #     for reports

    # @!method sleep(timeout = nil)
    #   Sleeps without the lock, and takes it again: whatever ends the sleep, the lock is held when
    #   this method is left.
    #   @param timeout [Numeric, nil] seconds; nil: until the fiber is scheduled
    #   @return [Integer] for how many seconds, rounded
    #   @raise [ThreadError] if the current fiber does not hold it
    #   @raise [ArgumentError] if the time is negative

    # @!method conditional_release
    #   What a condition does before it waits.
    #   @return [Integer] how often it was entered: for conditional_reacquire
    #   @raise [ThreadError] if the current fiber does not hold it

    # @!method conditional_reacquire(entries = 1)
    #   What a condition does after it has waited. Waits for the lock whatever comes meanwhile: an
    #   exception is raised at the next switchpoint.
    #   @param entries [Integer] how often it is entered
    #   @return [self]
    #   @raise [ThreadError] if the current fiber holds it already
  end
end
