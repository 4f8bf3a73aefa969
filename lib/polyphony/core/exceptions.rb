# frozen_string_literal: true

module Polyphony
  # What the library raises inside fibers to control them. Not a StandardError, so that a plain
  # +rescue+ does not swallow it.
  class BaseException < ::Exception
    # @return [Object] what the fiber's result becomes
    attr_reader :value

    # @param value [Object] the result of a fiber that ends by it
    def initialize(value = nil)
      super(self.class.name)
      @value = value
    end
  end

  # Ends a fiber, or a block with a time limit; its value becomes the result.
  class MoveOn < BaseException
  end

  # What cancel and cancel_after raise unless told otherwise.
  class Cancel < BaseException
    # @return [String] for a time limit: how long it was, where it was set, and what was being
    #   waited for
    def to_s
      @explanation || super
    end

    # @!visibility private
    # Called when the time is over.
    def __explain(seconds, frames, reason, subject)
      line = Backtrace.lines(frames).first
      place = line && ", set at #{line[/\A.*?:\d+/]}"
      @explanation = "time limit of #{seconds} s is over#{place}#{waiting(reason, subject)}"
    end

    private

    def waiting(reason, subject)
      reason && ", while waiting for #{WaitReport.describe(reason, subject)}"
    end
  end

  # Raised when the time set with +deadline+ has come.
  class DeadlineExceeded < Cancel
    # @return [Deadline]
    attr_reader :deadline

    # @param deadline [Deadline]
    def initialize(deadline)
      super(nil)
      @deadline = deadline
    end

    # @!visibility private
    def __explain(_seconds, _frames, reason, subject)
      @explanation = "#{deadline.__description}#{waiting(reason, subject)}"
    end
  end

  # Ends a fiber whose parent ends.
  class Terminate < BaseException
  end

  # Makes a fiber run its block again.
  class Restart < BaseException
  end

  # For time limits of your own.
  class TimeoutException < ::Exception
  end

  # Raised in the main fiber when no fiber can ever run again. The message says who waits for what.
  class Deadlock < ::Exception
    # @return [Array<Hash>] one for each fiber that was left: +:id+, +:fiber+, +:tag+, +:reason+, +:waits_for+, +:seconds+, +:held_by+, +:spun_at+
    attr_reader :fibers
    # @return [Array<Array<Integer>>] ids of those that wait for each other
    attr_reader :cycles

    # @param fibers [Array<Fiber>] all that are left
    def initialize(fibers = [])
      super(['no fiber can ever run again', *fibers.flat_map { |f| WaitReport.lines(f) }].join("\n  "))
      @fibers = fibers.map { |fiber| WaitReport.data(fiber) }
      @cycles = WaitCycles.find(fibers).map { |cycle| cycle.map { |fiber| fiber.__timeline.first } }
    end

    # @return [Hash] the report as data
    def to_h
      { error: self.class.name, message: message.lines.first.to_s.chomp, fibers: fibers, cycles: cycles }
    end

    # @return [String] the same as JSON
    def to_json(*args)
      require 'json'
      to_h.to_json(*args)
    end
  end

  # Several fibers failed and each failure counts.
  class MultipleErrors < StandardError
    # @return [Array<Exception>]
    attr_reader :errors

    # @param errors [Array<Exception>]
    def initialize(errors)
      @errors = errors
      super("#{errors.size} fibers failed\n#{errors.map { |error| line(error) }.join("\n")}")
    end

    private

    def line(error)
      place = error.backtrace&.first
      "  #{error.class}: #{error.message}#{place && " (#{place})"}"
    end
  end

  # Runs a block on a fiber, at whatever it is waiting for. See Fiber#interject.
  class Interjection < BaseException
    # @param block [Proc] what to run
    def initialize(block)
      super(nil)
      @block = block
    end

    # Calls the block instead of raising.
    def invoke
      @block.call
    end
  end

  # What every exception gains.
  module ExceptionExtensions
    # @!method source_fiber
    #   @return [Fiber, nil] the fiber that ended with this exception
    # @!method source_fiber=(fiber)
    #   @see #source_fiber

    # @!method raising_fiber
    #   @return [Fiber, nil] the fiber that raised it; noted with +require 'polyphony'+ only
    # @!method raising_fiber=(fiber)
    #   @see #raising_fiber

    # @!visibility private
    # Lines that were set by hand, often made of ours, are left alone.
    # @param raw [Array<String>] the backtrace as Ruby has it
    def __tell_story(raw)
      locations = backtrace_locations
      return raw unless locations&.size == raw.size && locations.first.to_s == raw.first

      lines = Backtrace.sanitize(raw)
      lines = raw if lines.size == raw.size
      origin = raising_fiber&.caller
      origin&.any? ? lines + origin : lines
    end

    # How a waiting fiber receives this exception.
    def invoke
      Kernel.raise(self)
    end
  end

  # @!method self.instantiate(error = nil, message = nil)
  #   The exception meant by what raise takes, or cancel_after: nothing, a message, a class, a class and a
  #   message, an exception. In C.
  #   @return [Exception]

  ::Exception.include ExceptionExtensions
end
