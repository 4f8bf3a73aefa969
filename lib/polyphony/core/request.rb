# frozen_string_literal: true

module Polyphony
  # A question that a fiber asks another one. Fiber#ask makes it; it arrives in the mailbox of the
  # asked fiber, and its asker waits until somebody, in whichever fiber or thread, answers it.
  #
  # @example
  #   squares = spin do
  #     receive_loop { |request| request.reply(request.message**2) }
  #   end
  #   squares.ask(4)  #=> 16
  class Request
    # There will be no answer: the asked fiber ended without one, or the question was dropped from its
    # mailbox. If the fiber failed, its error is the cause.
    class Unanswered < ::RuntimeError
      # @return [Request]
      attr_reader :request

      # @param request [Request]
      # @param message [String]
      def initialize(request, message)
        @request = request
        super(message)
      end
    end

    # No answer came in time. Whoever asks sets the limit itself and has to deal with it, so this
    # one is an ordinary error, unlike those that end a fiber from outside.
    class Timeout < Unanswered
    end

    # @return [Object] what is asked
    attr_reader :message
    # @return [Fiber] who asks
    attr_reader :sender

    # @api private
    # @param fiber [Fiber] who is asked
    # @param message [Object]
    def initialize(fiber, message)
      @fiber = fiber
      @message = message
      @sender = Fiber.current
      @since = Clock.now
      @outcomes = [] # the first counts
      @answered = Event.new.__serve(self, 'an answer') # keeps one that comes, from another thread, just before the asker waits
    end

    # Answers. The first answer counts.
    # @param value [Object] what ask returns
    # @return [Boolean] false if nobody waits for it any more
    def reply(value = nil)
      settle(:replied, value)
    end

    # Answers with an error, which is raised in the asking fiber. Arguments as for Kernel#raise.
    # @return [Boolean] false if nobody waits for it any more
    # @raise [TypeError] for what is no exception
    def reject(*args, **options)
      settle(:rejected, FiberControl.exception(*args, **options))
    end

    # @return [Boolean] whether the asker still waits: if not, the work may be left out
    def pending?
      @outcomes.empty?
    end

    # For +in Polyphony::Request(message:)+. There is no +deconstruct+: a pattern for plain messages
    # like +in [:stop]+ must not match a question, which would stay without an answer.
    # @return [Hash{Symbol => Object}]
    def deconstruct_keys(_keys)
      { message: @message, sender: @sender }
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{quote} from #{@sender.inspect}>"
    end

    # @api private
    # For a report of a deadlock: whose answer is waited for, and since when.
    # @return [Array<Array(Fiber, Float)>]
    def holders
      [[@fiber, @since]]
    end

    # @api private
    # The asked fiber has ended: it tells so, as it tells its monitors.
    # @param report [Array(Fiber, Object)] the fiber and its result
    def <<(report)
      settle(:ended, report.last)
    end

    # @!visibility private
    # The mailbox, in C, has dropped it.
    def __dropped
      @fiber.mailbox.closed? ? settle(:ended, @fiber.result) : settle(:dropped, nil)
    end

    # @!visibility private
    # Runs in the fiber that asks.
    def __ask(timeout)
      @fiber.__add_monitor(self)
      settle(:ended, @fiber.result) if @fiber.dead?
      CancelScope.move_on_after(timeout, nil) { deliver }
      give_up(:late) if pending?
      result(timeout)
    ensure
      @fiber.__remove_monitor(self)
      give_up(:cancelled) if pending?
    end

    private

    # Room in the mailbox may have to be waited for, too.
    def deliver
      @fiber << self if pending?
      @answered.await while pending?
    end

    # From several threads perhaps. Adding to an array is one step, looking and setting would be two.
    def settle(how, value)
      outcome = [how, value]
      @outcomes << outcome
      return false unless @outcomes.first.equal?(outcome)

      @answered.signal
      true
    end

    # If it has not been received yet, it need not be.
    def give_up(how)
      @fiber.mailbox.delete(self) if settle(how, nil)
    end

    def result(timeout)
      how, value = @outcomes.first
      case how
      when :replied then value
      when :rejected then raise value
      when :late then raise Timeout.new(self, "#{@fiber.inspect} did not answer #{quote} within #{timeout} seconds")
      when :dropped then raise Unanswered.new(self, "#{quote} was dropped from the mailbox of #{@fiber.inspect}")
      else
        cause = value if value.is_a?(Exception)
        raise Unanswered.new(self, "#{@fiber.inspect} ended without answering #{quote}"), cause: cause
      end
    end

    def quote
      text = @message.inspect
      text.size > 200 ? "#{text[0, 197]}..." : text
    end
  end
end
