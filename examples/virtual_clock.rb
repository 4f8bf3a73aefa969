# frozen_string_literal: true

# A night in a moment: a job that runs every hour, gives up after ten minutes and backs off, tested on a clock that jumps.
#
#   ruby -Ilib examples/virtual_clock.rb

require 'polyphony/testing'

# Makes a report every hour; a report that takes longer than ten minutes is given up.
class Reports
  attr_reader :made, :given_up

  def initialize(&make)
    @make = make
    @made = @given_up = 0
  end

  def run
    every(3600) { move_on_after(600, with_value: :late) { @make.call } == :late ? @given_up += 1 : @made += 1 }
  end
end

began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
Polyphony::Testing.virtual_clock do |clock|
  durations = [60, 900, 599, 601, 3].cycle
  reports = Reports.new { sleep durations.next }
  spin { reports.run }
  clock.advance(10.5 * 3600)
  puts "after #{clock.elapsed / 3600} hours: #{reports.made} made, #{reports.given_up} given up"
  Fiber.current.shutdown_all_children
end
puts "in a moment: #{Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 5}"
