# frozen_string_literal: true

require 'polyphony/core'
require 'polyphony/tools/trace/from_environment' # its end comes after that of the fibers: before the extensions' at_exit
require 'polyphony/extensions'

module Polyphony
  autoload :Cycle, 'polyphony/tools/cycle'
  autoload :Deadlocks, 'polyphony/tools/deadlocks'
  autoload :Stall, 'polyphony/tools/stall'
  autoload :Stalls, 'polyphony/tools/stalls'
  autoload :Stats, 'polyphony/tools/stats'
  autoload :Trace, 'polyphony/tools/trace'
  autoload :Tree, 'polyphony/tools/tree'
  private_constant :Deadlocks, :Stalls, :Stats

  # All fibers of all threads, as they are now: what each waits for, on what, since when, and who has it. Print it.
  # @return [Tree]
  # @example
  #   puts Polyphony.tree
  def self.tree
    Tree.new
  end

  # Figures of all threads that live, since they began; reading changes nothing.
  #
  # +:stalls+ is about turns that other fibers had to wait for, while {report_stalls} is at work: +:count+ of those above +:limit+,
  # the +:longest+, and a +:histogram+ of +{ seconds at most => how many }+.
  #
  # Pools of threads tell how many +:threads+ there are, +:idle+ and +:busy+ ones, how much is +:waiting+ for one, the +:largest+
  # number of threads there was, and how much is +:done+: +:blocking+ is that of {blocking} and {interruptible}; +:files+ and +:lookups+ are the
  # threads in C for calls that have no other form. Then an Array for the others that have threads or workers: +:thread_pools+,
  # +:blocking_pools+, +:process_pools+ (see {ProcessPool#stats}).
  # @return [Hash] +:threads+, +:backends+, +:fibers+ by state, +:switches+, +:polls+, +:operations+, +:pending_ops+, +:pending_timers+,
  #   +:stalls+, and the pools
  # @example
  #   Polyphony.stats[:stalls][:histogram] #=> {0.001=>3011, 0.002=>12, 0.005=>0, ...}
  def self.stats
    Stats.to_h
  end

  # Records what fibers do while the block runs: who runs when, what others wait for, who wakes whom. The environment variable
  # POLYPHONY_TRACE=out.html does it for a whole program.
  # @param path [String, nil] where to write it: a page for the browser if it ends in .html, JSON for Perfetto otherwise
  # @param events [Integer] how many are kept, the last ones
  # @yield what is traced
  # @return [Trace]
  # @example
  #   Polyphony.trace('out.html') { work }
  def self.trace(path = nil, events: Trace::EVENTS)
    raise ArgumentError, 'trace needs a block to run; to begin and end elsewhere: Polyphony::Trace.start and stop' unless block_given?

    Trace.start(events: events)
    begin
      yield
    ensure
      trace = Trace.stop
      trace.write(path) if path
    end
    trace
  end

  # Tells from now on, for all threads, which fibers keep their thread to themselves for longer than +limit+: in a call that waits and
  # knows nothing of fibers, or in a long computation. Each place is told once, on standard error. The environment variable
  # POLYPHONY_STALL=50 does the same from the start, with a limit in milliseconds.
  # @param limit [Numeric, nil] seconds; nil ends it
  # @yield [Stall] each one, instead of standard error, in a thread of its own
  # @return [nil]
  # @example
  #   Polyphony.report_stalls(0.05)
  def self.report_stalls(limit = 0.1, &block)
    check_limit(limit)
    Stalls.start(limit, &block)
    nil
  end

  # Tells from now on, for all threads, of fibers that wait for each other, for locks or the ends of fibers, while the rest of the program
  # goes on. (When nothing can go on, there is a {Deadlock} at once.) Each is told once, on standard error. The environment variable POLYPHONY_DEADLOCK=5 does
  # the same from the start.
  # @param limit [Numeric, nil] seconds that all of them have waited; nil ends it
  # @yield [Cycle] each one, instead of standard error, in a thread of its own
  # @return [nil]
  # @example
  #   Polyphony.report_deadlocks(5) { |cycle| logger.error(cycle.to_json); cycle.fibers.first.cancel }
  def self.report_deadlocks(limit = 5, &block)
    check_limit(limit)
    Deadlocks.start(limit, &block)
    nil
  end

  # @!visibility private
  def self.check_limit(limit)
    return if limit.nil? || (limit.is_a?(Numeric) && limit.positive? && limit.to_f.finite?)

    raise ArgumentError, "limit must be a positive number of seconds, or nil, got #{limit.inspect}"
  end
  private_class_method :check_limit

  if (limit = ENV['POLYPHONY_DEADLOCK'].to_s) != ''
    begin
      report_deadlocks(Float(limit))
    rescue ::ArgumentError
      warn "polyphony: POLYPHONY_DEADLOCK must be a positive number of seconds, got #{limit.inspect}: no cycles are reported"
    end
  end

  # Nothing is opened, or loaded, before somebody asks: a handler may not load anything, so a thread does. That waits for the interpreter's
  # lock for each file it looks for, from Ruby 3.3 on more than a hundred times, and a main thread that computes gives it away every tenth of a
  # second only: with a low priority it does so every 20 ms.
  # @!visibility private
  def self.open_attach
    return if @attach_loads == ::Process.pid

    @attach_loads = ::Process.pid
    main, before = ::Thread.main, ::Thread.main.priority
    ::Thread.new do
      main.priority = before - 3
      begin
        require 'polyphony/tools/attach'
      ensure
        main.priority = before
        @attach_loads = nil
      end
      Attach.open
    end
  end
  private_class_method :open_attach

  unless %w[off 0 no false].include?(ENV['POLYPHONY_ATTACH'].to_s.downcase)
    Signals.on_default('URG') { open_attach }
  end

  Faults.from_environment unless ENV['POLYPHONY_FAULTS'].to_s.empty?

  if (limit = ENV['POLYPHONY_STALL'].to_s) != ''
    begin
      report_stalls(Float(limit) / 1000)
    rescue ::ArgumentError
      warn "polyphony: POLYPHONY_STALL must be a positive number of milliseconds, got #{limit.inspect}: no stalls are reported"
    end
  end
end
