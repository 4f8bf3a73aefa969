# frozen_string_literal: true

module Polyphony
  # A block that may be interrupted, by its time limit or by hand. move_on_after and cancel_after
  # give it to a block that has a parameter. Kept longer than the block, it does nothing. In C.
  #
  # @example
  #   move_on_after(1) do |scope|
  #     spin { scope.cancel }
  #     sleep
  #   end  #=> nil
  class CancelScope
    # @!method self.move_on_after(seconds, value)
    #   What the word move_on_after calls.
    #   @yield [CancelScope]
    #   @return [Object] what the block returns; +value+ if it was interrupted

    # @!method self.cancel_after(seconds, exception)
    #   What the word cancel_after calls.
    #   @yield [CancelScope]
    #   @return [Object] what the block returns

    # @!method self.shield
    #   What the word shield calls.
    #   @return [Object] what the block returns

    # @!method expired?
    #   @return [Boolean] whether the block was interrupted, or is about to be

    # @!method reset
    #   Starts the period again.
    #   @return [self]

    # @!method cancel
    #   Interrupts the block as if the time were over, from any fiber.
    #   @return [self]

    # @!method active?
    #   @return [Boolean] whether the block runs and has not been interrupted
  end
end
