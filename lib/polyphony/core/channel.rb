# frozen_string_literal: true

require 'polyphony/polyphony_ext'
require 'polyphony/core/exceptions'

module Polyphony
  # A queue whose receivers end with it: to close it raises MoveOn in the fibers that wait for an
  # item, which ends them quietly.
  #
  # @example
  #   channel = Polyphony::Channel.new
  #   printer = spin { loop { puts channel.receive } }
  #   channel << 'hello'
  class Channel < Queue
    CLOSED = Object.new.freeze
    private_constant :CLOSED

    alias take shift # CLOSED, if it is closed meanwhile
    private :take

    # Takes the next item, waiting for one.
    # @param nonblock [Boolean] raises ThreadError instead of waiting
    # @param timeout [Numeric, nil] seconds, after which nil is returned
    # @return [Object]
    # @raise [MoveOn] if the channel is closed while the fiber waits
    # @raise [ClosedQueueError] if it is empty and was closed before
    def shift(nonblock = false, timeout: nil)
      item = take(nonblock, timeout: timeout)
      raise MoveOn if CLOSED.equal?(item)

      item
    end
    alias pop shift
    alias deq shift

    # The same.
    # @see #shift
    def receive
      shift
    end

    # Calls the block with every item, until the channel is closed and empty.
    # @yield [Object]
    # @return [self]
    def receive_loop(&block)
      raise ArgumentError, 'receive_loop needs a block to run' unless block

      each(&block)
    end

    # No more items may be pushed; those that are there can still be received. Fibers that wait for
    # an item get MoveOn, those that wait for room a ClosedQueueError.
    # @return [self]
    def close
      __close(CLOSED)
    end
  end
end
