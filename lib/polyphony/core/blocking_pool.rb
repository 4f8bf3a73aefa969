# frozen_string_literal: true

module Polyphony
  # Runs blocks in threads, as many as there are blocks at once: for calls that wait, in libraries that know nothing of
  # fibers. There is no thread before the first block. Threads are kept for the next one; those that were not needed for
  # some time end. They do not keep the program from ending. A forked child begins without threads.
  #
  # One of these is always there: Polyphony.blocking and Polyphony.interruptible use it.
  #
  # @example
  #   Polyphony.blocking { stub.say_hello(request) }        # gRPC; other fibers run meanwhile
  #   Polyphony.blocking_pool.stats                         #=> {:threads=>1, :idle=>1, ...}
  class BlockingPool
    include Pooled

    # Seconds for which a thread that has nothing to do is kept.
    IDLE_TIME = 10

    # @return [Integer, nil] how many threads there may be; nil: any number
    attr_reader :cap
    # @return [Numeric] seconds
    attr_reader :idle_time

    # @param cap [Integer, nil] how many threads there may be; blocks beyond wait for one. nil: any number
    # @param idle_time [Numeric] how many seconds threads are kept that are not needed; they end after one to two times that
    def initialize(cap: nil, idle_time: IDLE_TIME)
      @cap = check_cap(cap)
      @idle_time = check_idle_time(idle_time)
      @crew = PerProcess.new { Crew.new(@cap, @idle_time).tap { |crew| crew.stop if @stopped } }
    end

    # @!method process
    #   Runs the block in a thread and waits for it while other fibers run. If the wait is ended, a block that has not
    #   begun is not run; one that has begun goes on, and nobody hears of what it returns or raises. Called in a thread of
    #   this pool, it just calls the block.
    #   @return [Object] what the block returns
    #   @raise [Exception] what the block raises; the backtrace goes on with that of the caller
    #   @raise [ThreadError] after stop

    # The same, but if the wait is ended, the block is: by a Polyphony::Cancel, where it waits or in the middle of what it does,
    # as Thread#raise would. Returns when the block has ended, its +ensure+ parts included; a block that goes on regardless is waited for.
    # @return [Object] what the block returns
    # @raise [Exception] what the block raises
    # @raise [ThreadError] after stop
    def interruptible(&block)
      raise ArgumentError, 'interruptible needs a block to run' unless block

      crew = @crew.value
      crew.member? ? yield : wait_or_interrupt(Crew::Interruptible.new(block), crew)
    end

    # @param cap [Integer, nil] from now on; threads that are there finish what they do
    def cap=(cap)
      @cap = @crew.value.most = check_cap(cap)
    end

    # @param seconds [Numeric] from now on
    def idle_time=(seconds)
      @idle_time = @crew.value.idle_time = check_idle_time(seconds)
    end

    # @return [String]
    def inspect
      counts = stats
      "#<#{self.class} #{counts[:busy]} of #{counts[:threads]} threads busy, #{counts[:waiting]} waiting#{', stopped' if @stopped}>"
    end

    private

    def wait_or_interrupt(job, crew)
      given = false
      CancelScope.shield { crew.push(job); given = true }
      job.value
    ensure
      crew.withdraw(job) || job.interrupt if given && !job.finished?
    end

    def check_cap(cap)
      return cap if cap.nil? || (cap.is_a?(Integer) && cap.positive?)

      raise ArgumentError, "cap must be a positive Integer, or nil for any number of threads, got #{cap.inspect}"
    end

    def check_idle_time(seconds)
      return seconds if seconds.is_a?(Numeric) && seconds.positive?

      raise ArgumentError, "idle_time must be a positive number of seconds, got #{seconds.inspect}"
    end
  end

  # The pool that all share: what is set there holds for the threads in C, too, which look up names and do what the driver
  # cannot do with files.
  # @api private
  module ForAllThreads
    def cap=(cap)
      super
      Polyphony.__limit_threads(@cap, @idle_time)
    end

    def idle_time=(seconds)
      super
      Polyphony.__limit_threads(@cap, @idle_time)
    end
  end
  private_constant :ForAllThreads

  @blocking_pool = BlockingPool.new.extend(ForAllThreads)

  class << self
    # Its +cap+ and +idle_time+ hold for the threads in C, too: at most +cap+ look up names, and as many work on files.
    # @return [BlockingPool] the one that all share
    attr_reader :blocking_pool

    # Runs a block that blocks, in a thread, and waits for it while other fibers run: the way for libraries that know
    # nothing of fibers.
    # @see BlockingPool#process
    # @return [Object] what the block returns
    def blocking(&block)
      raise ArgumentError, 'blocking needs a block to run' unless block

      @blocking_pool.process(&block)
    end

    # The same; if the fiber is cancelled, the block is interrupted and its end waited for.
    # @see BlockingPool#interruptible
    # @return [Object] what the block returns
    def interruptible(&block)
      @blocking_pool.interruptible(&block)
    end
  end
end
