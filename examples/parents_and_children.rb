# frozen_string_literal: true

# Parents and children. A supervisor spins three jobs; one fails, so the supervisor fails, and before
# it does, the other two are stopped and clean up. Nothing goes on unseen.
#   ruby -Ilib examples/parents_and_children.rb
require 'polyphony'

def job(name, seconds, error = nil)
  spin(name) do
    sleep seconds
    raise error if error

    puts "#{name}: finished"
  rescue Polyphony::Terminate
    puts "#{name}: told to stop"
    raise
  ensure
    puts "#{name}: cleaned up"
  end
end

supervisor = spin(:supervisor) do
  job(:quick, 0.02)
  job(:broken, 0.1, IOError.new('the disk is full'))
  job(:slow, 10)
  Fiber.current.await_all_children
end

begin
  supervisor.await
rescue IOError => e
  puts "main: #{e.message}, said the #{e.source_fiber.tag} one"
end
puts "main: the supervisor is #{supervisor.state}, and has #{supervisor.children.size} children"
