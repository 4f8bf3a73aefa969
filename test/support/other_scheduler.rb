# frozen_string_literal: true

# A small scheduler of somebody else's, with the hooks that Ruby demands. It resumes its fibers, and they yield.
class OtherScheduler
  attr_reader :seen             # fibers that it was asked for

  def initialize
    @waiting = {}               # Fiber => [io, events, deadline]
    @unblocked = Thread::Queue.new
    @alarm, @bell = IO.pipe
    @seen = []
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def io_wait(io, events, timeout)
    wait(io, events, timeout)
  end

  def kernel_sleep(duration = nil)
    wait(nil, 0, duration)
    true
  end

  def block(_blocker, timeout = nil)
    wait(nil, 0, timeout)
  end

  def unblock(_blocker, fiber)
    @unblocked << fiber
    @bell.write_nonblock('.')
  end

  def run
    turn until @waiting.empty?
  end

  def close
    run
    [@alarm, @bell].each(&:close)
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def wait(io, events, timeout)
    @seen << Fiber.current
    @waiting[Fiber.current] = [io, events, timeout && now + timeout]
    Fiber.yield
  ensure
    @waiting.delete(Fiber.current)
  end

  def turn
    ready, = IO.select([@alarm, *ios(IO::READABLE)], ios(IO::WRITABLE), [], patience)
    @alarm.read_nonblock(100) if ready&.include?(@alarm)
    (unblocked + able(IO::READABLE) + able(IO::WRITABLE) + late).uniq(&:first).each do |fiber, result|
      fiber.resume(result) if @waiting.key?(fiber)
    end
  end

  def patience
    first = @waiting.values.filter_map(&:last).min
    first && [first - now, 0].max
  end

  def ios(event)
    @waiting.values.filter_map { |io, events,| io if (events & event).positive? }
  end

  def able(event)
    here = @waiting.select { |_, (io, events)| (events & event).positive? && able?(io, event) }
    here.map { |fiber,| [fiber, event] }
  end

  def able?(io, event)
    IO.select(*(event == IO::READABLE ? [[io], nil] : [nil, [io]]), nil, 0)
  end

  def late
    time = now
    @waiting.select { |_, (*, deadline)| deadline && deadline <= time }.map { |fiber,| [fiber, false] }
  end

  def unblocked
    Array.new(@unblocked.size) { [@unblocked.pop, true] }
  end
end
