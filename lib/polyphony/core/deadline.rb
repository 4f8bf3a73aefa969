# frozen_string_literal: true

module Polyphony
  # A time by which a piece of work, with all the fibers it spins, has to be done. See the word
  # +deadline+ and Polyphony.deadline.
  class Deadline
    # @return [Float] on the clock Process::CLOCK_MONOTONIC
    attr_reader :at

    # @param limit [Numeric, Time] seconds from now, or a time
    def initialize(limit)
      @seconds = Deadline.__seconds(limit)
      raise ArgumentError, 'a deadline cannot be NaN' if @seconds.nan?

      @at = Clock.now + @seconds
      @owner = Fiber.current
      @place = Backtrace.sanitize(Kernel.caller(1, 8)).first
    end

    # @return [Float] seconds; 0 when it is over
    def remaining
      left = @at - Clock.now
      left.positive? ? left : 0.0
    end

    # @return [Boolean]
    def expired?
      remaining.zero?
    end

    # @return [String]
    def inspect
      "#<#{self.class} in #{remaining.round(3)} s>"
    end

    # Runs the block for the fiber that set the deadline; what is spun in it inherits it. One that is
    # around it and comes sooner stays.
    # @!visibility private
    def __run(&block)
      outer = @owner.__deadline
      return yield if outer && outer.at <= @at

      @owner.__deadline = self
      __impose(&block)
    ensure
      @owner.__deadline = outer
    end

    # Runs the block for the current fiber.
    # @!visibility private
    def __impose
      CancelScope.cancel_after(remaining, DeadlineExceeded.new(self)) do |scope|
        @scope = scope if Fiber.current.equal?(@owner)
        yield
      end
    end

    # Whether whoever set it is told that it is over: then a child need not tell, too.
    # @!visibility private
    def __heard?(error)
      error.deadline.equal?(self) && @scope.expired?
    end

    # @return [String] for messages
    # @!visibility private
    def __description
      "deadline of #{@seconds.round(3)} s is over#{@place && ", set at #{@place[/\A.*?:\d+/]}"}"
    end

    class << self
      # @!visibility private
      def __seconds(limit)
        case limit
        when Time then limit - Time.now
        when Numeric then limit.to_f
        else raise ArgumentError, "a deadline is a number of seconds or a Time, got #{limit.inspect}"
        end
      end
    end
  end

  class << self
    # @return [Deadline, nil] the one that holds for the current fiber
    def deadline
      Fiber.current.__deadline
    end
  end
end
