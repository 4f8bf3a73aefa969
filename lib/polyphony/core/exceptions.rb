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

  # Runs a block on a fiber, at whatever it is waiting for. See Fiber#interject.
  class Interjection
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
    # @return [Fiber, nil] the fiber that ended with this exception
    attr_accessor :source_fiber

    # How a waiting fiber receives this exception.
    def invoke
      Kernel.raise(self)
    end
  end

  ::Exception.include ExceptionExtensions
end
