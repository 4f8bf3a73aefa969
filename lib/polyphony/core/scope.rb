# frozen_string_literal: true

module Polyphony
  # Fibers that belong together: all have ended when Polyphony.scope returns. If one fails, the
  # others are ended, and so is the block.
  #
  # @example
  #   Polyphony.scope do |scope|
  #     scope.spin { fetch(:a) }
  #     scope.spin { fetch(:b) }
  #   end
  class Scope
    # @!visibility private
    def initialize
      @fiber = Fiber.current
      @wards = Wards.new('the fibers of a scope to end') { |fiber| failed(fiber) }
      @stopped = @closed = false
      @value = @error = nil
    end

    # Starts a fiber of this scope, from any fiber of its thread. In a scope that is being ended it
    # never runs.
    # @param tag [Object]
    # @return [Fiber] a child of the fiber that opened the scope
    # @raise [FiberError] if the scope has ended
    def spin(tag = nil, &block)
      raise FiberError, 'the scope has ended' if @closed

      fiber = @fiber.spin(tag, &block)
      @wards.add(fiber)
      fiber.__end unless @limit.active?
      fiber
    end

    # Ends the block and all fibers; the scope returns the value.
    # @param value [Object]
    # @return [self]
    def stop(value = nil)
      end_with(value, nil)
    end

    # Ends the block and all fibers; the scope raises Cancel, or the given exception.
    # @param exception [Exception, Class]
    # @return [self]
    # @raise [TypeError] for anything else
    def cancel(exception = Cancel)
      end_with(nil, FiberControl.exception(exception))
    end

    # @!visibility private
    def __run(&block)
      value = CancelScope.move_on_after(nil, nil) { |limit| complete(limit, &block) }
      raise @error if @error

      @stopped ? @value : value
    rescue Exception => error # rubocop:disable Lint/RescueException -- raised again
      raise
    ensure
      finish(error)
    end

    private

    def complete(limit)
      @limit = limit
      value = yield self
      @wards.park until @wards.empty? || !limit.active?
      value
    end

    # @return [Boolean] whether it failed, which ends the block and the others
    def failed(fiber)
      return false if !fiber.__failed? || Wards.ends_program?(fiber.result)

      @limit.cancel
      true
    end

    # The first one counts.
    def end_with(value, error)
      return self if @closed || !@limit.active?

      @stopped = true
      @value = value
      @error = error
      @limit.cancel
      self
    end

    def finish(error)
      @wards.finish(error) do
        @wards.running.reverse_each(&:__end)
        @wards.park until @wards.empty?
      end
    ensure
      @closed = true
    end
  end

  class << self
    # Opens a scope: returns when its fibers have ended. If one fails, or the block does, the others are
    # ended, youngest first, and the error is raised: MultipleErrors if there are several. +break+ and
    # +return+ in the block end them as well.
    # @yield [Scope]
    # @return [Object] what the block returns
    # @example
    #   Polyphony.scope do |scope|
    #     a = scope.spin { 1 }
    #     b = scope.spin { 2 }
    #     a.await + b.await
    #   end  #=> 3
    def scope(&block)
      raise ArgumentError, 'scope needs a block to run' unless block

      Scope.new.__run(&block)
    end
  end
end
