# frozen_string_literal: true

# A scope: three downloads that belong together. The first time all succeed; the second time one
# fails and the others are stopped; the third time two fail, and both errors are told.
#   ruby -Ilib examples/scopes.rb
require 'polyphony'

def download(scope, name, seconds, error = nil)
  scope.spin(name) do
    raise IOError, error if error

    sleep seconds
    "#{name} loaded"
  rescue Polyphony::Terminate
    puts "  #{name} was stopped"
    raise
  end
end

def page(*broken)
  Polyphony.scope do |scope|
    parts = [download(scope, :head, 0.01), download(scope, :body, 0.03, broken[0]),
             download(scope, :foot, 0.03, broken[1]), download(scope, :ads, 0.05)]
    parts.map(&:await)
  end
end

puts "page 1: #{page.join(', ')}"

begin
  page('no body')
rescue IOError => e
  puts "page 2: #{e.message}"
end

begin
  page('no body', 'no foot')
rescue Polyphony::MultipleErrors => e
  puts "page 3: #{e.errors.map(&:message).join(' and ')}"
end

first = Polyphony.scope do |scope|
  { slow: 1, fast: 0.01 }.each { |name, seconds| scope.spin { sleep seconds; scope.stop(name) } }
end
puts "first:  #{first}"
puts "left:   #{Fiber.current.children.size} fibers"
