# frozen_string_literal: true

module Polyphony
  # Parents and children. A child never outlives its parent.
  module FiberTree
    # Makes this fiber a child of another one.
    # @param parent [Fiber]
    # @return [self]
    def attach_to(parent)
      self.parent = parent
      self
    end

    # Makes this fiber a child of its thread's main fiber, so that it may outlive its parent.
    # @return [self]
    # @raise [FiberError] for a fiber that has not run in any thread yet
    def detach
      Kernel.raise FiberError, "#{inspect} belongs to no thread yet" unless thread

      attach_to(thread.main_fiber)
    end

    # Stops all children without waiting for them.
    # @param graceful [Boolean] sets their graceful_shutdown? flag
    # @return [self]
    def terminate_all_children(graceful: false)
      children.reverse_each { |child| child.terminate(graceful: graceful) }
      self
    end

    # Stops all children, youngest first, and waits until they have ended.
    # @param graceful [Boolean] sets their graceful_shutdown? flag
    # @return [self]
    def shutdown_all_children(graceful: false)
      __shut_down_children(graceful)
    end
  end

  ::Fiber.include FiberTree
end
