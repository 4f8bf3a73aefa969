# frozen_string_literal: true

require 'json'
require 'rbconfig'
require_relative 'mappings'
require_relative 'peers'

module Bench
  # Measures one row: every round goes through all sides, each in a process of its own, so that a
  # change in the machine's mood meets all of them alike.
  class Runner
    WORKER = File.expand_path('worker.rb', __dir__)
    PATIENCE = 60 # seconds for one process; a wait that never ends must not stop the run

    def initialize(row, drivers, rounds:, scale:)
      @row = row
      @sides = row.sides.select { |side| side.drivers.empty? ? there?(side) : (side.drivers & drivers).any? }
      @rounds = rounds
      @scale = scale
    end

    # @return [Array<Hash>] for each round the figures by side; a String where a side failed
    def call(label)
      Mappings.ensure(@row.mappings) { Array.new(@rounds) { |round| measure_all("#{label}: round #{round + 1}/#{@rounds}") } }
    ensure
      show(nil)
    end

    private

    def measure_all(label)
      @sides.to_h do |side|
        show("#{label}, #{side.name}")
        [side.name, measure(side)]
      end
    end

    # A peer that is not here is left out, and so are its ratios.
    def there?(side)
      missing = side.kind == :peer && Peers.missing(side.name)
      warn "without #{side.name}: #{missing}" if missing
      !missing
    end

    # On a terminal one line that is written over; in a log a line is printed per row, later.
    def show(text)
      return unless $stdout.tty?

      print "\r\e[K#{text}"
      $stdout.flush
    end

    def measure(side)
      gems = side.kind == :peer ? '--enable-gems' : '--disable-gems'
      command = [RbConfig.ruby, gems, WORKER, @row.name, side.name, @scale.to_s]
      output, complaint, status = run(environment(side), command)
      return complaint unless status.success?

      JSON.parse(output.lines.last, symbolize_names: true)
    rescue JSON::ParserError, TypeError
      "no figures: #{output.inspect}"
    end

    # Bundler's settings would load gems into the bare Ruby as well.
    def environment(side)
      return { 'RUBYOPT' => nil, 'RUBYLIB' => nil }.merge(Peers.environment(side.name)) if side.kind == :peer

      { 'RUBYOPT' => nil, 'RUBYLIB' => $LOAD_PATH.join(File::PATH_SEPARATOR),
        'POLYPHONY_BACKEND' => side.kind == :driver ? side.name : nil }
    end

    # A group of its own: a server that the process started ends with it.
    def run(environment, command)
      reader, writer = IO.pipe
      errors, error_writer = IO.pipe
      pid = Process.spawn(environment, *command, out: writer, err: error_writer, pgroup: true)
      [writer, error_writer].each(&:close)
      complaint = Thread.new { errors.read }
      output = Thread.new { reader.read }
      late = !output.join(PATIENCE)
      stop(pid) if late
      _pid, status = Process.wait2(pid)
      [output.value, explain(complaint.value, status, late), status]
    ensure
      [reader, errors].each(&:close)
    end

    def stop(pid)
      Process.kill(:KILL, -pid)
    rescue Errno::ESRCH
      nil # it ended just now
    end

    def explain(complaint, status, late)
      return "no answer within #{PATIENCE} s" if late

      (complaint.lines.grep(/Error/).first || complaint.lines.first)&.strip || status.to_s
    end
  end
end
