# frozen_string_literal: true

# When the program ends, children of the main fiber are stopped and waited for.
at_exit do
  main = Thread.current == Thread.main && Thread.current.__polyphony_backend?
  Fiber.current.shutdown_all_children if main
end
