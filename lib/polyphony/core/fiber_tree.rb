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

    # Makes another fiber a child of this one.
    # @param child [Fiber]
    # @return [self]
    # @raise [FiberError] if this one has ended or is a descendant of it
    def add_child(child)
      child.attach_to(self)
      self
    end

    # Gives a child to the thread's main fiber, as detach does.
    # @param child [Fiber]
    # @return [self]
    # @raise [FiberError] if it is no child of this fiber
    def remove_child(child)
      unless equal?(child.parent)
        Kernel.raise FiberError, "#{child.inspect} is no child of #{inspect}"
      end

      child.detach
      self
    end

    # Makes this fiber a child of another one, which is told in its monitor_mailbox when it ends. An
    # error comes there, too, instead of being raised in the parent.
    # @param parent [Fiber]
    # @return [self]
    def attach_and_monitor(parent)
      attach_to(parent).monitor(parent)
    end

    # Gives all children to another fiber.
    # @param parent [Fiber]
    # @return [self]
    def attach_all_children_to(parent)
      children.each { |child| child.attach_to(parent) }
      self
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
