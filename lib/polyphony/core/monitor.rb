# frozen_string_literal: true

require 'monitor'
require 'polyphony/core/condition_variable'

module Polyphony
  # A lock that its fiber may enter again; it is free when it has been left as often. In C, but for
  # the conditions. The names are those of Ruby's own Monitor; +lock+, +unlock+ and +try_lock+ do
  # what +enter+, +exit+ and +try_enter+ do.
  class Monitor < Mutex
    # @!method enter
    #   Waits for the monitor, unless the current fiber is in it already.
    #   @return [self]
    # @!method mon_enter
    #   @see #enter
    # @!method lock
    #   @see #enter

    # @!method exit
    #   @return [self]
    #   @raise [ThreadError] if the current fiber is not in it
    # @!method mon_exit
    #   @see #exit
    # @!method unlock
    #   @see #exit

    # @!method try_enter
    #   @return [Boolean] whether the current fiber has got it, without waiting
    # @!method try_mon_enter
    #   @see #try_enter
    # @!method mon_try_enter
    #   @see #try_enter
    # @!method try_lock
    #   @see #try_enter

    # @!method synchronize
    #   @yield in the monitor
    #   @return [Object] what the block returns
    # @!method mon_synchronize
    #   @see #synchronize

    # @!method mon_locked?
    #   @return [Boolean] whether a fiber is in it

    # @!method mon_owned?
    #   @return [Boolean] whether the current fiber is in it

    # @!method mon_check_owner
    #   @return [nil]
    #   @raise [ThreadError] if the current fiber is not in it

    # @return [Condition] to wait for in this monitor
    def new_cond
      Condition.new(self)
    end

    # Waits for the condition without the monitor, and enters it again as often as it was.
    # @param cond [ConditionVariable]
    # @param timeout [Numeric, nil] seconds
    # @return [Boolean] false after the timeout
    def wait_for_cond(cond, timeout)
      cond.wait(self, timeout)
    end

    # A condition that knows its monitor. Made by Monitor#new_cond. All methods raise ThreadError
    # outside the monitor.
    class Condition
      # @param monitor [Monitor]
      def initialize(monitor)
        @monitor = monitor
        @cond = ConditionVariable.new
      end

      # @param timeout [Numeric, nil] seconds
      # @return [Boolean] false after the timeout
      def wait(timeout = nil)
        @monitor.wait_for_cond(@cond, timeout)
      end

      # Waits again and again while the block says so.
      # @yieldreturn [Boolean]
      # @return [nil]
      def wait_while
        wait while yield
      end

      # Waits again and again until the block says so.
      # @yieldreturn [Boolean]
      # @return [nil]
      def wait_until
        wait until yield
      end

      # Wakes the one who has waited longest.
      # @return [self]
      def signal
        @monitor.mon_check_owner
        @cond.signal
        self
      end

      # Wakes all who wait.
      # @return [self]
      def broadcast
        @monitor.mon_check_owner
        @cond.broadcast
        self
      end
    end
  end

  # Ruby's MonitorMixin around a Polyphony::Monitor: include it into a class, or extend an object.
  module MonitorMixin
    include ::MonitorMixin

    # @!visibility private
    def self.extend_object(object)
      super
      object.__send__(:mon_initialize)
    end

    # @return [Monitor::Condition]
    def new_cond
      super # sets up what is not yet
      @mon_data.new_cond
    end

    private

    # Ruby's own refuses a second time.
    def mon_initialize
      super
      @mon_data = Monitor.new unless @mon_data.is_a?(Monitor)
    end
  end
end
