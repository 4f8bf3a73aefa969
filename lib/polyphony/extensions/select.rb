# frozen_string_literal: true

module Polyphony
  # IO.select as stock, while other fibers run. Bytes that a cancelled read had taken already count as
  # readable, and an IO that another fiber closes ends it with IOError.
  module SelectExtensions
    # @overload select(readables, writables = nil, exceptables = nil, timeout = nil)
    #   @param readables [Array<#to_io>, nil]
    #   @param writables [Array<#to_io>, nil]
    #   @param exceptables [Array<#to_io>, nil]
    #   @param timeout [Numeric, nil] seconds
    #   @return [Array(Array, Array, Array), nil] what is ready; nil when the time is over
    def select(*args)
      return super unless Thread.__polyphony_may_wait?

      Polyphony.backend_select(*args)
    end

    # For Kernel, whose method is a private one.
    module Private
      private

      # @see SelectExtensions#select
      def select(*args)
        return super unless Thread.__polyphony_may_wait?

        Polyphony.backend_select(*args)
      end
    end
  end

  ::IO.singleton_class.prepend SelectExtensions
  ::Kernel.singleton_class.prepend SelectExtensions
  ::Kernel.prepend SelectExtensions::Private
end
