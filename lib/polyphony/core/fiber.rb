# frozen_string_literal: true

# What Fiber gains in C. See Polyphony::FiberControl, FiberTree, FiberMessaging and FiberAwait for
# the rest.
class Fiber
  # @!method spin(tag = nil, caller = nil)
  #   Starts a child of this fiber.
  #   @yield [Object] what it was scheduled with first, normally nil
  #   @return [Fiber]

  # @!method await
  #   Waits until the fiber has ended.
  #   @return [Object] its result
  #   @raise [Exception] what it ended with
  # @!method join
  #   @see #await
  # @!method value
  #   @see #await

  # @!method schedule(value = nil)
  #   Makes the fiber runnable, at the end of the queue; an exception is raised in it. From any
  #   thread. A fiber that has ended is left alone.
  #   @return [self]
  #   @raise [FiberError] for a fiber of another thread that has ended

  # @!method schedule_with_priority(value = nil)
  #   The same, at the head of the queue.
  #   @return [self]

  # @!method state
  #   @return [Symbol] +:running+, +:runnable+, +:waiting+, +:dead+

  # @!method result
  #   @return [Object] of a fiber that has ended: value or exception

  # @!method switches
  #   @return [Integer] how often it had its turn, its start included: it was switched to, or went on after a wait

  # @!method tag
  #   @return [Object] a name for your own use, shown by inspect
  # @!method tag=(tag)
  #   @see #tag

  # @!method main?
  #   @return [true, nil] whether it is the main fiber of its thread

  # @!method thread
  #   @return [Thread, nil] nil for a fiber that has not run in any yet

  # @!method thread=(thread)
  #   Says where a fiber that has not waited yet belongs.
  #   @raise [FiberError] if it belongs to another thread
  #   @raise [ThreadError] if the thread has no backend

  # @!method setup_raw
  #   Makes the library know a fiber that it has not made, in the current thread, without a parent.
  #   @return [self]
  #   @raise [FiberError] for one it has made

  # @!method setup_main_fiber
  #   Makes the running fiber the main one of its thread, tagged +:main+, and forgets its children.
  #   @return [self]

  # @!method oob
  #   @return [Boolean] whether it runs a signal handler, out of band
  # @!method oob=(flag)
  #   @see #oob

  # @!method parent
  #   @return [Fiber, nil]
  # @!method parent=(fiber)
  #   @param fiber [Fiber, nil]
  #   @raise [FiberError] if that one has ended or is a descendant

  # @!method children
  #   @return [Array<Fiber>] eldest first

  # @!method await_all_children
  #   Waits until there are none.
  #   @return [self]

  # @!method graceful_shutdown?
  #   @return [Boolean] whether the fiber was asked to end gracefully; for ensure blocks
  # @!method graceful_shutdown=(flag)
  #   @see #graceful_shutdown?

  # @!method mailbox
  #   @return [Polyphony::Queue] uncapped, unless you cap it

  # @!method monitor_mailbox
  #   Where this fiber is told of the ends of those that it monitors.
  #   @return [Polyphony::Queue] of +[fiber, result]+

  # @!method <<(message)
  #   Puts a message into the mailbox, from any fiber or thread. A message to a fiber that has ended
  #   is dropped.
  #   @return [self]

  # @!method send(message)
  #   The same as #<<. With more arguments, or with a block, it is Object#send: +fiber.send(:name, 1)+
  #   calls a method. +__send__+ and +public_send+ always do.
  #   @return [self]

  # @!method receive
  #   Takes the next message out of the mailbox, waiting for one. May be called by other fibers than
  #   the one whose mailbox it is: each message goes to one of them, first come, first served.
  #   @return [Object] nil if the mailbox is closed, or its fiber ends, meanwhile
  #   @raise [ClosedQueueError] if there is none and none can come
end
