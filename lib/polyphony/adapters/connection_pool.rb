# frozen_string_literal: true

require 'polyphony'
require 'connection_pool'

module Polyphony
  module Adapters
    # connection_pool keeps what is checked out by fiber, and lets other fibers run while one waits, as it is. Its queue is not
    # fair, though: who gives a connection back wakes all who wait, and takes it again before they have run. A fiber that
    # uses a pool in a loop keeps the others out until their time is over. Here, who comes first is served first. And who
    # waits can be stopped, which connection_pool puts off.
    module ConnectionPool
      # Prepended to ConnectionPool::TimedStack. One waits for a connection, the others wait for their turn to do so.
      # @api private
      module FairStack
        # @return [Boolean] whether this version takes the limit as an argument (up to 2.5), not as a keyword
        POSITIONAL = ::ConnectionPool::TimedStack.instance_method(:pop).parameters.first&.first == :opt

        def initialize(*, **)
          super
          @__polyphony_turns = PerProcess.new { Semaphore.new(1) }
        end

        # As stock. The limit is for both waits. ConnectionPool#with masks all interrupts, so that none comes between a
        # connection and the block it is for; while one waits, there is no connection to lose.
        def pop(*args, **options)
          options = args.pop.merge(options) if args.last.is_a?(::Hash)
          limit = options.fetch(:timeout) { args.first || 0.5 }
          ::Thread.handle_interrupt(::Exception => :on_blocking) do
            __in_turn(limit) do |rest|
              POSITIONAL ? super(rest, { **options, timeout: rest }) : super(**options, timeout: rest)
            end
          end
        rescue ::ConnectionPool::TimeoutError => e
          raise e.class, "Waited #{limit} sec, #{length}/#{max} available", e.backtrace
        end

        # Whatever ends the fiber, the connection goes back.
        def push(*, **)
          shield { super }
        end

        # In a forked child: nobody gives back what fibers of the parent have, and connection_pool goes on counting it, from 2.5 on.
        def __forget_lent
          @created = @que.size if instance_of?(::ConnectionPool::TimedStack) && defined?(@created) && defined?(@que)
        end

        private

        # @yield [Float] what is left of the limit
        def __in_turn(limit)
          deadline = Clock.now + limit
          turns = @__polyphony_turns.value
          turn = turns.acquire(timeout: limit)
          yield [deadline - Clock.now, 0].max
        ensure
          turns&.release if turn
        end
      end

      if %i[pop push length max].all? { |name| ::ConnectionPool::TimedStack.method_defined?(name) }
        ::ConnectionPool::TimedStack.prepend FairStack
        ProcessFork.in_child { ::ObjectSpace.each_object(::ConnectionPool::TimedStack, &:__forget_lent) }
      else
        warn "polyphony: connection_pool #{::ConnectionPool::VERSION} is unknown, and used as it comes: fibers may not be served in order"
      end
    end
  end
end
