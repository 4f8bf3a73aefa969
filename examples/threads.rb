# frozen_string_literal: true

# Two threads, each with fibers and a backend of its own, pass messages. Numbers go out, squares come
# back, while a fiber of the main thread goes on counting.
#   ruby -Ilib examples/threads.rb
require 'polyphony'

requests = Polyphony::Queue.new
answers = Polyphony::Queue.new

threads = Array.new(2) do
  Thread.new do
    # Four fibers in each thread: eight numbers are worked on at a time.
    Array.new(4) do
      spin do
        while (n = requests.shift)
          sleep 0.05
          answers << [n, n * n]
        end
      rescue ClosedQueueError
        # there are no more
      end
    end.each(&:await)
  end
end

count = 0
counter = spin { loop { sleep 0.01; count += 1 } }

16.times { |n| requests << n }
squares = Array.new(16) { answers.shift }.to_h
requests.close
threads.each(&:join)
counter.stop

puts "squares: #{squares.sort.map(&:last).join(' ')}"
puts "the main thread was free meanwhile: #{count.positive?}"
