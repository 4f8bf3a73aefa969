# frozen_string_literal: true

require 'polyphony/version'
require 'polyphony/polyphony_ext'
require 'polyphony/core/exceptions'
require 'polyphony/core/clock'
require 'polyphony/core/faults'
require 'polyphony/core/backtrace'
require 'polyphony/core/wait_report'
require 'polyphony/core/wait_cycles'
require 'polyphony/core/deadline'
require 'polyphony/core/backend'
require 'polyphony/core/queue'
require 'polyphony/core/event'
require 'polyphony/core/wait_list'
require 'polyphony/core/mutex'
require 'polyphony/core/condition_variable'
require 'polyphony/core/monitor'
require 'polyphony/core/semaphore'
require 'polyphony/core/channel'
require 'polyphony/core/cancel_scope'
require 'polyphony/core/fiber'
require 'polyphony/core/thread'
require 'polyphony/core/fiber_storage'
require 'polyphony/core/fiber_tree'
require 'polyphony/core/fiber_control'
require 'polyphony/core/monitoring'
require 'polyphony/core/await'
require 'polyphony/core/request'
require 'polyphony/core/wards'
require 'polyphony/core/too_many_restarts'
require 'polyphony/core/backoff'
require 'polyphony/core/restart_policy'
require 'polyphony/core/supervisor'
require 'polyphony/core/supervision_arguments'
require 'polyphony/core/supervision'
require 'polyphony/core/scope'
require 'polyphony/core/sched'
require 'polyphony/core/messaging'
require 'polyphony/core/pipe'
require 'polyphony/core/fork'
require 'polyphony/core/per_process'
require 'polyphony/core/throttler'
require 'polyphony/core/resource_pool'
require 'polyphony/core/roster'
require 'polyphony/core/crew'
require 'polyphony/core/crew/pooled'
require 'polyphony/core/thread_pool'
require 'polyphony/core/blocking_pool'
require 'polyphony/core/timer'
require 'polyphony/core/callback'
require 'polyphony/core/scheduler'
require 'polyphony/core/global_api'
require 'polyphony/core/telemetry'

# Fine-grained, structured concurrency on fibers. +require 'polyphony/core'+ brings the words and
# the backend and changes no method of stock Ruby's; +require 'polyphony'+ makes the blocking
# methods of stock Ruby fiber-aware besides.
module Polyphony
  autoload :ProcessPool, 'polyphony/core/process_pool'
  private_constant :Claims

  class << self
    # @return [Polyphony::Pipe] a new pipe, both ends in one object
    def pipe
      Pipe.new
    end
  end
end
