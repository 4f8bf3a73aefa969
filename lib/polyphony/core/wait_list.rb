# frozen_string_literal: true

module Polyphony
  # Fibers that wait in order of arrival: the brick of which locks and pools are made. In C.
  # A wake that reaches a fiber together with an exception goes on to the next one.
  #
  # @example
  #   list = Polyphony::WaitList.new
  #   spin { list.wake(:morning) }
  #   list.park  #=> :morning
  class WaitList
    # @!method initialize(owner = nil, reason = 'being woken')
    #   @param owner [Object] the lock, pool ... it is part of: a deadlock report names it, and asks
    #     its method +holders+, if there is one, which fibers have what the others wait for
    #   @param reason [String] what its fibers wait for, in such a report

    # @!method owner
    #   @return [Object, nil]

    # @!method park(timeout = nil)
    #   Waits until woken.
    #   @param timeout [Numeric, nil] seconds
    #   @return [Object, false] the value given to wake; false after the timeout

    # @!method wake(value = true)
    #   Wakes the one who came first.
    #   @return [Boolean] whether there was one

    # @!method wake_all(value = true)
    #   @return [Integer] how many were woken

    # @!method length
    #   @return [Integer] how many wait

    # @!method woken
    #   @return [Integer] how many have been woken and have not run yet

    # @!method empty?
    #   @return [Boolean]
  end
end
