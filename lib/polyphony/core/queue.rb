# frozen_string_literal: true

module Polyphony
  # Passes objects between fibers, and between threads, in order. Written in C.
  #
  # @example
  #   queue = Polyphony::Queue.new
  #   spin { 3.times { |i| queue << i } }
  #   queue.shift  #=> 0
  class Queue
    # @!method initialize(capacity = nil)
    #   @param capacity [Integer, nil] how many items it holds before push waits; nil or 0: any number

    # @!method push(item)
    #   Appends; waits for room if the queue is capped.
    #   @return [self]
    #   @raise [ClosedQueueError] if it is closed
    # @!method <<(item)
    #   @see #push
    # @!method enq(item)
    #   @see #push

    # @!method unshift(item)
    #   As push, at the head.
    #   @return [self]

    # @!method shift(nonblock = false)
    #   Takes the first item, waiting for one. When the queue is closed meanwhile: nil.
    #   @param nonblock [Boolean] raises instead of waiting
    #   @return [Object]
    #   @raise [ThreadError] if it is empty and must not wait
    #   @raise [ClosedQueueError] if it is empty and was closed before
    # @!method pop(nonblock = false)
    #   @see #shift
    # @!method deq(nonblock = false)
    #   @see #shift

    # @!method shift_all
    #   @return [Array] all items that are there, without waiting

    # @!method shift_each
    #   Takes all items that are there, without waiting.
    #   @yield [Object] each
    #   @return [self, Enumerator] an Enumerator without a block

    # @!method delete(item)
    #   Removes the first that is the same object.
    #   @return [Object, nil] the item; nil if it was not there

    # @!method clear
    #   @return [self]

    # @!method size
    #   @return [Integer]
    # @!method length
    #   @see #size

    # @!method empty?
    #   @return [Boolean]

    # @!method pending?
    #   @return [Boolean] whether a fiber waits for an item

    # @!method num_waiting
    #   @return [Integer] how many fibers wait, for an item or for room

    # @!method cap(capacity)
    #   @param capacity [Integer] 0: uncapped
    #   @return [self]

    # @!method capped?
    #   @return [Integer, nil] the capacity

    # @!method flush_waiters(value)
    #   Resumes every fiber that waits for an item with the value instead of one.
    #   @return [self]

    # @!method close
    #   No more items may be pushed; those that are there can still be taken. Fibers that wait for an
    #   item get nil, those that wait for room a ClosedQueueError.
    #   @return [self]

    # @!method closed?
    #   @return [Boolean]
  end
end
