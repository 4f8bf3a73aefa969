# frozen_string_literal: true

module Polyphony
  # Who is told when a fiber ends. An error of a child that its parent monitors is reported to the
  # parent and not raised in it.
  module FiberMonitoring
    # Has another fiber told, in its monitor_mailbox, when this one ends; at once if it has ended.
    # @param fiber [Fiber] the one that is told
    # @return [self]
    def monitor(fiber)
      unless fiber.is_a?(Fiber)
        Kernel.raise TypeError, "expected the fiber that is to be told, got #{fiber.inspect}"
      end
      __tell_at_end(fiber)
    end

    # Takes that back.
    # @param fiber [Fiber]
    # @return [self]
    def unmonitor(fiber)
      __remove_monitor(fiber)
    end

    # @return [Array<Fiber>] who is told
    def monitors
      __monitors ? __monitors.grep(Fiber) : []
    end

    # @!visibility private
    # @param monitor [Fiber, #<<]
    def __tell_at_end(monitor)
      if dead?
        (monitor.is_a?(Fiber) ? monitor.monitor_mailbox : monitor) << [self, result]
      elsif !__monitors&.any? { |other| other.equal?(monitor) }
        __add_monitor(monitor)
      end
      self
    end
  end

  ::Fiber.include FiberMonitoring

  # The ends of several fibers, in the order in which they come, for one fiber that waits for them.
  # Errors of its own children come here instead of being raised in it; those it has not looked at
  # when it stops watching are raised in it after all, unless it is about to raise one of them.
  # @!visibility private
  class Watch < Queue
    # @yield [watch]
    def self.on(fibers)
      watch = new
      fibers.each { |fiber| watch.add(fiber) }
      yield watch
    rescue Exception => e # rubocop:disable Lint/RescueException -- one of theirs speaks for the others
      watch.shift_all if watch.told_of?(e)
      raise
    ensure
      watch.leave
    end

    def initialize
      super()
      @watcher = Fiber.current
      @watched = {}.compare_by_identity
      __serve(nil, 'one of several fibers to end')
    end

    def add(fiber)
      @watched[fiber] = true
      fiber.__tell_at_end(self)
    end

    # @return [Fiber] the next one that has ended
    def next_ended
      @last, = shift
      @watched.delete(@last)
      @last
    end

    # @return [Boolean] whether the error is that of the last one seen to end
    def told_of?(error)
      @last&.__failed? && @last.result.equal?(error)
    end

    # @return [Integer] how many have not been seen to end
    def pending
      @watched.size
    end

    # @return [String] for reports of who waits for what: which fibers, but not thousands of them
    def inspect
      titles = @watched.keys.first(5).map { |fiber| WaitReport.title(fiber) }
      titles << "#{pending - 5} more" if pending > 5
      titles.join(', ')
    end

    def leave
      @watched.each_key { |fiber| fiber.unmonitor(self) }
      shift_all.each { |fiber, result| @watcher.schedule(result) if owed?(fiber) }
    end

    private

    def owed?(fiber)
      fiber.__failed? && fiber.__former_parent.equal?(@watcher)
    end
  end

  private_constant :Watch
end
