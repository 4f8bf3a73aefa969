# frozen_string_literal: true

require_relative 'program'
require_relative 'generator'
require_relative 'apart'

# Programs made from seeds, carried out by the library and by a model of it in plain Ruby.
module RandomPrograms
  # By name: who makes them, and what is compared.
  KINDS = {
    'order' => [Generator, ->(program) { program.run }],
    'apart' => [Apart, ->(program) { program.run; program.stories.sort.flat_map(&:last) }]
  }.freeze

  def self.make(kind, seed) = KINDS.fetch(kind).first.new(seed).program

  # @return [String] what happened
  def self.outcome(kind, body, world)
    KINDS.fetch(kind).last.call(Program.new(world, body)).join("\n")
  rescue Exception => e # rubocop:disable Lint/RescueException -- a deadlock, for one, which is none for the model
    "#{e.class.name.split('::').last}: #{e.message.lines.first}"
  end

  # What is written of each program, for those who read it in another process.
  Record = Struct.new(:seed, :outcome) do
    def self.read(io)
      size = io.gets&.split or return
      new(size.first.to_i, io.read(size.last.to_i).force_encoding('UTF-8'))
    end

    def write(io) = io.print("#{seed} #{outcome.bytesize}\n", outcome)
  end
end
