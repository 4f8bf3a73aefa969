# frozen_string_literal: true

# Nobody keeps these, so the GC may give their stacks to those that have not begun. More than the
# 31,744 for which there are memory mappings (two a fiber, vm.max_map_count): it has to.
Bench.row 'spin_unheld' do
  title 'spin 50,000, keep none, await children (each)'
  grows 'fibers at once'
  metric :ns, 'ns', ratio: 3
  no_warm_up

  limit('Fiber.new, then resume', 50_000) do |n|
    measure(n) { Array.new(n) { Fiber.new {} }.each(&:resume) }
  end

  polyphony(50_000) do |n|
    measure(n) do
      n.times { spin {} }
      Fiber.current.await_all_children
    end
  end

  async(50_000) { |n, task| measure(n) { n.times { task.async {} } } }
end
