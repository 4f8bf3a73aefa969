# frozen_string_literal: true

require 'monitor'

module Polyphony
  # Ruby's own locks and queues in fibers: who waits there lets others run, in blocking fibers, too. In C.
  # @!visibility private
  module StockLocks
    # Ruby's own, for stand-ins.
    ::Monitor.alias_method :__polyphony_enter, :enter

    ::Thread::Mutex.prepend Mutex
    ::Thread::ConditionVariable.prepend ConditionVariable
    ::Thread::Queue.prepend Queue
    ::Thread::SizedQueue.prepend SizedQueue
    ::Monitor.prepend Monitor
  end

  private_constant :StockLocks
end
