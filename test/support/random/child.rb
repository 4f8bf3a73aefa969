# frozen_string_literal: true

# Carries out programs in a process of its own: child.rb model|real KIND FIRST LAST, or child.rb real KIND with a program on
# the standard input, as the parent has dumped it.
world, kind, first, last = ARGV
require_relative 'programs'
require_relative(world == 'model' ? 'worlds' : 'real_world')

worlds = { 'model' => -> { RandomPrograms::ModelWorld.new }, 'real' => -> { RandomPrograms::RealWorld.new } }
run = ->(seed, body) { RandomPrograms::Record.new(seed, RandomPrograms.outcome(kind, body, worlds.fetch(world).call)).write($stdout) }

$stdout.binmode.sync = true
if first then (first.to_i..last.to_i).each { |seed| run.call(seed, RandomPrograms.make(kind, seed)) }
else run.call(0, Marshal.load($stdin.binmode.read))
end
exit! # what a program has left behind may not come to an end
