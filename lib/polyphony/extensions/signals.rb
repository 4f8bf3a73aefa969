# frozen_string_literal: true

module Polyphony
  # Ctrl-C and SIGTERM are raised in the main fiber, whichever fiber is running, as stock Ruby raises
  # them in the main thread; a program that does not rescue them ends as stock Ruby's does. Handlers
  # of your own, set with trap, take the place of these.
  # @!visibility private
  module Signals
    # How long a fiber may go on without coming to a switchpoint before the signal is raised in it.
    PATIENCE = 0.2
    KINDS = { 'INT' => -> { Interrupt.new('') }, 'TERM' => -> { SignalException.new('SIGTERM') } }.freeze
    STOCK_SLEEP = KernelExtensions::STOCK_SLEEP

    class << self
      # Handlers of others stay.
      def install
        KINDS.each_key { |name| Traps.replace(name, 'DEFAULT', default(::Signal.list[name])) }
      end

      # What a signal that is ignored by the system does as long as the program has set nothing. Trap shows none of it.
      # @yield in the middle of anything
      def on_default(name, &block)
        (@others ||= {})[::Signal.list.fetch(name)] = block
        Traps.replace(name, 'SYSTEM_DEFAULT', Traps.handler('SYSTEM_DEFAULT', &block))
      end

      # Ours, whatever was there.
      def reinstall
        KINDS.each_key { |name| Traps.set_stock(name, 'DEFAULT') }
      end

      # From now on a signal ends the program at once.
      def let_go
        KINDS.each_key { |name| Traps.replace(name, 'DEFAULT', 'SYSTEM_DEFAULT') }
      end

      # @param number [Integer] of a signal
      # @return [Handler, nil] what it does if the program has set nothing; nil: what it does in Ruby
      def default(number)
        other = @others&.fetch(number, nil)
        return Traps.handler('DEFAULT', &other) if other

        name, error = KINDS.find { |one, _| ::Signal.list[one] == number }
        name && Traps.handler('DEFAULT') { strike(name, error.call) }
      end

      # @return [Boolean] whether the error is a signal that came while another was being handled
      def second?(error)
        error.is_a?(SignalException) && error.cause.is_a?(SignalException)
      end

      private

      # In the main thread, on top of whatever runs there.
      def strike(name, error)
        main = Thread.main.main_fiber
        raise error if main.nil? || main.equal?(Fiber.current)
        return die(name) if @struck && waiting?(@struck)

        @struck = error
        error.instance_variable_set(:@__polyphony_signal, true) # passes masks, as stock Ruby's
        main.schedule_with_priority(error)
        Thread.new { insist(error) }
      end

      # Not raised yet.
      def waiting?(error)
        error.backtrace_locations.nil?
      end

      # A fiber that computes would keep the main one from ever getting it.
      def insist(error)
        STOCK_SLEEP.bind_call(self, PATIENCE)
        Thread.main.__polyphony_stock_raise(error) if waiting?(error)
      end

      def die(name)
        Traps.install(name, 'SYSTEM_DEFAULT')
        ::Process.kill(name, ::Process.pid)
      end
    end
  end

  private_constant :Signals
  Signals.install
end
