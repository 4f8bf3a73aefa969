# frozen_string_literal: true

# The benchmark of the document that schedulers like this come from: 2 million turns of two tasks, beside the same in bare Ruby. There a
# task is `#n &resched times`, which passes the function itself to be called: times(&sched). The row after it has a block of Ruby's with
# the call in it, as the one in bare Ruby has.
resume_and_yield = proc do |n|
  one, two = Array.new(2) { Fiber.new { (n / 2).times { Fiber.yield } } }
  measure(n) { (n / 2).times { one.resume; two.resume } }
end

# What is left if there is nothing but the method call and the transfer: no queue, nobody else to run.
transfers = proc do |n|
  main = Fiber.current
  one = two = nil
  one = Fiber.new { (n / 2).times { two.transfer }; main.transfer }
  two = Fiber.new { (n / 2).times { one.transfer }; main.transfer }
  measure(n) { one.transfer }
end

Bench.row 'sched' do
  title 'Sched, 2 tasks, times(&sched)'
  metric :ns, 'ns', ratio: 0.5

  limit('resume and yield', 2_000_000, &resume_and_yield)

  polyphony(2_000_000) do |n|
    sched = Polyphony::Sched.new
    2.times { sched.push { (n / 2).times(&sched) } }
    measure(n) { sched.run }
  end

  beside('Fiber#transfer', 2_000_000, &transfers)
end

Bench.row 'sched_block' do
  title 'Sched, 2 tasks, times { sched.resched }'
  metric :ns, 'ns', ratio: 0.5, note: 'Fiber#transfer alone takes 0.46'

  limit('resume and yield', 2_000_000, &resume_and_yield)

  polyphony(2_000_000) do |n|
    sched = Polyphony::Sched.new
    2.times { sched.push { (n / 2).times { sched.resched } } }
    measure(n) { sched.run }
  end

  beside('Fiber#transfer', 2_000_000, &transfers)
end
