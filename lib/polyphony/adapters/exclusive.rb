# frozen_string_literal: true

require 'polyphony'

module Polyphony
  module Adapters
    # Raised when a fiber uses a connection on which another fiber waits for an answer. Without it, the two would read each
    # other's answers. A pool, such as Polyphony::ResourcePool, gives each fiber a connection of its own.
    class ConnectionInUse < ::RuntimeError
    end

    # For connections that can hold one conversation at a time: included by the modules that adapters prepend.
    # @api private
    module Exclusive
      # Calls the block while no other fiber gets in. The fiber itself may come in again, from a block for example.
      # @raise [ConnectionInUse] if another fiber is in
      def __alone
        fiber = ::Fiber.current
        return yield if fiber.equal?(@__polyphony_user)
        # A forked child has the connections of its parent, but not the fibers that were using them.
        raise ConnectionInUse, __in_use if @__polyphony_user && !@__polyphony_user.dead?

        @__polyphony_user = fiber
        begin
          yield
        ensure
          @__polyphony_user = nil
        end
      end

      private

      def __in_use
        "#{self.class} #{__id__} is in use by #{@__polyphony_user.inspect}, which waits for an answer, so #{::Fiber.current.inspect} " \
          'cannot use it now: give each fiber a connection of its own, from a pool for instance (see Polyphony::ResourcePool)'
      end
    end
  end
end
