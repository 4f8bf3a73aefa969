# frozen_string_literal: true

require 'polyphony/extensions/timeout'

module Polyphony
  # Thread.handle_interrupt for fibers. What it says holds for the fiber that says it, and for all that
  # comes from outside: Thread#raise, Fiber#raise, a stop, a time limit that was set around the block.
  module Interrupts
    # Class methods of Thread.
    module ForThread
      # As stock, for the current fiber. A stop or a limit that is over comes at switchpoints, so
      # +:immediate+ and +:on_blocking+ differ for what would come in the middle of a computation.
      # What was held back comes at the end of the block, or in a block within that allows it. Limits set
      # within the block are not held back, except those of Timeout.
      # @param mask [Hash{Class => Symbol}] +:immediate+, +:on_blocking+ or +:never+
      # @yield
      # @return [Object] what the block returns
      # @raise [ArgumentError] for other timings, or without a block
      def handle_interrupt(mask, &block)
        return super unless block && mask.respond_to?(:to_hash) && Thread.__polyphony_main_ractor?

        timings = Interrupts.timings(mask.to_hash)
        return __polyphony_mask(timings, &block) unless __polyphony_own_mask?

        super(timings) { __polyphony_mask(timings, &block) }
      end

      # As stock, for the current fiber.
      # @param error [Class] any without it
      # @return [Boolean] whether something is held back, or comes at the next switchpoint
      def pending_interrupt?(*error)
        Thread.current.pending_interrupt?(*error)
      end

      # @see Thread#kill
      # @param thread [Thread]
      # @return [Thread]
      def kill(thread)
        thread.is_a?(Thread) ? thread.kill : super
      end
    end

    # Methods of threads.
    module ForThreads
      # As stock. Asked for the current thread, it speaks of the current fiber; for another, of its main one.
      # What Ruby itself holds back (for a thread that has not begun or never waited) is of any class: up to 3.1 it
      # crashes when asked.
      # @param error [Class] any without it
      # @return [Boolean]
      def pending_interrupt?(*error)
        return true if __polyphony_held_back?(error.first)

        super() && (self != Thread.current || Thread.__polyphony_own_mask?)
      end
    end

    class << self
      # @!visibility private
      # Where stock Timeout raises its error in the block, and not an ExitException, a mask for that error
      # means what ours raises there.
      def timings(mask)
        own = mask.dup.compare_by_identity
        return own.freeze if defined?(::Timeout::ExitException)

        named = ::Timeout::Error.ancestors.find { |ancestor| own.key?(ancestor) }
        own[TimeoutExtensions::Expired] = own[named] if named && !own.key?(TimeoutExtensions::Expired)
        own.freeze
      end
    end

    ::Thread.singleton_class.prepend ForThread
    ::Thread.prepend ForThreads
  end
  private_constant :Interrupts
end
