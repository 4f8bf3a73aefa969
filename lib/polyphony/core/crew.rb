# frozen_string_literal: true

module Polyphony
  # The threads of a pool in one process, and what they have to do. A thread is started when there are more jobs than
  # threads. One that is more than were needed at once within the idle time ends.
  # @api private
  class Crew
    # What a thread finds among its jobs when there are more threads than were needed.
    LEAVE = ::Object.new.freeze
    private_constant :LEAVE

    # @param most [Integer, nil] how many threads there may be; nil: any number
    # @param idle_time [Numeric, nil] seconds; nil: threads stay
    def initialize(most, idle_time = nil)
      @most = most
      @idle_time = idle_time
      @jobs = Queue.new.__serve(self, 'a job for a thread pool').__be_sparing
      @unfinished = {}.compare_by_identity
      @threads = {}.compare_by_identity
      @lock = ::Thread::Mutex.new # while threads come and go
      @sooner = ::Thread::ConditionVariable.new
      @gone = Queue.new.__for_ourselves # closed when the last thread has left
      @largest = @done = @leaving = 0
      @needed = @needed_before = 0 # how many jobs there were at once, in this idle time and in the one before
    end

    # @param most [Integer, nil] from now on. Threads beyond leave as soon as they have ended what they do; jobs that wait get the
    #   threads that there may be more.
    # @raise [ThreadError] if there is no thread and none can be started
    def most=(most)
      @lock.synchronize do
        @most = most
        dismiss(@threads.size - @leaving - most) if most
      end
      start if @threads.size < wanted && !@jobs.closed?
    end

    # @param seconds [Numeric, nil] from now on
    def idle_time=(seconds)
      @lock.synchronize do
        @idle_time = seconds
        @sooner.signal
      end
    end

    # Has a job done.
    # @raise [ThreadError] after stop, and if there is no thread and none can be started
    def push(job)
      @unfinished[job] = true
      needed = @unfinished.size
      @needed = needed if needed > @needed
      start if @threads.size < needed && !@jobs.closed?
      @jobs << job
    rescue ::Exception => e # rubocop:disable Lint/RescueException -- whatever ends it, the job is not theirs
      @unfinished.delete(job)
      raise unless e.is_a?(ClosedQueueError)

      raise ThreadError, 'this thread pool has been stopped'
    end

    # A job that has not begun is not done.
    def withdraw(job)
      @unfinished.delete(job) if @jobs.delete(job)
    end

    # @return [Boolean] whether there are jobs that have not ended
    def busy?
      !@unfinished.empty?
    end

    # @return [Boolean] whether the current thread is one of them
    def member?
      @threads.key?(::Thread.current)
    end

    # @return [Hash{Symbol => Integer}]
    def stats
      threads = @threads.size
      waiting = [@jobs.size - @leaving, 0].max
      busy = [@unfinished.size - waiting, 0].max
      { threads: threads, idle: [threads - busy, 0].max, busy: busy, waiting: waiting, largest: @largest, done: @done }
    end

    # Waits for all jobs and for the threads to end.
    def stop
      raise ThreadError, 'a thread pool cannot be stopped by a job of its own' if member?

      threads = @threads.keys
      @jobs.close
      @lock.synchronize { @sooner.signal }
      @gone.shift unless @threads.empty?
    rescue ClosedQueueError
      nil # the last one left just now
    ensure
      threads&.each(&:join) if @threads.empty?
    end

    private

    # Also takes the place of those that a job has killed. Where there are threads, a job can wait for one of them.
    def start
      @lock.synchronize do
        while @threads.size < wanted
          @threads[Telemetry.apart { ::Thread.new { work } }] = true
          Roster.enter(self, @idle_time ? :blocking_pools : :thread_pools)
          @largest = @threads.size if @threads.size > @largest
        end
        @overseer ||= oversee if @idle_time
      end
    rescue ThreadError
      raise if @threads.empty?
    end

    def wanted
      unfinished = @unfinished.size
      @most && @most < unfinished ? @most : unfinished
    end

    def work
      while (job = @jobs.shift)
        job.equal?(LEAVE) ? (break if leave?) : serve(job)
      end
    rescue ClosedQueueError
      nil # there are no more
    ensure
      @lock.synchronize do
        @threads.delete(::Thread.current)
        Roster.leave(self) if @threads.empty?
      end
      @gone.close if @jobs.closed? && @threads.empty?
    end

    def serve(job)
      job.run
    ensure
      @unfinished.delete(job)
      @done += 1
      job.finish
    end

    # Who leaves looks once more, for a job may have come that counts on it.
    # @return [Boolean] whether the current thread may go
    def leave?
      @lock.synchronize do
        @leaving -= 1
        @threads.delete(::Thread.current)
        next true if @threads.size >= wanted

        @threads[::Thread.current] = true
        false
      end
    end

    # Threads that wait have no time limit: with one, nobody could tell a deadlock. So one more thread looks after them. It
    # does not count as somebody who could help.
    def oversee
      ::Thread.new { @lock.synchronize { look_after_each_idle_time } }.tap do |thread|
        thread.__polyphony_helper
        thread.name = 'idle threads'
      end
    end

    def look_after_each_idle_time
      until @threads.empty? || @jobs.closed? || @idle_time.nil?
        due = Clock.real + @idle_time # a helper waits as in stock Ruby, also where a test has stopped the clock
        @sooner.wait(@lock, @idle_time)
        dismiss_idle if Clock.real >= due
      end
    ensure
      @overseer = nil
    end

    # The queue wakes threads in turn, so that each would have something to do now and then: what counts is how many were
    # needed at once.
    def dismiss_idle
      kept = [@needed, @needed_before].max
      @needed_before = @needed
      @needed = @unfinished.size
      dismiss(@threads.size - @leaving - kept)
    end

    # The next ones that look for a job leave. Under the lock.
    def dismiss(count)
      count.times do
        @leaving += 1
        @jobs.unshift(LEAVE)
      end
    rescue ClosedQueueError
      nil # they all leave
    end
  end
end

require 'polyphony/core/crew/job'

module Polyphony
  private_constant :Crew
end
