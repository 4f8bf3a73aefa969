# frozen_string_literal: true

module Polyphony
  module HTTP
    class Cluster
      # A worker as its master sees it.
      # @!visibility private
      class Worker
        # @return [Integer] 1, 2, 3 …; its successor has the same
        attr_reader :number
        # @return [Integer]
        attr_reader :pid, :generation, :place
        # @return [UNIXSocket] orders go there, and from there comes that it is ready
        attr_reader :channel
        # @return [Float] on the monotonic clock
        attr_reader :started
        # @return [Symbol] :booting, :serving, :stopping or :gone
        attr_reader :state
        # @return [::Process::Status] how it ended
        attr_reader :status

        def initialize(number:, pid:, generation:, place:, channel:, state: :booting)
          @number = number
          @pid = pid
          @generation = generation
          @place = place
          @channel = channel
          @state = state
          @started = Clock.now
          @booted = Event.new
          @ended = Event.new
        end

        # Follows it to its end.
        # @yield [Symbol] :ready, then :gone
        def follow
          while (line = @channel.gets)
            next unless line == "ready\n" && @state == :booting

            @state = :serving
            @booted.signal(true)
            yield :ready
          end
        rescue ::SystemCallError
          nil # it was killed
        ensure
          bury
          yield :gone
        end

        # Waits until it is ready, or gone.
        # @return [Boolean] whether it is ready
        def await_boot
          @booted.await
        end

        # Waits until it is gone.
        def await_end
          @ended.await unless @state == :gone
        end

        # @param order [String] stop, last, now, reopen or reload
        def tell(order)
          @channel.write_nonblock("#{order}\n")
        rescue ::SystemCallError, ::IOError
          nil # it is gone, or reads nothing: its time is limited
        end

        # @param within [Numeric] seconds until it is killed
        # @param last [Boolean] whether there will be no others either
        def stop(within, last: false)
          return if stopping?

          @state = :stopping
          @told = true
          @deadline = Clock.now + within
          tell('last') if last
          tell('stop')
        end

        # There is no time for requests in progress.
        # @param grace [Numeric] seconds until it is killed
        def hurry(grace)
          @deadline = Clock.now + grace if stopping?
          tell('now')
        end

        # It ends by itself when nobody is there.
        def abandon
          @channel.shutdown
        rescue ::SystemCallError, ::IOError
          nil
        end

        # @return [Boolean] whether it is on its way out
        def stopping?
          @state == :stopping || @state == :gone
        end

        # @return [Boolean] whether it was told to stop
        def told?
          @told || false
        end

        # @return [Boolean] whether it was asked to end since it did not tick
        def asked?
          @asked || false
        end

        # @return [Boolean] whether it has been on its way out for too long
        def overdue?
          !@deadline.nil? && Clock.now > @deadline
        end

        # It does not tick: asked first, then not asked.
        # @param grace [Numeric] seconds between the two
        def end_it(grace)
          @state = :stopping unless @state == :gone
          return kill(:KILL) if @asked

          @asked = true
          @deadline = Clock.now + grace
          kill(:TERM)
        end

        def kill(signal)
          ::Process.kill(signal, @pid) unless @state == :gone
        rescue ::Errno::ESRCH
          nil
        end

        # @return [Float] seconds
        def age
          Clock.now - @started
        end

        # @return [String] how it ended, for people
        def fate
          return 'is gone' unless @status
          return "was killed by SIG#{Signal.signame(@status.termsig)}" if @status.signaled?

          "ended with status #{@status.exitstatus}"
        end

        # @return [Hash] for the program after us
        def to_hand_over
          { number: @number, pid: @pid, generation: @generation, place: @place, channel: @channel.fileno,
            stopping: stopping? }
        end

        private

        def bury
          @status = ::Process.wait2(@pid).last
        rescue ::Errno::ECHILD
          nil
        ensure
          @state = :gone
          @channel.close
          @booted.signal(false)
          @ended.signal
        end
      end
      private_constant :Worker
    end
  end
end
