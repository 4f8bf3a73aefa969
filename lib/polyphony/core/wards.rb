# frozen_string_literal: true

module Polyphony
  # Fibers that one fiber answers for. It is told of their ends, in the order in which they come;
  # errors of its children among them come here instead of being raised in it. When it leaves, they
  # are ended first, whatever happens to it meanwhile, and no failure goes unseen.
  # @!visibility private
  class Wards
    # They end a fiber, or make it begin again, and tell of no failure.
    STOPS = [MoveOn, Terminate, Restart].freeze

    def self.stop?(exception)
      STOPS.any? { |stop| stop === exception }
    end

    # exit and signals have gone to the main fiber already (fiber_life.c).
    def self.ends_program?(exception)
      exception.is_a?(SystemExit) || exception.is_a?(SignalException)
    end

    # @param reason [String] what the fiber waits for, in reports
    # @yield [fiber] in a fiber that ends: whether its end is to be kept; without a block all are
    def initialize(reason, &keep)
      @watcher = Fiber.current # fiber_life.c asks for it
      @keep = keep
      @running = {}.compare_by_identity
      @ended = []
      @late = nil
      @list = WaitList.new(self, reason)
    end

    def add(fiber)
      @running[fiber] = true
      fiber.__tell_at_end(self)
    end

    def remove(fiber)
      @running.delete(fiber)
      @ended.delete(fiber)
      fiber.unmonitor(self)
    end

    # @return [Array<Fiber>] those that have not ended, in the order in which they came
    def running
      @running.keys
    end

    def empty?
      @running.empty?
    end

    # @return [String] for reports
    def inspect
      "#<fibers: #{running.size} running>"
    end

    # What a fiber that ends calls.
    def <<(report)
      fiber, = report
      @running.delete(fiber)
      @ended << fiber if @keep.nil? || @keep.call(fiber)
      @list.wake
    end

    # @return [Fiber, nil] the next one that has ended, without waiting
    def shift
      @ended.shift
    end

    # @return [Boolean] whether shift would return nil
    def none_ended?
      @ended.empty?
    end

    # Waits until something happens, an end or anything else.
    def park(seconds = nil)
      @list.park(seconds)
    rescue Exception => e # rubocop:disable Lint/RescueException -- raised or scheduled by finish
      raise if @late.nil? || e.is_a?(Deadlock)

      @late << e
    end

    # @return [Boolean] whether it has ended; false after that many seconds
    def ended_within?(fiber, seconds)
      over = seconds && Clock.now + seconds
      until fiber.dead?
        left = over && over - Clock.now
        return false if left && left <= 0

        park(left)
      end
      true
    end

    # Has the block end them all. What comes meanwhile, a second stop say, does not hinder it and is
    # not lost. Then raises the failures that nobody has seen, if there are any; +error+, which is
    # about to be raised, comes first.
    def finish(error)
      @late = []
      yield
      stops, failures = @late.partition { |exception| Wards.stop?(exception) }
      stops.each { |stop| @watcher.schedule(stop) }
      failures = unseen_failures | failures
      error = nil if error && Wards.stop?(error)
      FiberAwait.raise_all([*error] | failures) unless failures.empty?
    end

    private

    def unseen_failures
      failed = @ended.select(&:__failed?)
      failed.map(&:result).reject { |error| Wards.ends_program?(error) }
    end
  end

  private_constant :Wards
end
