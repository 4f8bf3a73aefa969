# frozen_string_literal: true

module Polyphony
  # A thread's fibers end with it, and so does its backend.
  module ThreadExtensions
    def initialize(*args, **options, &block)
      return super unless block

      super(*args, **options) do |*arguments, **keywords|
        block.call(*arguments, **keywords)
      ensure
        ThreadExtensions.finish
      end
    end

    # @!visibility private
    # Waits for children of the thread's main fiber, then gives back descriptors and memory.
    def self.finish
      thread = Thread.current
      return unless thread.__polyphony_backend?

      thread.main_fiber.shutdown_all_children
    ensure
      thread.backend.finalize if thread.__polyphony_backend?
    end
  end

  ::Thread.prepend ThreadExtensions
end
