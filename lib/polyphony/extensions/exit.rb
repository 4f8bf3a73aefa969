# frozen_string_literal: true

# When the program ends, children of the main fiber are stopped and waited for.
at_exit do
  Fiber.current.shutdown_all_children if Thread.current == Thread.main
end
