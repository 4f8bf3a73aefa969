# frozen_string_literal: true

require 'socket'
require 'polyphony/core'

module Polyphony
  # Computes on all cores: runs tasks in worker processes, while fibers wait for them. The workers are forked when the
  # pool is made; tasks are blocks that it is made with, or objects and methods that both sides know. Arguments and results
  # are sent by Marshal.
  #
  # A pool belongs to the fiber that makes it and ends with it, and so do its workers. It can be used from all
  # fibers of all threads of the process.
  #
  # @example
  #   pool = Polyphony::ProcessPool.new(2, square: ->(x) { x * x })
  #   pool.process(:square, 7)           #=> 49
  #   pool.map(1..4, :square)            #=> [1, 4, 9, 16]
  #   pool.process(Zlib, :crc32, 'text')
  #   pool.stop
  class ProcessPool
    # What is raised by a pool itself.
    class Error < ::RuntimeError
    end

    # The pool has been stopped, or its fiber has ended.
    class Stopped < Error
    end

    # The worker that ran the task has died, and the task is not to be tried again.
    class WorkerDied < Error
      # @return [Integer] of the worker
      attr_reader :pid
      # @return [::Process::Status, nil] nil if somebody else has waited for the worker
      attr_reader :status
      # @return [String] what it was doing
      attr_reader :task

      # @param pid [Integer]
      # @param status [::Process::Status, nil]
      # @param task [String]
      def initialize(pid, status, task)
        @pid = pid
        @status = status
        @task = task
        super("worker #{pid} #{fate} while it ran #{task}")
      end

      private

      def fate
        return 'ended in an unknown way' unless status
        return "was killed by SIG#{::Signal.signame(status.termsig) || status.termsig}" if status.signaled?

        "ended with status #{status.exitstatus}"
      end
    end

    # Describes an exception of a task which could not be sent, or whose class is not known here.
    class RemoteError < Error
      # @return [String] its class
      attr_reader :class_name

      # @param class_name [String]
      # @param message [String]
      def initialize(class_name, message)
        @class_name = class_name
        super("#{class_name}: #{message}")
      end
    end

    # How many results of each_result may wait, for each task that is done at a time.
    AHEAD = 64
    private_constant :AHEAD

    class << self
      # Makes a pool for the block. When that ends, what is left is done first; if it is left by an exception or
      # +break+, what is left is ended.
      # @param (see #initialize)
      # @yield [ProcessPool]
      # @return [Object] what the block returns
      def open(*args, **options)
        raise ArgumentError, 'open needs a block to run; without one, use new' unless block_given?

        pool = new(*args, **options)
        result = yield pool
        pool.stop
        result
      ensure
        CancelScope.shield { pool.stop(timeout: 0) } if pool
      end

      # Called in a task: tells the fiber that waits for it, whose block gets the value. Waits when that one is far behind.
      # @param value [Object] that can be sent
      # @return [Boolean] whether somebody listens; false outside of a task
      def progress(value)
        job = ::Fiber[:__polyphony_job]
        job ? job.report(value) : false
      end
    end

    # @return [Integer] how many workers
    attr_reader :size

    # Forks the workers, which know what the program knows at this moment.
    # @param size [Integer] how many; as many as there are processors
    # @param fibers [Integer] how many tasks each runs at a time: for tasks that wait
    # @param retries [Integer] how often a task is begun anew when its worker dies
    # @param grace [Numeric] seconds that a cancelled task has to end, before its worker is killed
    # @param share [Array<IO>] sockets and pipes that workers keep open; all others are the parent's alone
    # @param warmup [Boolean] whether memory is put in order first, so that more of it stays shared
    # @param tasks [Hash{Symbol => #call}] blocks, by name
    # @raise [SystemCallError] if a worker cannot be forked
    def initialize(size = processors, fibers: 1, retries: 0, grace: 5, share: [], warmup: true, **tasks)
      check_numbers(size, fibers, retries, grace)
      check_tasks(tasks)
      @size = size
      @retries = retries
      @tasks = tasks.freeze
      @pid = ::Process.pid
      warm_up if warmup
      @crew = begin_crew(fibers, grace, Array(share))
    end

    # Runs a task in a worker and waits for it while other fibers run. If the wait is ended, by a time limit or a stop, it
    # ends at once, and so does the task: one that has not begun does not begin, one that waits is ended there,
    # one that computes is interrupted; if it does not come to its end in time (+grace+), its worker is killed.
    # @param task [Array] the name of a block of the pool; or an object that responds to call; or any other, followed
    #   by the name of a method. Then arguments, that can be sent
    # @param options [Hash] keyword arguments
    # @yield [Object] what the task reports with ProcessPool.progress
    # @return [Object] what the task returns
    # @raise [Exception] what the task raises; the backtrace goes on with that of the caller
    # @raise [WorkerDied] if the worker died
    # @raise [Stopped] after stop
    # @raise [ArgumentError] if there is no such task
    # @raise [TypeError] if an argument or the result cannot be sent
    def process(*task, **options, &progress)
      crew = own
      call = Call.from(@tasks, task)
      flags = progress ? Frames::LISTENS : 0
      job = Task.new(call, call.dump([], options), retries: @retries, flags: flags)
      crew.submit(job)
      job.value(crew, &progress)
    ensure
      crew.cancel(job) if job && !job.over?
    end

    # Runs a task in a worker and does not wait for it. What it raises is raised in the current fiber, at whatever it is
    # waiting for then, as the error of a child would be; in the main fiber of the program if this one has ended.
    # @param task (see #process)
    # @return [self]
    # @raise [Stopped] after stop
    def cast(*task, **options, &block)
      raise ArgumentError, "a block cannot be sent: #{Call.ways(@tasks)}" if block

      fiber = ::Fiber.current
      # A fiber that is not ours may be resumed by anyone, and is no place to raise in.
      fiber = ::Thread.current.main_fiber unless fiber.main? || fiber.__spun?
      call = Call.from(@tasks, task)
      own.submit(Cast.new(call, call.dump([], options), retries: @retries, fiber: fiber))
      self
    end

    # Runs a task for each item, with the item as its first argument.
    # @param items [#each] read as workers become free
    # @param task (see #process)
    # @return [Array] the results, in order
    # @raise [Exception] what the first one raised that failed, in order; the others are ended
    def map(items, *task, **options, &block)
      raise ArgumentError, "a block cannot be sent: #{Call.ways(@tasks)}; results one by one: each_result" if block

      [].tap { |results| stream(items, task, options).each(items) { |result| results << result } }
    end

    # The same, with each result as it comes, in order. The items may be endless: leave the block to end it. Results
    # that nobody has taken are limited in number, and so is what is read ahead.
    # @param (see #map)
    # @yield [Object] the result
    # @return [self, Enumerator] an Enumerator without a block
    def each_result(items, *task, **options, &block)
      return enum_for(:each_result, items, *task, **options) unless block

      stream(items, task, options, ahead: own.fill * AHEAD).each(items, &block)
      self
    end

    # @param count [Integer] see new
    # @return [ProcessPool] the same pool, with another number of retries
    def retrying(count)
      check('retries', count, count.is_a?(Integer) && count >= 0, 'an Integer, 0 or more')
      dup.tap { |pool| pool.instance_variable_set(:@retries, count) }
    end

    # Waits until all tasks have ended, and ends the workers. New tasks are not taken.
    # @param timeout [Numeric, nil] seconds, after which tasks are ended; nil: none
    # @return [self]
    def stop(timeout: nil)
      own.close
      finish_in(timeout) or own.abandon
      @fiber.await
      self
    end

    # @return [Boolean]
    def stopped?
      own.closed?
    end

    # @return [Boolean] whether there are tasks that run or wait to be run
    def busy?
      own.busy?
    end

    # @return [Hash{Symbol => Object}] +size+, +alive+, +running+, +waiting+ as things are; +done+, +failed+, +cancelled+,
    #   +stolen+ (from one worker's queue to another's), +retried+, +died+ since the beginning; +pids+
    def stats
      own.stats
    end

    # @return [String]
    def inspect
      return "#<#{self.class} of #{size}, of process #{@pid}>" unless @pid == ::Process.pid

      running, waiting = @crew.stats.values_at(:running, :waiting)
      "#<#{self.class} of #{size}, #{@crew.closed? ? 'stopped' : "#{running} running, #{waiting} waiting"}>"
    end
    alias to_s inspect

    private

    # Loads Etc here: not every program that uses fibers wants its constant.
    def processors
      require 'etc'
      Etc.nprocessors
    end

    def check(name, value, good, wanted)
      raise ArgumentError, "#{name} must be #{wanted}, got #{value.inspect}" unless good
    end

    def check_numbers(size, fibers, retries, grace)
      check('size', size, size.is_a?(Integer) && size.positive?, 'a positive Integer')
      check('fibers', fibers, fibers.is_a?(Integer) && fibers.between?(1, 10_000), 'an Integer from 1 to 10000')
      check('retries', retries, retries.is_a?(Integer) && retries >= 0, 'an Integer, 0 or more')
      check('grace', grace, grace.is_a?(Numeric) && grace.real? && grace >= 0, 'seconds, 0 or more')
    end

    def check_tasks(tasks)
      tasks.each { |name, task| check("task #{name}", task, task.respond_to?(:call), 'something to call') }
    end

    def warm_up
      return ::Process.warmup if ::Process.respond_to?(:warmup)

      ::GC.respond_to?(:compact) ? ::GC.compact : ::GC.start
    rescue ::NotImplementedError
      ::GC.start
    end

    def begin_crew(fibers, grace, share)
      tasks = @tasks
      parent = @pid
      crew = Crew.new(@size, fibers: fibers, grace: grace) do |socket, claims|
        Worker.new(socket, claims, fibers: fibers, tasks: tasks, share: share).run(parent)
      end
      @fiber = owner.spin(:process_pool) { crew.run }
      crew.wait_until_begun
      begun = crew
    ensure
      end_fiber unless begun
    end

    # A fiber that is not ours may never come to its end.
    def owner
      fiber = ::Fiber.current
      fiber.main? || fiber.__spun? ? fiber : ::Thread.current.main_fiber
    end

    def end_fiber
      CancelScope.shield do
        @fiber&.stop
        @fiber&.await
      end
    end

    def own
      return @crew if @pid == ::Process.pid

      raise Error, "this pool belongs to process #{@pid}: a forked process, a worker for instance, has to make its own"
    end

    def stream(items, task, options, ahead: nil)
      raise ArgumentError, "items must respond to each, got #{items.inspect}" unless items.respond_to?(:each)

      call = Call.from(@tasks, task)
      Stream.new(own, ahead: ahead) do |item, over|
        Task.new(call, call.dump([item], options), retries: @retries, &over)
      end
    end

    def finish_in(timeout)
      return true if timeout.nil?

      CancelScope.move_on_after(timeout, false) do
        @fiber.await
        true
      end
    end
  end
end

require 'polyphony/core/process_pool/frames'
require 'polyphony/core/process_pool/failure'
require 'polyphony/core/process_pool/call'
require 'polyphony/core/process_pool/task'
require 'polyphony/core/process_pool/child'
require 'polyphony/core/process_pool/lane'
require 'polyphony/core/process_pool/crew'
require 'polyphony/core/process_pool/job'
require 'polyphony/core/process_pool/worker'
require 'polyphony/core/process_pool/stream'

class Polyphony::ProcessPool
  private_constant :Frames, :Failure, :Call, :Task, :Cast, :Child, :Lane, :Crew, :Job, :Worker, :Stream
end
