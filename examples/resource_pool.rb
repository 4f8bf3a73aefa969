# frozen_string_literal: true

# Two connections for eight users. One of them breaks and is replaced; then somebody keeps both, and
# who waits in vain is told who it was.
#   ruby -Ilib examples/resource_pool.rb
require 'polyphony'

# Stands for a connection to a database.
class Connection
  attr_reader :number

  def initialize(number)
    sleep 0.01 # connecting takes a while; others may connect meanwhile
    @number = number
  end

  def query(text)
    sleep 0.02
    raise IOError, 'connection lost' if text == 'query 2'

    "#{text} answered"
  end

  def inspect
    "connection #{number}"
  end
end

made = 0
pool = Polyphony::ResourcePool.new(limit: 2) { Connection.new(made += 1) }

users = Array.new(8) do |i|
  spin(:"user#{i}") do
    pool.acquire do |connection|
      connection.query("query #{i}")
    rescue IOError => e
      pool.discard!
      "query #{i} failed: #{e.message}"
    end
  end
end
puts Fiber.await(users)
puts "connections made: #{made}"

greedy = Array.new(2) { |i| spin(:"greedy#{i}") { pool.acquire { sleep } } }
sleep 0.01
begin
  pool.acquire(timeout: 0.05) { |connection| connection.query('mine') }
rescue Polyphony::ResourcePool::Exhausted => e
  puts e.message
end
greedy.each(&:stop)
Fiber.await(greedy)
pool.close { |connection| puts "closed #{connection.inspect}" }
