# frozen_string_literal: true

module Polyphony
  # What the rows of docs/compatibility.md are measured with: whether a call lets other fibers run while it waits.
  module Heartbeat
    # A fiber that sleeps a millisecond at a time. Before a call that waits is let go, it has to run so often, and so often in a row
    # without a gap of more than 5 ms.
    BEATS = 20
    BEAT = 0.001
    IN_A_ROW = 5
    GAP = 0.005

    # Counts the beats of that fiber. On a busy machine there are gaps that nobody is to blame for, but not always: what counts is
    # the longest row of beats without one. A call that stops the thread for more than 5 ms at a time never lets it grow. One that computes
    # is measured by its time on the processor, since others take that away in the middle.
    class Heart
      attr_reader :beats, :longest

      # Of the processor: so much of it in a gap tells that the thread did not just wait.
      COMPUTING = 0.0005

      def initialize(gap)
        @gap = gap
        @beats = @row = @longest = 0
        @last = times
      end

      def run
        loop do
          sleep BEAT
          beat(times)
        end
      end

      # @return [Boolean] whether it has been seen that others run
      def steady?
        @beats >= BEATS && @longest >= IN_A_ROW
      end

      private

      def times
        [Clock.now, ::Process.clock_gettime(::Process::CLOCK_THREAD_CPUTIME_ID)]
      end

      def beat(now)
        @row = gap?(*now.zip(@last).map { |time, before| time - before }) ? 0 : @row + 1
        @longest = [@longest, @row].max
        @beats += 1
        @last = now
      end

      def gap?(seconds, computed)
        computed > @gap || (seconds > @gap && computed < COMPUTING)
      end
    end

    # That a call lets other fibers run while its server makes it wait. +release+ ends that wait, from here, and does so only
    # after another fiber has run many times, in a row without a gap of more than 5 ms: a call that stops the thread, be it for a
    # short time again and again, is never released. It must then come to an end by a limit that the server was given, and fails here.
    # @param release [Proc] lets the server answer; may wait, in a fiber of its own
    # @return [Object] what the block returns
    def assert_yields(release)
      heart = Heart.new(patient(GAP))
      beating = spin { heart.run }
      helper = spin { sleep BEAT until heart.steady?; release.call }
      result = yield
      assert_predicate heart, :steady?, 'the call stopped the thread: another fiber ran ' \
                                        "#{heart.beats} times meanwhile, at most #{heart.longest} times in a row without a gap of 5 ms"
      helper.await
      result
    ensure
      [beating, helper].each { |fiber| fiber&.stop; fiber&.await }
    end
  end
end
