# frozen_string_literal: true

# Does the same a great many times and looks at the memory of the process: at the end it may be at
# most 5 % above what it was after the first tenth. `rake soak` runs it on every driver; the suite
# runs a twentieth of it.
#
#   ruby -Ilib test/soak/memory.rb [part of the whole, 1 without it]

require 'polyphony'

module Polyphony
  class MemorySoak
    MOST = 1.05

    # The body is called with how often it is to do it.
    Task = Struct.new(:title, :count, :body)

    SPIN_AND_AWAIT = ->(n) { n.times { spin { :result }.await } }

    TIMEOUTS = lambda do |n|
      n.times do |i|
        move_on_after(60) { cancel_after(60) { snooze if (i % 100).zero? } }
      end
    end

    # One fiber fails again and again beside another, which the supervisor keeps.
    RESTARTS = lambda do |n|
      spin(:steady) { sleep }
      spin(:failing) { raise IOError }
      failures = 0
      supervise(restart: :always) do |_, result|
        break if result.is_a?(IOError) && (failures += 1) == n
      end
    end

    TASKS = [Task.new('spin and await', 1_000_000, SPIN_AND_AWAIT),
             Task.new('timeouts set and cancelled', 1_000_000, TIMEOUTS),
             Task.new('supervised restarts', 100_000, RESTARTS)].freeze

    def initialize(part)
      @part = part
    end

    # @return [Boolean] whether the memory stayed what it was
    def call
      puts "#{Thread.current.backend.kind}, Ruby #{RUBY_VERSION}, #{@part.to_f} of a full run"
      TASKS.map { |task| in_a_process { soak(task) } }.all?
    end

    private

    # Of its own: what grows must not find room that another task has left.
    def in_a_process
      ::Process.wait(fork { exit!(yield) })
      $?.success?
    end

    # Ruby's heap reaches its size within a twentieth of a full run, so a part of one begins with that.
    def soak(task)
      tenth = (task.count * @part / 10).ceil
      task.body.call(task.count / 20) if @part < 1
      sizes = Array.new(10) do |i|
        task.body.call(tenth)
        resident.tap { |size| puts format('%-28s %8d  %6d KB', task.title, tenth * (i + 1), size) }
      end
      ratio = sizes.last.fdiv(sizes.first)
      puts format('%-28s %s: %.1f %%', task.title, ratio <= MOST ? 'steady' : 'GROWS', ratio * 100)
      ratio <= MOST
    end

    # @return [Integer] kilobytes
    def resident
      File.read('/proc/self/status')[/^VmRSS:\s+(\d+)/, 1].to_i
    end
  end
end

$stdout.sync = true
exit Polyphony::MemorySoak.new(Rational(ARGV.fetch(0, '1'))).call
