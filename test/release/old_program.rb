# frozen_string_literal: true

# A program as they were written for Polyphony 1.x, by its documented words alone: a line server with a pool, workers,
# time limits and supervision, and a client that asks it for all of that. Prints a line for each thing that it did, and nothing else
# on any driver: see old_program.txt.

require 'polyphony'
require 'socket'
require 'open3'

Account = Struct.new(:name, :balance)

class Bank
  def initialize
    @connections = Polyphony::ResourcePool.new(limit: 2) { Object.new }
    @lock = Polyphony::Mutex.new
    @accounts = Hash.new { |accounts, name| accounts[name] = Account.new(name, 0) }
    @audit = Polyphony::Queue.new
    @auditor = spin(:auditor) { loop { (@entries ||= []) << receive } }
  end

  attr_reader :connections

  def deposit(name, amount)
    @connections.acquire do
      sleep 0.001
      @lock.synchronize { @lock.synchronize { @accounts[name].balance += amount } }
    end
    @auditor << [name, amount]
    @audit << name
    @accounts[name].balance
  end

  def audited
    @audit.shift_all.tally
  end
end

bank = Bank.new
server = TCPServer.new('127.0.0.1', 0)
port = server.local_address.ip_port

listener = spin(:listener) do
  server.accept_loop do |socket|
    spin do
      while (line = socket.gets)
        name, amount = line.split
        socket << "#{bank.deposit(name, amount.to_i)}\n"
      end
    rescue Errno::ECONNRESET
      nil
    ensure
      socket.close
    end
  end
end

# --- fibers, and their results

customers = Array.new(5) do |i|
  spin do
    socket = TCPSocket.new('127.0.0.1', port)
    socket.puts "customer#{i % 2} 10"
    Integer(socket.gets)
  ensure
    socket.close
  end
end
puts "balances #{Fiber.await(*customers).sort.inspect}"
puts "audited #{bank.audited.sort.inspect}, pool #{bank.connections.size} of #{bank.connections.limit}"
puts "listener #{listener.tag} #{listener.state}"
listener.stop
listener.await

winner, result = Fiber.select(spin(:slow) { sleep }, spin(:quick) { sleep 0.001; :won })
puts "select #{winner.tag} #{result}"

# --- messages

echo = spin do
  loop do
    peer, message = receive
    peer << message.upcase
  end
end
%w[one two].each { |word| echo << [Fiber.current, word] }
puts "received #{receive} #{receive}, then #{receive_all_pending.inspect}"
echo.interrupt(:stopped)
puts "echo #{echo.await}"

# --- time

began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
puts "move_on_after #{move_on_after(0.01, with_value: :late) { sleep 5 }}"
begin
  cancel_after(0.01) { sleep 5 }
rescue Polyphony::Cancel => e
  puts "cancel_after #{e.class}"
end
begin
  cancel_after(0.01, with_exception: [ArgumentError, 'too slow']) { sleep 5 }
rescue ArgumentError => e
  puts "cancel_after #{e.message}"
end
kept = cancel_after(0.05) do |canceller|
  3.times { sleep 0.02; canceller.reset }
  :kept
end
puts "reset #{kept}"
begin
  Timeout.timeout(0.01) { sleep 5 }
rescue Timeout::Error => e
  puts "Timeout #{e.class}"
end
ticks = 0
ticker = spin { every(0.002) { ticks += 1 } }
sleep 0.001 until ticks >= 3
ticker.stop
turns = 0
throttled_loop(rate: 1000, count: 3) { turns += 1 }
timer = Polyphony::Timer.new(resolution: 0.001)
puts "timer #{timer.move_on_after(0.01, with_value: :fired) { sleep 5 }}, #{turns} turns"
timer.stop
puts "in time #{Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 5}"

# --- errors, parents, supervision

begin
  spin { spin { raise IOError, 'deep down' }; suspend }.await
rescue IOError => e
  puts "bubbled #{e.message} from a fiber: #{e.source_fiber.is_a?(Fiber)}"
end
tries = 0
keeper = spin { supervise(spin { (tries += 1) < 3 ? raise('shaky') : :steady }, restart: :on_error) }
sleep 0.001 until tries == 3
snooze
keeper.stop
puts "supervised #{tries} tries"
cleaned = []
parent = spin do
  3.times { |i| spin { suspend } && spin { sleep } && spin { begin sleep ensure cleaned << i end } }
  suspend
end
snooze until parent.children.size == 9 && parent.children.all? { |child| child.state == :waiting }
parent.terminate
parent.await
puts "terminated, cleaned #{cleaned.sort.inspect}"
again = spin { |value| value || suspend }
snooze
puts "restart #{again.restart(:anew).await}"
puts "spin_scope #{spin_scope { spin { sleep 0.001 }; :scope }}"

# --- threads

thread = Thread.new do
  spin { sleep 0.001; :from_a_fiber }.await
end
puts "thread #{thread.value}"
worker = Thread.new { loop { peer, number = receive; peer << (number * 2) } }
worker << [Fiber.current, 21]
puts "thread's mailbox #{receive}"
worker.kill
worker.join
pool = Polyphony::ThreadPool.new(2)
puts "pool #{Array.new(3) { |i| spin { pool.process { i * i } } }.map(&:await).inspect}"
pool.stop
event = Polyphony::Event.new
Thread.new { event.signal(:signalled) }
puts "event #{event.await}"

# --- processes and pipes

puts "backticks #{`echo out`.chomp}, #{$?.exitstatus}"
out, status = Open3.capture2('cat', stdin_data: 'in and out')
puts "capture2 #{out} #{status.success?}"
reader, writer = IO.pipe
child = Polyphony.fork do
  reader.close
  writer << "child #{spin { sleep 0.001; :forked }.await}"
  writer.close
end
writer.close
puts reader.read
Process.wait(child)
pipe = Polyphony.pipe
spin { pipe << 'through a pipe'; pipe.close }
puts pipe.read
puts "gunzip #{(+'').tap { |text| IO.gunzip((+'').tap { |zipped| IO.gzip('squeezed', zipped) }, text) }}"
watched = spin { Polyphony::Process.watch('sleep 100') }
snooze
watched.stop
watched.await
puts 'watch ended'

# --- below

Polyphony.backend_sleep(0.001)
stats = Thread.current.backend.stats
puts "stats #{stats.keys.first(3).join(' ')}"
puts "kind #{%i[io_uring libev].include?(Thread.current.backend.kind)}"
