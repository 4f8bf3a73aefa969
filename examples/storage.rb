# frozen_string_literal: true

# Values that belong to a fiber and to the fibers it spins: here, which request a line of the log is
# about.
#   ruby -Ilib examples/storage.rb
require 'polyphony'

def log(text)
  puts "[#{Fiber[:request] || '-'}] #{text}"
end

def query(table)
  spin do
    sleep 0.001
    log "read #{table}"
  end
end

def handle(request)
  spin do
    Fiber[:request] = request
    log 'begin'
    Fiber.await(query(:users), query(:orders))
    log 'end'
  end
end

log 'start'
[17, 18].each { |request| handle(request).await }
log 'stop'
