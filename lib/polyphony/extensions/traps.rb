# frozen_string_literal: true

module Polyphony
  # Signal handlers that run in fibers of their own, before all others. Ruby calls a handler in the middle of
  # what the main thread does, where it can neither wait nor lock anything: there, the signal is noted only.
  # @!visibility private
  module Traps
    # Seconds. Whoever computes for longer while a handler has to run gives way.
    PATIENCE = 0.2
    # How often in a row: a handler that prints something and exits needs more than one turn.
    TURNS = 10
    STOCK = ::Signal.method(:trap)
    STOCK_SLEEP = KernelExtensions::STOCK_SLEEP
    DEFAULTS = %w[DEFAULT SIG_DFL].freeze

    # What Ruby gets to call. It is never shown: +own+ is what the program has set.
    class Handler < ::Proc
      attr_accessor :own
    end

    # A call to be made, and then the fiber that makes it.
    Call = Struct.new(:handler, :signal, :fiber)

    @handlers = {} # number of a signal => Handler
    @arrived = [] # calls whose fibers are not made yet
    @lines = {} # number of a signal => calls, the first of which is being made
    @nudges = 0

    class << self
      # As Ruby's own. Whatever can be called runs in a fiber.
      def set(*args, &block)
        handler = args.size == 1 ? block : args[1]
        return set_stock(*args, &block) unless args.size.between?(1, 2) && callable?(handler)

        prepare
        shown(install(args.first, handler(handler) { |number| arrive(handler, number) }))
      end

      # For Signal.trap: what can be called is Ruby's to call.
      def set_stock(*args, &block)
        default = Signals.default(number(args.first)) if args.size == 2 && default?(args[1])
        shown(default ? install(args.first, default) : install(*args, &block))
      end

      # @return [Object] what was there, a Handler perhaps
      def install(*args, &block)
        before = STOCK.call(*args, &block)
        @handlers[number(args[0])] = args[1].is_a?(Handler) ? args[1] : nil
        before
      end

      # If what is there now is that.
      def replace(signal, present, command)
        before = install(signal, command)
        install(signal, before) unless shown(before) == present
      end

      # @yield [Integer] in the middle of anything
      # @return [Handler]
      def handler(own)
        Handler.new { |number| nudged? ? give_way : yield(number) }.tap { |handler| handler.own = own }
      end

      # Lets handlers run that a signal has called, as Ruby does before it goes on.
      def give_way
        TURNS.times do
          break unless busy? && Thread.__polyphony_may_wait?

          snooze
        end
      end

      # @return [Boolean] whether signals have come whose handlers have not begun
      def arrived?
        !@arrived.empty? && Thread.current == Thread.main
      end

      # @return [Boolean] whether a handler has to begin or to go on, or what it raised has to come
      def busy?
        !@arrived.empty? || @lines.values.any? { |line| !line.first.fiber.dead? } || raised?
      end

      # Waits for handlers to end: a program does not end in the middle of one.
      def finish
        snooze while arrived? && ready?
        while (line = @lines.values.find { |one| !one.first.fiber.dead? })
          line.first.fiber.await
        end
      end

      # In a forked child, whose only fiber may be the one of a handler.
      def after_fork
        return unless @dispatcher

        @arrived = []
        @lines = {}
        @nudges = 0
        @watch = @dispatcher = @raised = nil
        prepare
      end

      private

      def shown(handler)
        handler.is_a?(Handler) ? handler.own : handler
      end

      def default?(command)
        (command.is_a?(String) || command.is_a?(Symbol)) && DEFAULTS.include?(command.to_s)
      end

      def callable?(handler)
        !handler.nil? && !handler.is_a?(Symbol) && !handler.respond_to?(:to_str)
      end

      # @return [Integer, nil] nil if there is none of that name: Ruby will say so
      def number(signal)
        return signal if signal.is_a?(Integer)

        signal.respond_to?(:to_s) ? ::Signal.list[signal.to_s.delete_prefix('SIG')] : nil
      end

      # --- in the middle of anything -----------------------------------------------------------

      # Without a fiber to run it in, a handler is called as stock.
      def arrive(handler, signal)
        return handler.call(signal) if !ready? || Scheduler.__foreign?

        call = Call.new(handler, signal)
        @arrived << call
        @dispatcher.schedule_with_priority
        return wait_for(call) if signal.zero?

        insist if Thread.__polyphony_may_wait? # else the thread is about to switch
      end

      # The program ends; nothing is left to be interrupted.
      def wait_for(call)
        snooze until call.fiber
        call.fiber.await
      end

      def ready?
        @dispatcher && !@dispatcher.dead?
      end

      def nudged?
        return false if @nudges.zero?

        @nudges -= 1
        true
      end

      # --- in fibers ---------------------------------------------------------------------------

      # A fiber that is made in a handler of Ruby's is in it for ever, to Ruby: it is made before.
      def prepare
        return if ready?

        if Thread.current != Thread.main then Thread.main.main_fiber&.interject { prepare }
        elsif !in_handler? then @dispatcher = Fiber.__reserve(:oob) { dispatch }
        end
      end

      # Ruby's own: no mutex can be locked there. Up to 3.1 at least, Ruby crashes when a locked one is collected
      # together with the fiber that has it.
      def in_handler?
        ::Thread::Mutex.new.tap(&:lock).unlock
        false
      rescue ThreadError
        true
      end

      # Comes back when all of them have had their first turn.
      def dispatch
        @dispatcher = Fiber.__reserve(:oob) { dispatch }
        calls = @arrived
        @arrived = []
        begun = calls.map { |call| line_up(call) }.compact
        Fiber.current.schedule_with_priority
        begun.reverse_each { |call| call.fiber.schedule_with_priority }
        Thread.current.switch_fiber
        insist if busy?
      end

      # One call for each signal at a time, as in stock Ruby.
      def line_up(call)
        line = @lines[call.signal]
        return begin_line(call) if line.nil? || line.first.fiber.dead?

        line << call
        nil
      end

      def begin_line(call)
        @lines[call.signal] = [call]
        make(call)
      end

      def make(call)
        call.fiber = Fiber.schedule_priority_oob_fiber { run(call) }
        call
      end

      # What is spun in a handler belongs to the main fiber.
      def run(call)
        call.handler.call(call.signal)
      rescue UncaughtThrowError => e
        Thread.main.main_fiber.interject { throw e.tag, e.value }
      rescue Exception # rubocop:disable Lint/RescueException -- raised again, for the main fiber, which may compute
        @raised = call.fiber
        insist
        raise
      ensure
        Fiber.current.children.each(&:detach)
        go_on(call)
      end

      def go_on(call)
        line = @lines[call.signal]
        return unless line&.first.equal?(call) # in a forked child they are not

        line.shift
        line.empty? ? @lines.delete(call.signal) : make(line.first)
      end

      # --- when a fiber computes ---------------------------------------------------------------

      # Whether the main fiber has not got it yet.
      def raised?
        @raised &&= !@raised.dead? || Thread.main.__polyphony_held_back?(nil) ? @raised : nil
      end

      # A fiber that never switches must not keep a handler from running.
      def insist
        return if @watch&.alive?

        @watch = Thread.new { watch }
        @watch.__polyphony_helper
        @watch.name = 'signals'
      end

      # A signal may come while it finds that there is nothing left to do.
      def watch
        loop do
          look
          next if busy?

          @watch = nil
          break if !busy? || @watch

          @watch = Thread.current
        end
      end

      def look
        before = Thread.main.backend.__turn
        STOCK_SLEEP.bind_call(self, PATIENCE)
        nudge if before && busy? && Thread.main.backend.__turn == before
      end

      # To oneself, a signal is sent by Ruby, not by the kernel: none is lost by it.
      def nudge
        signal = @handlers.key(@handlers.values.compact.first) or return
        @nudges += 1
        ::Process.kill(signal, ::Process.pid)
      end
    end
  end
  private_constant :Traps

  # Setting signal handlers.
  module TrapExtensions
    # As stock, except that a block, or what else can be called, runs in a fiber of its own, before all others: it
    # may do I/O, wait, lock and spin. What it raises or throws goes to the main fiber. What it spins
    # belongs to the main fiber. Calls for the same signal follow one another. If a fiber computes, the
    # handler runs when that one comes to a switchpoint, or after 0.2 seconds.
    # @overload trap(signal, command)
    #   @param signal [String, Symbol, Integer]
    #   @param command [Proc, #call, String, nil] strings as in stock Ruby
    # @overload trap(signal)
    # @yield [Integer] number of the signal
    # @return [Proc, String, nil] what was set before, as stock
    # @raise [ArgumentError] as stock
    def trap(*args, &block)
      Traps.set(*args, &block)
    end

    # For Signal.trap, whose handlers are called in the middle of anything, as stock: at once, but unable to
    # wait.
    module Stock
      # @see TrapExtensions#trap
      def trap(*args, &block)
        Traps.set_stock(*args, &block)
      end
    end

    # For Process.kill.
    module Kill
      # As stock: handlers for a signal that one sends to oneself begin before it returns.
      # @return [Integer]
      def kill(...)
        super.tap { Traps.give_way if Thread.__polyphony_main_ractor? && Traps.arrived? }
      end
    end

    ProcessFork.in_child(daemon: true) { Traps.after_fork }
    ::Process.singleton_class.prepend Kill, self
    ::Signal.singleton_class.prepend Stock
    ::Kernel.singleton_class.prepend self
    ::Kernel.prepend(dup.module_eval { private :trap; self })
  end
end
