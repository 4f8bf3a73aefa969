# frozen_string_literal: true

module Polyphony
  # When the program ends, children of the main fiber are stopped and waited for; then handlers of signals are
  # waited for. One more Ctrl-C or SIGTERM
  # ends the program at once, also when it is the second already.
  at_exit do
    main = Thread.current == Thread.main && Thread.current.__polyphony_backend?
    next if !main || (Fiber.current.children.empty? && !Traps.busy?)

    second = Signals.second?($!)
    Signals.let_go
    Fiber.current.shutdown_all_children unless second
    Traps.finish unless second
  ensure
    Polyphony.__report_unraised if main
  end

  # @!visibility private
  # Errors of fibers that came behind another one, which ends the program: it is too late to raise them.
  def self.__report_unraised
    while (error = Fiber.current.__shift_exception)
      warn error.full_message(highlight: false) if error.source_fiber
    end
  end
end
