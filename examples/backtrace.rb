# frozen_string_literal: true

# An error in a fiber of a fiber: its backtrace tells the whole way, from the line that raised to the
# line that started it all.
#   ruby -Ilib examples/backtrace.rb
require 'polyphony'

def parse(text)
  Integer(text)
end

def worker(text)
  spin(:worker) { parse(text) }
end

def job(texts)
  spin(:job) { Fiber.await(texts.map { |text| worker(text) }) }
end

begin
  job(%w[1 2 three]).await
rescue ArgumentError => e
  puts "#{e.message}, raised in the #{e.raising_fiber.tag}"
  puts e.backtrace.map { |line| line.delete_prefix("#{__dir__}/") }
end
