# frozen_string_literal: true

module Polyphony
  # A thread's fibers end with it, and so does its backend. Other fibers go on while one waits for a
  # thread. What stock Ruby documents for Thread holds as before.
  module ThreadExtensions
    # A thread that is not ours does not tell when it ends: we look again after a pause, which is
    # doubled each time up to the longest.
    SHORTEST = 0.0005
    LONGEST = 0.02
    private_constant :SHORTEST, :LONGEST

    # @yield in the thread; when it has ended, the fibers it spun are shut down
    def initialize(*args, **options, &block)
      return super unless block && Thread.__polyphony_main_ractor?

      wrapped, self.__polyphony_life = Thread.__polyphony_wrap(block)
      ThreadExtensions.inheriting { super(*args, **options, &wrapped) }
    end

    # Waits until the thread has ended, while other fibers of the caller's thread run.
    # @param limit [Numeric, nil] seconds
    # @return [self, nil] nil after the limit
    # @raise [Exception] what the thread ended with
    # @raise [ThreadError] for the current and the main thread
    def join(limit = nil)
      limit = ThreadExtensions.to_limit(limit)
      return super unless ThreadExtensions.may_wait_for?(self, limit)

      ThreadExtensions.wait_for(self, limit) ? super() : nil
    end

    # As join, but returns what the thread's block returned.
    # @return [Object]
    def value
      ThreadExtensions.wait_for(self, nil) if ThreadExtensions.may_wait_for?(self, nil)
      super
    end

    # @param limit [Numeric, nil] seconds
    # @return [Object, nil] value; nil after the limit
    # @raise [Exception] what the thread ended with
    def await(limit = nil)
      value if join(limit)
    end

    # @return [Boolean] whether the thread has ended
    def done?
      !alive?
    end

    # @return [Object, Exception, nil] of a thread that has ended: value or exception; nil before.
    #   Neither waits nor raises.
    def result
      value if done?
    rescue Exception => e # rubocop:disable Lint/RescueException -- whatever the thread ended with
      e
    end

    # @!method raise(*args)
    #   As stock. It goes to the main fiber of the thread: at once if that one runs, or where it waits;
    #   if another fiber is running just then, when that one comes to a switchpoint.
    #   @return [nil]

    # @!method kill
    #   As stock; it waits for spun fibers of the thread that mask it (Thread.handle_interrupt).
    #   @return [self]
    # @!method terminate
    #   @see #kill
    # @!method exit
    #   @see #kill

    # Asks the thread to end, by Polyphony::Terminate at the point where its main fiber waits; a thread
    # that has not waited yet is interrupted at once. Its value is nil. (Thread#kill does not ask, and
    # ends one that computes, too.) A thread that is not ours is killed.
    # @return [self]
    def kill_safe
      if !__polyphony_block then kill
      elsif __polyphony_never_begin then self
      elsif (main = main_fiber) then main.terminate
      else raise(Terminate.new)
      end
      self
    end

    # As stock; it also ends a Thread.stop of its fibers, or else a sleep of its main fiber.
    # @return [self]
    def wakeup
      super.tap { ThreadExtensions.wake(self) }
    end

    # @see #wakeup
    def run
      ThreadExtensions.wake(self)
      super
    end

    # With one argument: a message, as <<. With more, or a block: calls a method, as stock
    # (+__send__+ and +public_send+ always do).
    # @return [self, Object]
    def send(message, *args, **options, &block)
      return super if block || !args.empty? || !options.empty?

      self << message
    end

    # @return [String] where its block is written; (root) for the main thread, (unknown) for others
    #   that are not ours, and for blocks that are not written in Ruby
    def location
      return '(root)' if self == Thread.main

      __polyphony_block&.source_location&.join(':') || '(unknown)'
    end

    # @return [String] as stock: name, where its block is written, state
    def inspect
      place = __polyphony_block&.source_location or return super
      text = super
      text.insert(text.rindex(' '), " #{place.join(':')}")
    end
    alias to_s inspect

    # Thread.start and Thread.fork do not call initialize.
    module Start
      # @see ThreadExtensions#initialize
      def start(*args, **options, &block)
        return super unless block && Thread.__polyphony_main_ractor?

        wrapped, life = Thread.__polyphony_wrap(block)
        ThreadExtensions.inheriting { super(*args, **options, &wrapped) }.tap { |thread| thread.__polyphony_life = life }
      end

      # @see ThreadExtensions#initialize
      def fork(*args, **options, &block)
        return super unless block

        start(*args, **options, &block)
      end
    end

    # Thread.pass and Thread.stop for the fibers of a thread.
    module Turns
      # Lets other threads run, and other fibers of this one.
      # @return [nil]
      def pass
        super
        snooze if __polyphony_may_wait?
        nil
      end

      # Waits for Thread#wakeup or #run, while other fibers of the thread run.
      # @return [nil]
      # @raise [ThreadError] where there is nobody else, neither thread nor fiber
      def stop
        return super if !__polyphony_may_wait? || ThreadExtensions.alone?(Fiber.current)

        ThreadExtensions.while_stopped(Thread.current, Fiber.current) { Polyphony.backend_wait_event(true) }
        nil
      end
    end

    class << self
      # @!visibility private
      # A new thread has the masks (Thread.handle_interrupt) of the fiber that makes it, from its first moment.
      def inheriting(&make)
        masks = Thread.__polyphony_legacy or return yield

        masks.reverse.reduce(make) { |inner, mask| proc { Thread.__polyphony_stock_mask(mask, &inner) } }.call
      end

      # @!visibility private
      # Ruby's own join is right where it need not wait, where it refuses, and where there are no
      # other fibers that could run meanwhile.
      def may_wait_for?(thread, limit)
        return false if thread == Thread.current || thread == Thread.main || !thread.alive?

        Thread.__polyphony_may_wait? && (limit.nil? || limit.is_a?(Numeric))
      end

      # @!visibility private
      # Stock Ruby takes whatever has a to_f, but no String.
      def to_limit(limit)
        return limit if limit.nil? || limit.is_a?(Numeric) || limit.is_a?(String) || !limit.respond_to?(:to_f)

        limit.to_f
      end

      # @!visibility private
      # @return [Boolean] whether it has ended, or is about to
      def wait_for(thread, limit)
        deadline = Clock.now + limit if limit
        pause = SHORTEST
        while thread.alive? && !thread.__polyphony_over?
          left = deadline && deadline - Clock.now
          return false if left && !left.positive?

          wait_a_while(thread, left, pause)
          pause = [2 * pause, LONGEST].min
        end
        true
      end

      # @!visibility private
      def wake(thread)
        stopped = thread.instance_variable_get(:@__polyphony_stopped)
        return stopped.dup.each(&:schedule) if stopped && !stopped.empty?

        main = thread.main_fiber
        main.schedule if main && main.state == :waiting
      end

      # @!visibility private
      # Whether there is nobody who could ever wake the fiber.
      def alone?(fiber)
        fiber.main? && fiber.children.empty? && Thread.list.one?
      end

      # @!visibility private
      def while_stopped(thread, fiber)
        stopped = thread.instance_variable_get(:@__polyphony_stopped) ||
                  thread.instance_variable_set(:@__polyphony_stopped, [])
        stopped << fiber
        yield
      ensure
        stopped.delete(fiber)
      end

      private

      # A thread that is killed before it has begun does not tell either.
      def wait_a_while(thread, left, pause)
        pause = left if left && left < pause
        if !thread.__polyphony_block then Polyphony.backend_sleep(pause)
        elsif thread.__polyphony_begun? then thread.__polyphony_await_end(left)
        else thread.__polyphony_await_end(pause)
        end
      end
    end
  end

  ::Thread.prepend ThreadExtensions
  ::Thread.singleton_class.prepend ThreadExtensions::Start
  ::Thread.singleton_class.prepend ThreadExtensions::Turns
end
