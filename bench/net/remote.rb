# frozen_string_literal: true

# Polyphony::Remote: messages from 16 fibers of one process to a name in another, and questions with answers, through a Redis of its own. Tells
# messages a second, and microseconds of CPU for each, in both processes together; a busy machine does not change that much.
#
#   BUNDLE_GEMFILE=test/adapters/Gemfile BUNDLE_PATH=vendor/apps bundle exec ruby -Ilib bench/net/remote.rb [messages] [questions]

require 'polyphony/remote'
require 'tmpdir'

MESSAGES = Integer(ARGV.fetch(0, '20000'))
QUESTIONS = Integer(ARGV.fetch(1, '2000'))
FIBERS = 16

def measure(name, count)
  wall, cpu = [Process::CLOCK_MONOTONIC, Process::CLOCK_PROCESS_CPUTIME_ID].map { |clock| Process.clock_gettime(clock) }
  others = yield
  seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - wall
  used = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu + others
  puts format('%-12s %8d a second %8.1f us of CPU each', name, count / seconds, used / count * 1e6)
end

# Receives, and tells what it has used.
def serve(url)
  Polyphony::Remote.open(url: url, namespace: 'bench') do |remote|
    remote.register('sink')
    MESSAGES.times { receive }
    remote.acknowledge
    remote['driver'] << Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    QUESTIONS.times { receive.reply(:fine) }
    remote['driver'] << Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sleep
  end
end

def in_fibers(count)
  Array.new(FIBERS) { spin { (count / FIBERS).times { |n| yield n } } }.each(&:await)
end

def drive(url)
  Polyphony::Remote.open(url: url, namespace: 'bench') do |remote|
    remote.register('driver')
    sleep 0.01 until remote['sink'].stats[:receivers] == 1
    used = 0
    measure('messages', MESSAGES) { in_fibers(MESSAGES) { |n| remote['sink'] << n }; used = receive }
    measure('questions', QUESTIONS) { in_fibers(QUESTIONS) { |n| remote['sink'].ask(n, timeout: 10) }; receive - used }
    remote.acknowledge
  end
end

Dir.mktmpdir do |folder|
  socket = File.join(folder, 'redis.sock')
  server = Process.spawn('redis-server', '--port', '0', '--unixsocket', socket, '--save', '', '--dir', folder, out: File::NULL)
  sleep 0.01 until File.socket?(socket)
  url = "unix://#{socket}"
  sink = Polyphony.fork { serve(url) }
  drive(url)
ensure
  [sink, server].compact.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
end
