# frozen_string_literal: true

module Polyphony
  # Other fibers run while one waits for a child process. Statuses, errors and +$?+ are as in stock Ruby.
  # Mostly in C.
  module ProcessExtensions
    # @!method wait(pid = -1, flags = 0)
    #   As stock. A child that somebody waits for by its pid is not given to those who wait for any.
    #   @return [Integer, nil] the pid; nil with Process::WNOHANG, if no child has news
    #   @raise [Errno::ECHILD]

    # @!method waitpid(pid = -1, flags = 0)
    #   @see #wait

    # @!method wait2(pid = -1, flags = 0)
    #   @return [Array(Integer, Process::Status), nil]
    #   @see #wait

    # @!method waitpid2(pid = -1, flags = 0)
    #   @see #wait2

    # @!method waitall
    #   As stock. If it is cancelled, the statuses it had got go to those who wait next.
    #   @return [Array<Array(Integer, Process::Status)>]

    # @!method last_status
    #   +$?+, which belongs to the fiber: what others wait for in between does not change it. A new
    #   fiber begins with that of the one that spun it.
    #   @return [Process::Status, nil]

    # For Process::Status itself.
    module Status
      # @!method wait(pid = -1, flags = 0)
      #   As stock: does not set +$?+.
      #   @return [Process::Status, nil] its pid is -1 if there is no such child

      # @!method from_status_array(pair)
      #   Makes a status of what Backend#waitpid returns. +$?+ stays what it is.
      #   @param pair [Array(Integer, Integer)] pid and raw status
      #   @return [Process::Status]
      #   @raise [ArgumentError]

      ::Process::Status.singleton_class.prepend self
    end

    # The thread that Process.detach returns. It does not tell when it ends, but its child does.
    module Waiter
      # @see ThreadExtensions#join
      def join(limit = nil)
        return super unless ThreadExtensions.may_wait_for?(self, limit)

        deadline = Clock.now + limit if limit
        await_child(deadline)
        super(deadline && [deadline - Clock.now, 0].max)
      end

      # @see ThreadExtensions#value
      def value
        await_child(nil) if ThreadExtensions.may_wait_for?(self, nil)
        super
      end

      private

      # Seconds. It may be killed, and then it does not wait for the child any more.
      LOOK_AGAIN = 0.02
      private_constant :LOOK_AGAIN

      def await_child(deadline)
        ended = false
        until ended || !alive? || (deadline && Clock.now >= deadline)
          pause = deadline ? [deadline - Clock.now, LOOK_AGAIN].min : LOOK_AGAIN
          ended = CancelScope.move_on_after(pause, false) { Polyphony.__process_await__(pid); true }
        end
      end
    end

    ::Process.singleton_class.prepend self
    ::Process::Waiter.prepend Waiter
    Polyphony.__take_over_last_status__
  end
end
