# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # A task in the worker that runs it.
    # @api private
    class Job
      # How many reports may be on their way.
      WINDOW = 64
      private_constant :WINDOW

      # @param worker [Worker]
      # @param slot [Integer]
      # @param flags [Integer] see Frames
      def initialize(worker, slot, flags)
        @worker = worker
        @slot = slot
        @flags = flags
        @credit = WINDOW
        @waiting = WaitList.new
      end

      # Runs it, in a fiber of its own: what it spins ends with it, and what is raised in it late cannot hit the next one.
      # @return [Array(Integer, String)] kind of the answer, and the answer
      # @raise [Terminate] if it is broken off by the end of the worker
      def run(payload, tasks)
        @fiber = ::Fiber.current.spin(:task) { outcome(payload, tasks) }
        @fiber.await
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- of a fiber that it has spun
        raise if @worker.ending?

        failure(e)
      end

      # @return [Boolean] whether its fiber computes, or polls for all others that wait
      def running?
        @fiber&.running? || false
      end

      # Ends it where it waits; where it computes, raises. A shield or a mask holds it back.
      def cancel
        return unless @scope

        ::Thread.__polyphony_strike(@fiber, @scope) if running?
        @scope.cancel
      end

      # @param value [Object] what the waiting fiber is to hear
      # @return [Boolean] whether somebody listens
      def report(value)
        return false if (@flags & Frames::LISTENS).zero?

        bytes = dump(value, 'a report')
        @waiting.park until @credit.positive?
        @credit -= 1
        CancelScope.shield { @worker.post(Frames::PROGRESS, @slot, bytes) }
        true
      end

      # @param count [Integer] how many more reports may be sent
      def grant(count)
        @credit += count
        @waiting.wake_all
      end

      private

      def outcome(payload, tasks)
        value = CancelScope.cancel_after(nil, Cancel) do |scope|
          @scope = scope
          scope.cancel if @worker.cancelled?(@slot)
          ::Fiber[:__polyphony_job] = self
          perform(payload, tasks)
        end
        success(value)
      rescue MoveOn => e
        success(e.value)
      rescue Terminate
        @worker.ending? ? raise : success(nil) # stopped by itself, as a fiber that somebody awaits
      rescue Restart
        failure(RemoteError.new('Polyphony::Restart', 'a task is begun anew only if its worker dies: see retries'))
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        failure(e)
      end

      def perform(payload, tasks)
        target, method, args, options, headers = restore(payload)
        target = tasks.fetch(target) if target.is_a?(Symbol) && method.nil?
        return target.public_send(method || :call, *args, **options) unless Telemetry.on?

        Telemetry.resume(headers) { target.public_send(method || :call, *args, **options) }
      end

      def restore(payload)
        Marshal.load(payload) # rubocop:disable Security/MarshalLoad -- from our own parent
      rescue ::ArgumentError, ::TypeError => e
        raise TypeError, "the arguments are not known in this worker, which was forked before they were: #{e.message}"
      end

      def success(value)
        [Frames::DONE, (@flags & Frames::SILENT).zero? ? dump(value, 'the result') : '']
      rescue ::TypeError => e
        failure(e)
      end

      def dump(value, what)
        Marshal.dump(value)
      rescue ::TypeError, ::ArgumentError => e
        raise TypeError, "#{what} cannot be sent to another process: #{e.message}"
      end

      # As in any process, except that nothing is done at_exit.
      def failure(error)
        @worker.quit(error.status) if error.is_a?(SystemExit)
        [Frames::FAILED, Failure.dump(error)]
      end
    end
  end
end
