# frozen_string_literal: true

module Polyphony
  # Fiber-aware versions of Kernel's own words.
  module KernelExtensions
    # @!visibility private
    STOCK_SLEEP = ::Kernel.instance_method(:sleep)

    private

    # Like stock sleep, except that other fibers run meanwhile and that scheduling the fiber ends
    # it. In a main fiber, a sleep without end is no deadlock when nobody else is left: a signal may
    # come.
    # @param duration [Numeric, nil] seconds; for ever without it, or with nil where Ruby takes it (3.3)
    # @return [Integer, Object] seconds, rounded, as stock; or what the fiber was scheduled with
    # @raise [TypeError, ArgumentError] as stock
    def sleep(duration = (without = true; nil))
      return without ? super() : super(duration) unless Thread.__polyphony_ours?
      raise TypeError, "can't convert NilClass into time interval" if duration.nil? && !without && !NIL_IS_FOR_EVER

      duration ||= Float::INFINITY if Fiber.current.main?
      began = Clock.now
      value = duration ? Polyphony.backend_sleep(duration) : Polyphony.backend_wait_event(true)
      value.nil? ? (Clock.now - began).round : value
    end

    # @!visibility private
    NIL_IS_FOR_EVER = RUBY_VERSION.to_f >= 3.3
  end

  ::Kernel.prepend KernelExtensions
  ::Kernel.singleton_class.prepend(KernelExtensions.dup.module_eval { public :sleep; self })
end
