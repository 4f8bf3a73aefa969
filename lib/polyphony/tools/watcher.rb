# frozen_string_literal: true

require 'polyphony/core'

module Polyphony
  # A thread that looks at the others now and then. One of each class at a time; it goes on in a forked child, and ends with
  # a last look.
  # @api private
  class Watcher
    class << self
      # @return [Watcher, nil] the one that is at work
      attr_reader :current

      # @param limit [Numeric, nil] nil: none from now on
      def start(limit, &block)
        @lock.synchronize do
          @current&.stop
          @current = limit && new(limit, &block)
        end
      end

      # In a forked child there is no thread any more.
      def after_fork
        @current&.restart
      end

      # @return [Array<Class>]
      def kinds
        @kinds ||= []
      end

      private

      def inherited(kind)
        super
        kind.instance_variable_set(:@lock, ::Thread::Mutex.new)
        Watcher.kinds << kind
        at_exit { kind.current&.stop }
      end
    end

    def initialize(limit, &block)
      @limit = limit
      @block = block || method(:print_once)
      @told = {}
      restart
    end

    def restart
      @mutex = ::Thread::Mutex.new
      @wake = ::Thread::ConditionVariable.new
      @stopped = false
      begin_anew
      @thread = ::Thread.new { ::Thread.handle_interrupt(::Object => :immediate) { run } }
      @thread.__polyphony_helper
      @thread.name = thread_name
      ThreadGroup::Default.add(@thread) unless @thread.group.enclosed?
    end

    # Tells what there is to tell, and no more.
    def stop
      return @stopped = true if @thread == ::Thread.current # by the block

      @mutex.synchronize { @stopped = true; @wake.signal }
      # With a limit: a thread that does nothing by itself is not expected to end a wait, and this would pass for a deadlock.
      nil until @thread.join(1)
    end

    private

    def run
      until @stopped
        @mutex.synchronize { @wake.wait(@mutex, @limit / 2.0) unless @stopped }
        look
      end
      last_look
    end

    def begin_anew; end
    def last_look; end

    # What the block raises must not end the watch.
    def tell(one)
      @block.call(one)
    rescue ::StandardError => e
      warn "polyphony: a block of #{word} raised #{e.class}: #{e.message}"
    end

    # Each place is told once.
    def print_once(one)
      return if @told.key?(one.place)

      @told[one.place] = true
      $stderr.write("#{one}\n")
    end

    # A forked child watches on.
    ProcessFork.in_child(daemon: true) { kinds.each(&:after_fork) }
  end

  private_constant :Watcher
end
