# frozen_string_literal: true

# Processes that send each other messages by name, over Redis. One of them is killed in the middle of its work: nothing is lost.
#   REDIS_URL=redis://localhost:6379 ruby -Ilib examples/remote.rb
require 'polyphony'
begin
  require 'polyphony/remote'
rescue LoadError => e
  puts "skipped: #{e.message}"
  exit
end

SETTINGS = { url: ENV.fetch('REDIS_URL', 'redis://localhost:6379'), namespace: "example-#{Process.pid}", lost_after: 0.5, timeout: 5 }.freeze

# Another process. It may as well run on another machine.
def process
  Polyphony.fork { Polyphony::Remote.open(**SETTINGS) { |remote| yield remote } }
end

def printer
  process do |remote|
    remote.register('printer', prefetch: 2)
    receive_loop do |job|
      sleep 0.002 # paper is slow
      remote['printed'] << [job, Process.pid, remote.delivery.redelivered?]
    end
  end
end

begin
  Polyphony::Remote.open(**SETTINGS, &:server)
rescue Polyphony::Remote::Unreachable => e
  puts "skipped: no Redis: #{e.message}"
  exit
end
shop = process do |remote|
  remote.register('shop')
  receive_loop { |question| question.reply({ 'tea' => 3 }[question.message]) }
end
printers = Array.new(2) { printer }
Polyphony::Remote.open(**SETTINGS) do |remote|
  puts "stock of tea: #{remote['shop'].ask('tea')}"
  remote.register('printed')
  sleep 0.01 until remote['printer'].stats[:receivers] == 2
  20.times { |job| remote['printer'] << job }
  done = Array.new(20) { receive }
  puts "printed: 20, each once: #{done.map(&:first).sort == (0...20).to_a}, by both: #{done.map { |_, by| by }.uniq.size == 2}"
  20.times { |job| remote['printer'] << job + 20 }
  Process.kill(:KILL, printers.first)
  puts 'one printer was killed'
  done << receive until done.map(&:first).uniq.size == 40
  puts "printed: 40, each once or marked: #{done.group_by(&:first).values.all? { |all| all.count { |_, _, again| !again } <= 1 }}"
  remote['printer'].monitor
  Process.kill(:KILL, printers.last)
  message = receive until message in [:down, name, reason]
  puts "the boss hears: #{name} is down: #{reason}"
end
Process.kill(:TERM, shop)
Process.waitall
