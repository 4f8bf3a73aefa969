# frozen_string_literal: true

module Polyphony
  class Scheduler
    # Ruby asks a thread's scheduler in all non-blocking fibers, those that are spun among them. Somebody
    # else's does not know these: it would resume or yield them, which is not how they are switched. So
    # this one stands before it, and takes what concerns our fibers.
    # @!visibility private
    class Shared < Scheduler
      # Those that Ruby demands; it does without the others. (We have no io_pwrite, see class_scheduler.c: so
      # the other one is not asked for it, either.)
      DEMANDED = %i[block unblock kernel_sleep io_wait].freeze
      OPTIONAL = %i[io_select io_read io_write io_pread io_close process_wait address_resolve timeout_after
                    blocking_operation_wait fiber_interrupt yield].freeze
      # These name the fiber in their second and first argument, and may be called in others.
      NAMES_FIBER = { unblock: 1, fiber_interrupt: 0 }.freeze

      # @return [Object] the scheduler of somebody else's
      attr_reader :other

      # @return [Boolean] whether Ruby would take it
      def self.possible?(other)
        DEMANDED.all? { |hook| other.respond_to?(hook) }
      end

      # What the other one does not have, Ruby must not find here.
      def initialize(other)
        super()
        @other = other
        missing = [*OPTIONAL, :fiber, :run].reject { |hook| other.respond_to?(hook) }
        missing.each { |hook| singleton_class.undef_method(hook) }
      end

      (DEMANDED + OPTIONAL).each do |hook|
        named = NAMES_FIBER[hook]
        define_method(hook) do |*arguments, &block|
          fiber = named ? arguments[named] : Fiber.current
          next super(*arguments, &block) if Scheduler.__has?(fiber)

          @other.public_send(hook, *arguments, &block)
        end
      end

      # For Fiber.schedule, which is the other's in every fiber.
      def fiber(...)
        @other.fiber(...)
      end

      # What its fibers are waited for with.
      def run
        @other.run
      end

      # Ours comes back when the other one has gone.
      def close
        last = %i[scheduler_close close run].find { |hook| @other.respond_to?(hook) }
        @other.public_send(last) if last
      ensure
        super
      end

      # What Fiber answers when it is asked for the scheduler.
      module Words
        # @param scheduler [Object, nil]
        # @return [Object, nil] scheduler
        def set_scheduler(scheduler) # rubocop:disable Naming/AccessorMethodName -- Ruby's word
          shared = scheduler && !scheduler.is_a?(Scheduler) && Shared.possible?(scheduler)
          super(shared ? Shared.new(scheduler) : scheduler)
          scheduler
        end

        # @return [Object, nil] the one that was set
        def scheduler
          found = super
          found.is_a?(Shared) ? found.other : found
        end

        # @return [Object, nil] the one which has the waits of the running fiber; nil if it is a blocking one
        def current_scheduler
          found = super
          found.is_a?(Shared) && !Scheduler.__has?(Fiber.current) ? found.other : found
        end
      end
    end

    private_constant :Shared
    __share Shared
  end

  ::Fiber.singleton_class.prepend Scheduler.const_get(:Shared)::Words
end
