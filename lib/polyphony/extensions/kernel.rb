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
    # @param duration [Numeric, nil] seconds; for ever without it
    # @return [Object] what the fiber was scheduled with, normally nil
    def sleep(duration = nil)
      duration ||= Float::INFINITY if Fiber.current.main?
      duration ? Polyphony.backend_sleep(duration) : Polyphony.backend_wait_event(true)
    end
  end

  ::Kernel.prepend KernelExtensions
  ::Kernel.singleton_class.prepend(KernelExtensions.dup.module_eval { public :sleep; self })
end
