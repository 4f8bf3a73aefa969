# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # Something for a worker to do, and what became of it. Where it is, is the crew's business.
    # @api private
    class Task
      # How many reports are taken before the worker is told that it may send more.
      BATCH = 32

      # @return [String] the call and its arguments
      attr_reader :payload
      # @return [Call]
      attr_reader :call
      # @return [Integer] see Frames
      attr_reader :flags
      # @return [Lane, nil] in whose queue, or at whose worker, it is
      attr_accessor :lane
      # @return [Integer, nil] with which number it is at the worker
      attr_accessor :slot
      # @return [Integer] how often it may be begun anew, when a worker dies
      attr_accessor :retries

      # @param call [Call]
      # @param payload [String]
      # @param retries [Integer]
      # @param flags [Integer]
      # @yield when it is over, in any way
      def initialize(call, payload, retries:, flags: 0, &over)
        @call = call
        @payload = payload
        @retries = retries
        @flags = flags
        @over = over
        @news = Queue.new.__for_ourselves
        @reports = 0
      end

      # @return [Boolean] whether nothing more is wanted of it
      def over?
        @finished || false
      end

      # It has been done, or nobody wants it any more. Once.
      def finish(kind, content)
        return if @finished

        @finished = true
        @news << [kind, content] << nil
        @over&.call
      end

      # The worker reports.
      def report(content)
        @news << [Frames::PROGRESS, content] unless @finished
      end

      # Waits until it is done.
      # @yield [Object] each report; without a block there are none
      # @return [Object] what it returned
      # @raise [Exception] what it raised
      def value(crew)
        kind, content = @news.shift
        while kind == Frames::PROGRESS
          yield restore(content)
          crew.grant(self, BATCH) if ((@reports += 1) % BATCH).zero?
          kind, content = @news.shift
        end
        kind == Frames::DONE ? restore(content) : raise(error(kind, content))
      end

      # @return [String] for messages
      def to_s
        @call.to_s
      end

      private

      # Not in the fiber that reads from the worker: what is loaded may be large, or not be known here.
      def restore(content)
        Marshal.load(content) unless content.empty? # rubocop:disable Security/MarshalLoad -- from our own child
      rescue ::ArgumentError, ::TypeError => e
        raise TypeError, "what #{self} returned is not known outside of the worker: #{e.message}"
      end

      def error(kind, content)
        kind == Frames::FAILED ? Failure.load(content) : content
      end
    end

    # One that nobody waits for.
    # @api private
    class Cast < Task
      # @param fiber [Fiber] who wants it done
      def initialize(call, payload, fiber:, **options)
        super(call, payload, flags: Frames::SILENT, **options)
        @fiber = fiber
      end

      # An error is raised in the fiber, as that of a child would be; when that has ended, in the main fiber of the
      # program. When that one never waits, there is only the standard error.
      def finish(kind, content)
        return if over?

        super
        # A child that is stopped with its parent is no error either.
        return if kind == Frames::DONE || content.nil? || content.is_a?(Stopped)

        error = error(kind, content)
        fiber = [@fiber, ::Thread.main.main_fiber].find { |one| one && !one.dead? }
        fiber ? fiber.schedule(error) : $stderr.write(error.full_message)
      end
    end
  end
end
