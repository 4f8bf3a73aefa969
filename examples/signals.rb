# frozen_string_literal: true

# A handler that does what other fibers do: it waits for the requests under way, logs, and ends the program.
#
#   ruby -Ilib examples/signals.rb

require 'polyphony'
require 'logger'

LOG = Logger.new($stdout, formatter: ->(_, _, _, text) { "#{text}\n" })
LOCK = Mutex.new
$level = 'info'

requests = Array.new(2) do |n|
  spin(:request) do
    sleep 0.02 * (n + 1)
    LOCK.synchronize { LOG.info "request #{n} done at level #{$level}" }
  end
end

trap('HUP') do
  LOCK.synchronize do
    $level = IO.popen(%w[echo debug], &:gets).chomp
    LOG.info 'configuration read again'
  end
end

trap('TERM') do
  LOG.info 'waiting for requests'
  requests.each(&:await)
  exit
end

at_exit { LOG.info 'bye' }

spin do
  Process.kill('HUP', Process.pid)
  Process.kill('TERM', Process.pid)
end
sleep
