# frozen_string_literal: true

module Polyphony
  # Lets at most +limit+ fibers through at once; the others wait in order of arrival. In C.
  #
  # @example Four downloads at a time
  #   gate = Polyphony::Semaphore.new(4)
  #   urls.each { |url| spin { gate.synchronize { fetch(url) } } }
  class Semaphore
    # @!method initialize(limit)
    #   @param limit [Integer] how many may be inside, at least 1
    #   @raise [ArgumentError] if it is less

    # @!method synchronize
    #   Waits for a place and runs the block in it.
    #   @yield
    #   @return [Object] what the block returns

    # @!method acquire(timeout: nil)
    #   Waits for a place.
    #   @param timeout [Numeric, nil] seconds
    #   @return [Boolean] false after the timeout

    # @!method try_acquire
    #   Takes a place unless that means waiting.
    #   @return [Boolean] whether there was one

    # @!method release
    #   Gives a place back; not necessarily one that the current fiber took.
    #   @return [self]
    #   @raise [ThreadError] if all are free

    # @!method limit
    #   @return [Integer]

    # @!method available
    #   @return [Integer] how many places can be taken without waiting

    # @!method holders
    #   @return [Array(Array(Fiber, Float))] who took the places, and since when on the monotonic
    #     clock; for reports
  end
end
