# frozen_string_literal: true

require 'polyphony/tools/stall'
require 'polyphony/tools/watcher'

module Polyphony
  # Tells of fibers that keep their thread. Two look: the switch, in C, measures every turn and writes down those that were too
  # long; and a thread looks from time to time, for where a long turn is. That thread cannot look while C code keeps Ruby's
  # lock; then there is what the switch has written down.
  # @api private
  class Stalls < Watcher
    # A turn that goes on for so many limits, and at least so many seconds, is told before it is over.
    LONG = 10
    LONG_SECONDS = 1

    # What the thread saw. turn: when it began, which no other turn of that thread did.
    Sample = Struct.new(:turn, :backtrace, :kind, :rivals, :told, :waiting)

    def initialize(limit, &block)
      super
      Polyphony.__stall_limit = (limit * 1_000_000_000).to_i
    end

    def stop
      Polyphony.__stall_limit = 0
      super
    end

    private

    def thread_name
      'stalls'
    end

    def word
      'report_stalls'
    end

    def begin_anew
      @samples = {}.compare_by_identity
      Polyphony.__take_stalls
    end

    # It may have been stopped before it began.
    def last_look
      tell_those_that_are_over
    end

    # First those that are over: a sample of theirs must not be taken for a newer turn's.
    def look
      tell_those_that_are_over
      ::Thread.list.each { |thread| look_at(thread) if thread.__polyphony_backend? && thread != @thread }
      @samples.delete_if { |thread, _| !thread.alive? }
    end

    def look_at(thread)
      turn, seconds, fiber = thread.backend.__turn_under_way
      return unless turn && seconds >= @limit

      sample = @samples[thread]
      sample = @samples[thread] = sample_of(thread, turn) unless sample&.turn == turn
      return if !sample || sample.told || seconds < [@limit * LONG, LONG_SECONDS].max

      sample.told = true
      sample.waiting = thread.backend.__held_up
      tell_of(fiber, thread, seconds, sample, over: false)
    end

    def sample_of(thread, turn)
      waiting = thread.status == 'sleep' # a thread that has let go of Ruby's lock
      backtrace = thread.backtrace
      # It may have gone on while it was looked at.
      return unless thread.backend.__turn_under_way&.first == turn

      Sample.new(turn, backtrace, waiting ? :waiting : :computing, rivals(thread), false)
    end

    def rivals(thread)
      ::Thread.list.count { |other| other.status == 'run' && other != thread && other != ::Thread.current }
    end

    def tell_those_that_are_over
      Polyphony.__take_stalls.each do |thread, fiber, seconds, turn, backtrace, waiting|
        sample = @samples[thread]
        sample = nil unless sample&.turn == turn
        next if sample&.told

        sample ||= Sample.new(turn, backtrace, :unknown, 0, true)
        sample.waiting = waiting
        tell_of(fiber, thread, seconds, sample, over: true)
      end
    end

    def tell_of(fiber, thread, seconds, sample, over:)
      tell(Stall.new(fiber: fiber, thread: thread, seconds: seconds, backtrace: sample.backtrace, kind: sample.kind,
                     over: over, rivals: sample.rivals, waiting: sample.waiting))
    end
  end

  private_constant :Stalls
end
