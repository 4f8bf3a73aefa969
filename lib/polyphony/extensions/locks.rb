# frozen_string_literal: true

require 'monitor'

module Polyphony
  # Ruby's own locks and queues in fibers: who waits there lets others run, in blocking fibers, too. In C.
  # @!visibility private
  module StockLocks
    # Ruby's own.
    %i[enter exit try_enter].each { |name| ::Monitor.alias_method :"__polyphony_#{name}", name }

    ::Thread::Mutex.prepend Mutex
    ::Thread::ConditionVariable.prepend ConditionVariable
    ::Thread::Queue.prepend Queue
    ::Thread::SizedQueue.prepend SizedQueue
    ::Monitor.prepend Monitor
  end

  private_constant :StockLocks
end
