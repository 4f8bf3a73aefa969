# frozen_string_literal: true

module Polyphony
  # A scheduler as an object: fibers of its own, which only run while somebody runs it. Each gives the others their turn with
  # resched. #run goes round until all are done, #each does one step at a time.
  #
  # @example
  #   sched = Polyphony::Sched.new
  #   sched.push { print 1; sched.resched; print 2 }
  #   sched.push { print 3; sched.resched; print 4 }
  #   sched.run                                       # 1324
  class Sched
    include ::Enumerable

    # @!method resched
    #   Lets the other fibers of this scheduler have their turn. If nobody runs it any more, waits until somebody does.
    #   @return [self]
    #   @raise [FiberError] in a fiber that was not pushed to it

    # @!method to_proc
    #   A block that does a resched: <tt>1000.times(&sched)</tt>. It costs less than one of Ruby's with the call in it.
    #   @return [Proc]

    # @return [Integer] how many fibers are not done
    attr_reader :size

    # A fiber of a scheduler: one that has not begun, or that runs or waits for its turn.
    Task = Struct.new(:tag, :block, :turn) do
      # Lets it run.
      def go(sched, owner)
        return turn.signal if turn

        owner.spin(tag) { sched.__send__(:work, self) }
        self.turn = Event.new
      end

      def wait
        turn.await
      end
    end
    private_constant :Task

    # Its fibers are children of the running one, and end with it at the latest.
    def initialize
      @owner = ::Fiber.current
      @thread = ::Thread.current
      @size = 0
      @ready = []                      # those that wait for their turn
      @tasks = {}.compare_by_identity  # by their fibers, those that have begun
      @failures = []
      @news = Event.new                # a task is done, at the end of its step, or pushed by another thread
    end

    # Adds a fiber, at the end. It does not begin before the scheduler is run. Any thread may push.
    # @param tag [Object] the fiber's
    # @yield in the new fiber
    # @return [self]
    def push(tag = nil, &block)
      raise ::ArgumentError, 'push needs a block to run in a fiber' unless block

      @size += 1
      @ready << Task.new(tag, block)
      if @thread != ::Thread.current
        @news.signal
      elsif running?
        release
      end
      self
    end

    # Runs all fibers, in turn, until they are done; those that wait for something else let the others go on. So do fibers that are
    # not of this scheduler. If the wait is ended, or a fiber fails, the others stop at their next resched, and another run goes on
    # with them.
    # @return [self]
    # @raise [Exception] what one of the fibers raises; MultipleErrors if several do before they stop
    # @raise [FiberError] if another fiber runs it already
    def run
      alone do
        self.running = true
        @step = nil
        while @size.positive? && @failures.empty?
          release
          @news.await
        end
      ensure
        self.running = false
      end
    end

    # Runs one fiber a step, until it calls resched or is done. If it waits for something else, so does the step, while fibers that are
    # not of this scheduler go on.
    # @yield [Integer] after each step, how many fibers are not done
    # @return [self]
    # @raise [Exception] what the fiber raises; another each goes on with those that are left
    # @raise [FiberError] if another fiber runs it already
    def each
      return to_enum unless block_given?

      while @size.positive?
        alone { step }
        yield @size
      end
      self
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{@size} fiber#{'s' unless @size == 1}>"
    end

    private

    # One that runs it, in the thread it belongs to.
    def alone
      raise ::FiberError, "#{inspect} is being run by #{@runner.inspect}" if @runner
      if @thread != ::Thread.current
        raise ::ThreadError, "#{inspect} belongs to #{@thread.inspect}, and is run there; make another for #{::Thread.current.inspect}"
      end

      begin
        @runner = ::Fiber.current
        yield
      ensure
        @runner = nil
      end
      report
    end

    def release
      proceed(@ready.shift) until @ready.empty?
    end

    # A step that was given up while its fiber waited is finished first. There may be no fiber for a next one, while all wait for
    # something else: they have been left by a run.
    def step
      @news.await while @ready.empty? && !@step && @size.positive?
      proceed(@step = @ready.shift) unless @step || @ready.empty?
      @news.await while @step
    end

    # There may be no memory for one more fiber at the moment.
    def proceed(task)
      task.go(self, @owner.dead? ? ::Fiber.current : @owner)
    rescue ::FiberError
      @step = nil
      @ready.unshift(task)
      raise
    end

    def work(task)
      @tasks[enlist] = task
      task.block.call(self)
    rescue MoveOn, Terminate, Restart
      raise # it was stopped
    rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised where the scheduler is run
      @failures << e
      self.running = false
      nil
    ensure
      @tasks.delete(::Fiber.current)
      @size -= 1
      hand_back(task)
    end

    # For resched, when it is not being run to the end.
    def pause
      task = @tasks.fetch(::Fiber.current)
      @ready << task
      hand_back(task)
      task.wait
    rescue ::Exception # rubocop:disable Lint/RescueException -- raised again
      @ready.delete_if { |waiting| waiting.equal?(task) }
      raise
    end

    def hand_back(task)
      @step = nil if task.equal?(@step)
      @news.signal
    end

    # @return [self]
    def report
      return self if @failures.empty?

      failures, @failures = @failures, []
      raise failures.one? ? failures.first : MultipleErrors.new(failures)
    end
  end
end
