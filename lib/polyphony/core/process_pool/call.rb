# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # What a task is to do: a name that the pool was made with, or an object that can be sent, and the arguments.
    # @api private
    class Call
      class << self
        # @param tasks [Hash{Symbol => #call}] by name
        # @param words [Array] as given to process
        # @return [Call]
        # @raise [ArgumentError] for what cannot be called
        def from(tasks, words)
          target, *args = words
          raise ArgumentError, "which task? #{ways(tasks)}" if words.empty?
          return new(known(tasks, target), nil, args) if target.is_a?(Symbol)
          return new(target.receiver, target.name, args) if target.is_a?(::Method)
          raise ArgumentError, "#{target.inspect} cannot be sent to another process: #{ways(tasks)}" if target.is_a?(::Proc)
          return new(target, nil, args) if target.respond_to?(:call)

          method = args.shift
          return new(target, method, args) if method.is_a?(Symbol)

          raise ArgumentError, "#{target.inspect} does not respond to call, so the name of a method has to follow, " \
                               "got #{method.inspect}"
        end

        # @return [String] what can be done, for messages
        def ways(tasks)
          known = tasks.empty? ? 'none' : tasks.keys.map(&:inspect).join(', ')
          'give the block to ProcessPool.new, as in ProcessPool.new(2, resize: ->(x) { ... }), and name it, as in ' \
            "process(:resize, x); or name an object and its method, as in process(Zlib, :crc32, x). Known by name: #{known}"
        end

        private

        def known(tasks, name)
          return name if tasks.key?(name)

          raise ArgumentError, "there is no task #{name.inspect} in this pool: #{ways(tasks)}"
        end
      end

      # @param target [Object] a name, or what is called
      # @param method [Symbol, nil] nil: call
      # @param args [Array]
      def initialize(target, method, args)
        @target = target
        @method = method
        @args = args
      end

      # @param first [Array] arguments before the others
      # @param options [Hash] keyword arguments
      # @return [String]
      # @raise [TypeError] if something of it cannot be sent
      def dump(first, options)
        Marshal.dump([@target, @method, [*first, *@args], options, Telemetry.__headers])
      rescue ::TypeError, ::ArgumentError => e
        raise TypeError, "#{self} cannot be sent to a worker with these arguments: #{e.message}"
      end

      # @return [String] for messages
      def to_s
        return "task #{@target.inspect}" if @target.is_a?(Symbol) && @method.nil?

        place = @target.is_a?(::Module) ? @target.inspect : "a #{@target.class}"
        @target.is_a?(::Module) ? "#{place}.#{@method || :call}" : "#{@method || :call} of #{place}"
      end
    end
  end
end
