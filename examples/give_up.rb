# frozen_string_literal: true

# A supervisor that gives up, under one that does not. The worker fails all the time; after two
# restarts its supervisor fails, too, and is started again as a whole, with everything it had.
#   ruby -Ilib examples/give_up.rb
require 'polyphony'

attempts = 0

def told(who)
  ->(fiber, error) { puts "#{who}: #{fiber.tag} failed with #{error.class}" }
end

top = spin(:top) do
  spin(:team) do
    spin(:worker) do
      sleep 0.005
      (attempts += 1) < 7 ? raise(IOError, 'no connection') : puts('worker: connected at last')
      sleep
    end
    supervise(restart: :on_error, max_restarts: 2, within: 5, on_error: told(:team))
  end
  supervise(restart: :on_error, on_error: told(:top))
end

sleep 0.005 until attempts == 7
top.stop
top.await
puts "attempts: #{attempts}"
