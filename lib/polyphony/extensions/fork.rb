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

      ::Process.fork do
        Signals.reinstall
        __drop_limits__
        run_as_main(block)
      end
    end

    private

    def run_as_main(block)
      forked = Fiber.current
      Fiber.new(**fresh) { become_main(block) }.resume
    ensure
      forked.setup_main_fiber # for those at_exit
    end

    # Where Ruby has a storage of its own, since 3.2, a fiber inherits it unless told.
    def fresh
      stock = Fiber.instance_method(:storage).owner == Fiber
      stock ? { blocking: true, storage: nil } : { blocking: true }
    end

    def become_main(block)
      main = Fiber.current.setup_main_fiber
      block.call
    ensure
      main.shutdown_all_children
    end
  end
end
