# frozen_string_literal: true

# Like spin_many, except that all of them live at once, each with a stack of its own: the kernel's
# part (mappings, page faults) is the greater one.
Bench.row 'spin_alive' do
  title 'spin 10,000 that live at once, await all (each)'
  metric :ns, 'ns'
  grows 'fibers at once'

  limit('C extension', 10_000) do |n|
    require Bench::Native.extension('limit_ext')
    measure(n) do
      n.times { Limit.spin { Limit.snooze } }
      Limit.run
    end
  end

  polyphony(10_000) do |n|
    measure(n) { Fiber.await(Array.new(n) { spin { snooze } }) }
  end
end
