# frozen_string_literal: true

module Polyphony
  module TimeoutExtensions
    # Ends blocks that never come to a switchpoint: computations, and calls that stop the whole
    # thread. A fiber that waits is reached by the timer of its scope and is left alone here; so is
    # one whose thread is busy with another fiber.
    #
    # A thread sleeps until the first limit is over by a tick or two. It ends when there are none. What
    # computes does so in real time, so that is meant here, also where a test has stopped the clock.
    # Limits are kept by tick, so that neither adding nor removing one looks at the others.
    # @api private
    class Watch
      # Seconds. Who comes to a switchpoint in that time gets its exception there.
      TICK = 0.02
      # Seconds. More than a wait in Ruby may take is not asked for at once.
      LONGEST_WAIT = 3600

      def initialize
        @mutex = ::Thread::Mutex.new
        @sooner = ::Thread::ConditionVariable.new
        @limits = {} # number of a tick => { scope => fiber }
        @next = nil # the tick the thread waits for
      end

      # @param scope [CancelScope] of the current fiber
      # @param seconds [Numeric] until it expires
      # @yield what is watched
      def watch(scope, seconds)
        return yield if seconds == Float::INFINITY

        tick = ((Clock.real + seconds.to_f) / TICK).ceil + 1
        add(tick, scope)
        begin
          yield
        ensure
          remove(tick, scope)
        end
      end

      private

      def add(tick, scope)
        @mutex.synchronize do
          (@limits[tick] ||= {}.compare_by_identity)[scope] = Fiber.current
          if !@thread&.alive? then @thread = start
          elsif @next && tick < @next then @sooner.signal
          end
        end
      end

      # Takes turns with strike: an exception on its way arrives here at the latest.
      def remove(tick, scope)
        @mutex.synchronize do
          limits = @limits[tick] or next
          limits.delete(scope)
          @limits.delete(tick) if limits.empty?
        end
      end

      def start
        thread = Thread.new { ::Thread.handle_interrupt(::Object => :immediate) { run } } # whatever its maker masks
        thread.__polyphony_helper
        thread.name = 'timeout'
        ThreadGroup::Default.add(thread) unless thread.group.enclosed? # it serves all of them
        thread
      end

      def run
        @mutex.synchronize { strike_or_wait until @limits.empty? }
      end

      def strike_or_wait
        @next = @limits.keys.min
        left = @next * TICK - Clock.real
        if left.positive?
          @sooner.wait(@mutex, [left, LONGEST_WAIT].min)
        else
          @limits.delete(@next).each { |scope, fiber| Thread.__polyphony_strike(fiber, scope) }
        end
        @next = nil
      end
    end
  end
end
