# frozen_string_literal: true

# All of them are made before the first one runs, and kept. Ruby gives back the stack of a fiber that
# was resumed as soon as it ends, but that of one that was transferred to only when the Fiber is
# collected: so each of these needs fresh memory, and the limit is the extension, not resume.
Bench.row 'spin_many' do
  title 'spin 10,000, await all (each)'
  grows 'fibers at once'
  metric :ns, 'ns', ratio: 1.2

  limit('C extension', 10_000) do |n|
    require Bench::Native.extension('limit_ext')
    measure(n) do
      fibers = Array.new(n) { Limit.spin {} }
      Limit.run
      fibers.clear
    end
  end

  polyphony(10_000) do |n|
    measure(n) { Fiber.await(Array.new(n) { spin {} }) }
  end

  beside('Fiber.new, then resume', 10_000) do |n|
    measure(n) { Array.new(n) { Fiber.new {} }.each(&:resume) }
  end

  older(3_000) { |n| measure(n) { Fiber.await(*Array.new(n) { spin {} }) } }
  carbon_fiber(10_000) { |n| [n, Array.new(n) { -> {} }] }
  uringmachine(10_000) { |n, _machine| [n, Array.new(n) { -> {} }] }
  async(10_000) { |n, task| measure(n) { Array.new(n) { task.async {} }.each(&:wait) } }
end
