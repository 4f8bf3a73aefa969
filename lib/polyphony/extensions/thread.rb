# frozen_string_literal: true

module Polyphony
  # A thread's fibers end with it, and so does its backend.
  module ThreadExtensions
    # @yield in the thread; when it has ended, the fibers it spun are shut down
    def initialize(*args, **options, &block)
      block &&= ThreadExtensions.wrap(block)
      super(*args, **options, &block)
    end

    # Thread.start and Thread.fork do not call initialize.
    module Start
      # @see ThreadExtensions#initialize
      def start(*args, **options, &block)
        block &&= ThreadExtensions.wrap(block)
        super(*args, **options, &block)
      end

      # @see ThreadExtensions#initialize
      def fork(*args, **options, &block)
        block &&= ThreadExtensions.wrap(block)
        super(*args, **options, &block)
      end
    end

    # @!visibility private
    def self.wrap(block)
      proc do |*arguments, **keywords|
        Thread.current.__polyphony_note_root
        block.call(*arguments, **keywords)
      ensure
        finish
      end
    end

    # @!visibility private
    # Waits for children of the thread's main fiber, then gives back descriptors and memory.
    def self.finish
      thread = Thread.current
      return unless thread.__polyphony_backend?

      thread.main_fiber.shutdown_all_children
    rescue MoveOn, Terminate
      nil # its main fiber is ending already
    ensure
      thread.main_fiber.__end_messages if thread.__polyphony_backend?
      thread.backend.finalize if thread.__polyphony_backend?
    end
  end

  ::Thread.prepend ThreadExtensions
  ::Thread.singleton_class.prepend ThreadExtensions::Start
end
