# frozen_string_literal: true

# A client that asks again when there is no answer, on a network in memory that loses half of all datagrams: in virtual time,
# the same with every run.
#
#   ruby -Ilib examples/bad_network.rb

require 'polyphony/testing'

# Asks, waits twice as long each time, and gives up after six tries.
class Client
  attr_reader :tries

  def initialize(network)
    @socket = network.datagram('client.test', 1)
    @tries = 0
  end

  def ask(question)
    6.times do |i|
      @tries += 1
      @socket.send(question, 0, 'server.test', 53)
      answer, = @socket.recvfrom(100, timeout: 2**i)
      return answer if answer&.start_with?(question)
    end
    nil
  end
end

network = Polyphony::Testing.network(seed: 3, latency: 0.1..0.3, loss: 0.5)
Polyphony::Testing.virtual_clock do |clock|
  server = network.datagram('server.test', 53)
  spin do
    loop do
      question, (_, port, host) = server.recvfrom(100)
      server.send("#{question}: 42", 0, host, port)
    end
  end
  client = Client.new(network)
  answers = Array.new(10) { |i| client.ask("question #{i}") }
  puts "answers: #{answers.compact.size} of 10, right: #{answers.compact.all?(/: 42/)}"
  puts "tries: #{client.tries}, lost: #{network.counts[:lost]}"
  puts "more than ten seconds have passed: #{clock.elapsed > 10}"
  Fiber.current.shutdown_all_children
end
