# frozen_string_literal: true

module Polyphony
  class << self
    # As Kernel#fork with a block, except that the block runs in a fresh fiber, which is the child's main one:
    # time limits, shields, deadlines and storage of the forking fiber stay behind, and so do handlers of
    # INT and TERM. At the end of the block its fibers are shut down.
    # @yield in the child
    # @return [Integer] pid of the child
    # @raise [ArgumentError] without a block
    def fork(&block)
      raise ArgumentError, 'Polyphony.fork needs a block to run in the child' unless block

      ProcessFork.child do
        Signals.reinstall
        __as_main(&block)
      end
    end
  end
end
