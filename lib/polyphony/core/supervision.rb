# frozen_string_literal: true

module Polyphony
  # Fibers that answer for the ends of others.
  module FiberSupervision
    # Answers for children: waits for their ends, tells of them, restarts them.
    #
    # Without +restart+ and without a handler, returns when all have ended, and raises the error of
    # one that fails. With either it goes on for ever, also for children that come later; +break+ in
    # the block, or whatever ends a wait, ends it. In a main fiber it returns when there are no
    # children and nothing can happen any more. However it is left, those that still run are ended
    # first, the last to be started first, each when the one before has ended.
    #
    # An error that a handler is told of is not raised. One that nobody is told of, because of
    # +restart+, is written to standard error.
    # @param fibers [Array<Fiber>] become children; without them, all children are supervised
    # @param on_done [#call] gets fiber and result of each that ends, as the block does
    # @param on_error [#call] gets fiber and exception of each that fails
    # @param on_restart [#call] gets the new fiber and the one whose place it takes
    # @param restart [:always, true, :on_error, nil] whom to restart
    # @param strategy [:one_for_one, :one_for_all, :rest_for_one] who is restarted with it: nobody, all,
    #   or those started after it. They are ended first, then all are started in order
    # @param max_restarts [Integer, nil] how many there may be
    # @param within [Numeric, nil] in how many seconds; nil: in all
    # @param backoff [Numeric, Range, Hash, nil] seconds before a restart. A Range: twice as long after
    #   each failure, from its begin to its end, each time made up to a half shorter at random. A Hash
    #   with +:from+ and +:to+ may have +:factor+ and +:jitter+ (0 to 1). A fiber that has run for as long as
    #   the longest wait begins with the shortest again
    # @param grace [Numeric, nil] seconds each has to clean up before that is interrupted; nil: any
    # @yield [fiber, result] for each end
    # @return [nil]
    # @raise [TooManyRestarts] when all others have been ended
    # @example
    #   spin(:cache) { run_cache }
    #   spin(:web) { run_web }
    #   supervise(restart: :on_error, max_restarts: 3, within: 10, backoff: 0.1..5)
    def supervise(*fibers, on_done: nil, on_error: nil, on_restart: nil, restart: nil,
                  strategy: :one_for_one, max_restarts: nil, within: nil, backoff: nil, grace: nil, &block)
      policy = RestartPolicy.new(restart: restart, strategy: strategy, max_restarts: max_restarts,
                                 within: within, backoff: backoff)
      handlers = Supervisor::Handlers.new([on_done, block].compact, on_error, on_restart)
      SupervisionArguments.check(self, fibers = fibers.flatten.uniq, handlers, policy, grace)
      Supervisor.new(policy, handlers, grace).run(fibers)
    end

    # Makes this fiber a child of another one. If either parent supervises, it is told.
    # @param fiber [Fiber, nil]
    # @raise [FiberError] if that one has ended or is a descendant
    def parent=(fiber)
      former = parent
      super
      former.__supervisor&.lose(self) if former && !former.equal?(parent)
      parent&.__supervisor&.gain(self)
    end

    # @!visibility private
    attr_accessor :__supervisor

    # @!visibility private
    def __respawn(value)
      super.tap { |again| again.parent.__supervisor&.gain(again) }
    end
  end

  ::Fiber.prepend FiberSupervision
end
