# frozen_string_literal: true

# Three services that need each other in order: the log, the store, the front. When the store fails,
# it and the front are started again (rest_for_one), the log is not. At the end they go in reverse
# order, and each may finish what it does.
#   ruby -Ilib examples/services.rb
require 'polyphony'

def service(name)
  spin(name) do
    puts "#{name}: up"
    yield
  ensure
    sleep 0.01 # flush, close
    puts "#{name}: down"
  end
end

failures = 0
services = spin(:services) do
  service(:log) { sleep }
  service(:store) do
    sleep 0.02
    raise IOError, 'the disk is full' if (failures += 1) < 3

    sleep
  end
  service(:front) { sleep }

  supervise(restart: :on_error, strategy: :rest_for_one, max_restarts: 5, within: 10,
            backoff: 0.01..0.1, grace: 1,
            on_error: ->(fiber, error) { puts "#{fiber.tag} failed: #{error.message}" })
end

sleep 0.01 until failures == 3
sleep 0.05
puts '-- that is enough'
services.stop
services.await
puts "failures: #{failures}"
