# frozen_string_literal: true

module Polyphony
  # Passes objects between fibers, and between threads, in order. Written in C.
  #
  # @example
  #   queue = Polyphony::Queue.new
  #   spin { 3.times { |i| queue << i } }
  #   queue.shift  #=> 0
  class Queue
    # Raised by a push to a full queue whose policy is +:error+. Stock Ruby raises ThreadError for the same.
    class Full < ::ThreadError
      # @return [Integer] how many items the queue holds
      attr_reader :capacity
      # @return [Fiber, nil] the fiber whose mailbox it is
      attr_reader :owner

      # @param queue [Queue]
      def initialize(queue)
        @capacity = queue.capped?
        @owner = queue.owner
        super("#{@owner ? "the mailbox of #{@owner.inspect}" : 'the queue'} is full: it holds #{@capacity}")
      end
    end

    # @!method initialize(capacity = nil, policy: :wait)
    #   @param capacity [Integer, nil] how many items it holds; nil or 0: any number
    #   @param policy [Symbol] what push and unshift do when it is full: +:wait+ for room, +:drop_oldest+
    #     (the first item makes room), +:drop_newest+ (the new item is dropped), +:error+ (raise Full)
    #   @raise [ArgumentError] for another policy and a negative capacity

    # @!method push(item)
    #   Appends. If the queue is full, its policy says what happens. With the policy +:wait+, a push to a
    #   capped queue is a switchpoint, also when there is room; all others never switch.
    #   @return [self] also when something was dropped
    #   @raise [ClosedQueueError] if it is closed
    #   @raise [Full] by its policy
    # @!method <<(item)
    #   @see #push
    # @!method enq(item)
    #   @see #push

    # @!method unshift(item)
    #   As push, at the head.
    #   @return [self]

    # @!method each
    #   Calls the block with every item, waiting for it, until the queue is closed and empty.
    #   @yield [Object]
    #   @return [self, Enumerator]

    # @!method shift(nonblock = false, timeout: nil)
    #   Takes the first item, waiting for one. When the queue is closed meanwhile: nil.
    #   @param nonblock [Boolean] raises instead of waiting
    #   @param timeout [Numeric, nil] seconds, after which nil is returned
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
    #   Removes everything. Fibers that wait for the answer to a Request in it get Request::Unanswered.
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

    # @!method cap(capacity, policy: nil)
    #   Changes the limit. What is in the queue stays, also when it is more. Those who wait for room go
    #   by the new capacity and policy.
    #   @param capacity [Integer] 0: uncapped
    #   @param policy [Symbol] see #initialize; left out: as before
    #   @return [self]
    #   @raise [ArgumentError] for a wrong policy and a negative capacity

    # @!method capped?
    #   @return [Integer, nil] the capacity

    # @!method policy
    #   @return [Symbol] +:wait+, +:drop_oldest+, +:drop_newest+ or +:error+

    # @!method dropped
    #   @return [Integer] how many items were dropped by the policy, or because the fiber whose mailbox
    #     it is had ended

    # @!method owner
    #   @return [Fiber, nil] the fiber whose mailbox it is

    # @!method flush_waiters(value)
    #   Resumes every fiber that waits for an item with the value instead of one.
    #   @return [self]

    # @!method close
    #   No more items may be pushed; those that are there can still be taken. Fibers that wait for an
    #   item get nil, those that wait for room a ClosedQueueError.
    #   @return [self]

    # @!method closed?
    #   @return [Boolean] also true for the mailbox of a fiber that has ended
  end
end
