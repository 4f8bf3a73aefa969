# frozen_string_literal: true

require 'polyphony/core/telemetry/hooks'

module Polyphony
  # What is going on for whom: libraries that trace requests keep a current context, and forget it where work goes on in
  # another fiber, thread or process. With hooks set, the context of who spins a fiber, makes a thread, hands over a job,
  # sends a message or asks over HTTP goes along. +polyphony/adapters/opentelemetry+ has hooks for OpenTelemetry; others are a
  # class with a few methods, see {Hooks}. Without hooks all this costs a comparison here and there.
  #
  # @example The same number on all lines of a log that belong together
  #   class Numbers < Polyphony::Telemetry::Hooks
  #     def capture
  #       Thread.current[:number]
  #     end
  #
  #     def carry(number)
  #       before, Thread.current[:number] = Thread.current[:number], number
  #       yield
  #     ensure
  #       Thread.current[:number] = before
  #     end
  #   end
  #   Polyphony::Telemetry.hooks = Numbers.new
  module Telemetry
    # What goes into the environment of another process, or between quotes, is not longer than this.
    LONGEST = 8192
    private_constant :LONGEST

    class << self
      # @return [Hooks, nil]
      attr_reader :hooks

      # For all threads. Set them when the program begins: what was spun or sent before goes on without.
      # @param hooks [Hooks, nil] nil: none from now on
      def hooks=(hooks)
        raise ArgumentError, "hooks are a Polyphony::Telemetry::Hooks, got #{hooks.inspect}" unless hooks.nil? || hooks.is_a?(Hooks)

        @hooks = hooks
        @warned = nil
        Polyphony.__telemetry = hooks && self
      end

      # @return [Boolean] whether there are hooks
      def on?
        !@hooks.nil?
      end

      # Runs the block in the context of who sent the last message that this fiber has taken: by Fiber#receive, or out of a
      # Polyphony::Queue. If that one had none, as if this were not there. The blocks of receive_loop and Queue#each run so anyway.
      # @example
      #   job = queue.shift
      #   Polyphony::Telemetry.continue { work_on(job) }
      # @return [Object] what the block returns
      def continue(&block)
        raise ArgumentError, 'continue needs a block to run' unless block

        context = @hooks && ::Fiber.current.__received
        context.nil? ? yield : @hooks.carry(context, &block)
      end

      # A block that will run in the context of now, whoever calls it: for callbacks, and queues that are not Polyphony's.
      # @example
      #   queue << Polyphony::Telemetry.bind { resize(picture) }    # a Thread::Queue
      # @return [Proc]
      def bind(&block)
        raise ArgumentError, 'bind needs a block' unless block

        context = @hooks && __capture
        return block if context.nil?

        bound(@hooks, context, block)
      end

      # Runs the block outside of every context: for what is begun once, by whoever comes first, and serves all.
      # @return [Object] what the block returns
      def apart(&block)
        raise ArgumentError, 'apart needs a block to run' unless block

        @hooks ? @hooks.apart(&block) : yield
      end

      # The context of now for another program: headers of HTTP, of a message, or variables of an environment.
      # @example
      #   Excon.get(url, headers: Polyphony::Telemetry.headers)
      # @return [Hash{String => String}] empty if there is none
      def headers
        @hooks ? guarded({}) { @hooks.inject({}) } : {}
      end

      # Runs the block in the context that came from another program.
      # @param headers [Hash{String => String}] with names in lower case
      # @return [Object] what the block returns
      def resume(headers, &block)
        raise ArgumentError, 'resume needs a block to run' unless block

        context = @hooks && headers && guarded(nil) { @hooks.extract(headers) }
        context.nil? ? apart(&block) : @hooks.carry(context, &block)
      end

      # What lines of a log need so that they can be found for a trace.
      # @return [Hash{Symbol => String}] +:trace_id+ and +:span_id+, for instance; empty if there is no context
      def ids
        @hooks ? guarded({}) { @hooks.ids } : {}
      end

      # @!visibility private
      # In C, where a fiber is spun or a message sent. What is for watching must not break what is watched.
      def __capture
        @hooks&.capture
      rescue ::StandardError => e
        complain(e)
      end

      # @!visibility private
      # In C, where a fiber or a thread begins.
      # @param fiber [Fiber, nil] nil: it is a thread
      def __begin(context, fiber, &block)
        hooks = @hooks or return yield
        fiber ? hooks.fiber(fiber, context, &block) : hooks.carry(context, &block)
      end

      # @!visibility private
      # @param context [Object, nil] what __capture has returned
      def __within(context, &block)
        context.nil? || @hooks.nil? ? yield : @hooks.carry(context, &block)
      end

      # @!visibility private
      # For another process of ours.
      # @return [Hash{String => String}, nil]
      def __headers
        found = headers
        found unless found.empty?
      end

      # @!visibility private
      # From another machine, or from a file: nothing that is not a small Hash of Strings.
      def __checked(headers)
        return unless headers.is_a?(::Hash) && headers.size <= 16

        headers if headers.all? { |name, value| name.is_a?(::String) && value.is_a?(::String) && value.bytesize <= LONGEST }
      end

      private

      # What can be called as the block itself, with all its ways to take arguments.
      def bound(hooks, context, block)
        return -> { hooks.carry(context) { block.call } } if block.lambda? && block.arity.zero?
        return ->(*args, &inner) { hooks.carry(context) { block.call(*args, &inner) } }.ruby2_keywords if block.lambda?

        proc { |*args, &inner| hooks.carry(context) { block.call(*args, &inner) } }.ruby2_keywords
      end

      def guarded(otherwise)
        yield
      rescue ::StandardError => e
        complain(e)
        otherwise
      end

      # Once: it would be said for each request.
      def complain(error)
        return if @warned

        @warned = true
        warn "polyphony: a hook of #{@hooks.class} raised #{error.class}: #{error.message} (#{error.backtrace&.first})"
      end
    end
  end
end
