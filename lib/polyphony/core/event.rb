# frozen_string_literal: true

module Polyphony
  # One fiber waits, anyone signals, from any thread. The signal stays until it is taken. In C.
  #
  # @example
  #   ready = Polyphony::Event.new
  #   spin { ready.signal(:go) }
  #   ready.await  #=> :go
  class Event
    # @!method signal(value = nil)
    #   Signals that came before the last one and were not taken are forgotten.
    #   @return [self]

    # @!method await
    #   Waits for the signal, unless it is there, and takes it.
    #   @return [Object] its value
    #   @raise [RuntimeError] if another fiber waits already
  end
end
