# frozen_string_literal: true

module Polyphony
  class Crew
    # A block for a thread of a pool, and what became of it.
    # @api private
    class Job
      OWN_FRAMES = File.expand_path('../..', __dir__)
      WAKEUP = ::Thread.instance_method(:wakeup)
      PAUSE = 0.001
      TURN = 0.0005
      private_constant :OWN_FRAMES, :WAKEUP, :PAUSE, :TURN

      # @param block [Proc]
      def initialize(block)
        @block = block
        @context = Telemetry.__capture
        @ended = Event.new.__serve(self, 'a block in a thread')
      end

      # @return [String] where the block is
      def inspect
        "#<block #{@block.source_location&.join(':')}>"
      end

      # Runs the block, in a fiber of its own: what it spins ends with it, and an error that comes
      # late cannot hit the next job.
      def run
        @thread = ::Thread.current
        @value = Telemetry.__within(@context) { ::Fiber.current.spin(:job, &@block) }.await
        @returned = true
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @error = e
      end

      # Tells whoever waits that it has run, or that its thread was killed.
      def finish
        @finished = true
        @ended.signal
      end

      # @return [Boolean]
      def finished?
        @finished
      end

      # Waits until it has run.
      # @return [Object] what the block returned
      def value
        wait
        outcome
      end

      # Waits until it has run.
      def wait
        @ended.await
      end

      # The same. Its thread needs the lock of the interpreter to begin and to end, which a thread that is
      # never idle gives up ten times a second: more often meanwhile.
      def wait_giving_way
        until @finished
          CancelScope.move_on_after(TURN, nil) { @ended.await }
          ::Thread.__polyphony_stock_pass unless @finished
        end
      end

      # The same, whatever comes, and wakes it from what it may be waiting for: more than once, for it may
      # be just about to.
      def hurry
        CancelScope.shield do
          until @finished
            WAKEUP.bind_call(@thread) if @thread&.alive?
            Polyphony.backend_sleep(PAUSE)
          end
        end
      end

      # @return [Object] what the block returned
      # @raise [Exception] what it raised
      def outcome
        raise with_callers_frames(@error) if @error
        raise ThreadError, 'the thread that ran this job was killed' unless @returned

        @value
      end

      private

      # A copy, because the error may be frozen, or one that is raised again and again.
      def with_callers_frames(error)
        frames = caller.reject { |frame| frame.start_with?(OWN_FRAMES) }
        error.dup.tap { |copy| copy.set_backtrace([*error.backtrace, *frames]) }
      rescue ::StandardError
        error # it cannot be copied; what it has to say counts more than where it was asked for
      end
    end

    # A job that can be interrupted: what waits, where it waits; what computes or waits in C, in the middle of it.
    # @api private
    class Interruptible < Job
      STRIKE = 0.001
      private_constant :STRIKE

      def initialize(block)
        super
        @interrupt = Event.new
      end

      # A fiber beside the block expires its scope: it has its turn only when the block is at a switchpoint, so the exception
      # is delivered there.
      def run
        @thread = ::Thread.current
        fiber = Telemetry.__within(@context) { ::Fiber.current.spin(:job) { within_scope } }
        beside = ::Fiber.current.spin(:interrupt) { @interrupt.await; @scope&.cancel }
        @value = fiber.await
        @returned = true
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @error = e
      ensure
        beside&.stop
      end

      # Interrupts the block and waits until it has ended, whatever comes.
      def interrupt
        CancelScope.shield do
          @interrupted = true
          @interrupt.signal
          until @finished
            Thread.__polyphony_strike(@fiber, @scope) if @scope
            CancelScope.move_on_after(STRIKE, nil) { wait }
          end
        end
      end

      private

      def within_scope
        CancelScope.cancel_after(Float::INFINITY, Cancel) do |scope|
          @fiber = ::Fiber.current
          @scope = scope
          scope.cancel if @interrupted
          @block.call
        ensure
          @scope = nil
        end
      end
    end

    # A job that nobody waits for.
    # @api private
    class Cast < Job
      # @param block [Proc]
      # @param fiber [Fiber] who wants it done
      def initialize(block, fiber)
        super(block)
        @fiber = fiber
      end

      # An error is raised in the fiber, as that of a child would be; when that has ended, in the
      # main fiber of the program. When that one never waits, there is only the standard error.
      def finish
        super
        return unless @error

        fiber = [@fiber, ::Thread.main.main_fiber].find { |f| f && !f.dead? }
        fiber ? fiber.schedule(@error) : $stderr.write(@error.full_message)
      end
    end
  end
end
