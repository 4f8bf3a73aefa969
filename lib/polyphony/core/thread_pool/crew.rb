# frozen_string_literal: true

module Polyphony
  class ThreadPool
    # The threads of a pool in one process, and what they have to do.
    # @api private
    class Crew
      # @param size [Integer] how many threads
      def initialize(size)
        @size = size
        @jobs = Queue.new.__serve(self, 'a job for a thread pool')
        @unfinished = {}.compare_by_identity
        @threads = {}.compare_by_identity
        @lock = ::Thread::Mutex.new # while threads come and go
        @gone = Queue.new           # closed when the last thread has left
      end

      # Has a job done.
      # @raise [ThreadError] after stop
      def push(job)
        start unless @jobs.closed?
        @unfinished[job] = true
        @jobs << job
      rescue ClosedQueueError
        @unfinished.delete(job)
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

      # Waits for all jobs and for the threads to end.
      def stop
        raise ThreadError, 'a thread pool cannot be stopped by a job of its own' if member?

        threads = @threads.keys
        @jobs.close
        @gone.shift unless @threads.empty?
      rescue ClosedQueueError
        nil # the last one left just now
      ensure
        threads&.each(&:join) if @threads.empty?
      end

      private

      # Also takes the place of those that a job has killed.
      def start
        return if @threads.size == @size

        @lock.synchronize { @threads[::Thread.new { work }] = true while @threads.size < @size }
      end

      def work
        while (job = @jobs.shift) do serve(job) end
      rescue ClosedQueueError
        nil # there are no more
      ensure
        @lock.synchronize { @threads.delete(::Thread.current) }
        @gone.close if @jobs.closed? && @threads.empty?
      end

      def serve(job)
        job.run
      ensure
        @unfinished.delete(job)
        job.finish
      end
    end
  end
end
