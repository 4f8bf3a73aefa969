# frozen_string_literal: true

module Polyphony
  # Runs blocks in threads, for what would stop all fibers: long computations in C, libraries that
  # know nothing of fibers. The threads are started when there is something to do. They do not keep
  # the program from ending. A forked child starts its own, and does nothing of what its parent's
  # have to do.
  #
  # @example
  #   pool = Polyphony::ThreadPool.new(2)
  #   pool.process { Zlib.deflate(data, 9) }     # other fibers run meanwhile
  #   Polyphony::ThreadPool.process { ... }      # the same in a pool that is always there
  class ThreadPool
    include Pooled

    @lock = ::Thread::Mutex.new

    class << self
      # Runs the block in a pool that all share, with as many threads as there are processors.
      # @see #process
      def process(&block)
        pool = @lock.synchronize { @default ||= new }
        pool.process(&block)
      end

      # Stops that pool. The next call of process makes another.
      # @return [nil]
      def reset
        pool = @lock.synchronize { @default.tap { @default = nil } }
        pool&.stop
        nil
      end
    end

    # @return [Integer] how many threads
    attr_reader :size

    # @param size [Integer] how many threads; as many as there are processors
    def initialize(size = processors)
      unless size.is_a?(Integer) && size.positive?
        raise ArgumentError, "size must be a positive Integer, got #{size.inspect}"
      end

      @size = size
      @crew = PerProcess.new { Crew.new(size).tap { |crew| crew.stop if @stopped } }
    end

    # @!method process
    #   Runs the block in a thread and waits for it while other fibers run. If the wait is ended, a
    #   block that has not begun is not run; one that has begun goes on, and nobody hears of what it
    #   returns or raises: a thread cannot be stopped safely. Called in a thread of this same pool, it
    #   just calls the block.
    #   @return [Object] what the block returns
    #   @raise [Exception] what the block raises; the backtrace goes on with that of the caller
    #   @raise [ThreadError] after stop

    # Runs the block in a thread and does not wait for it. What it raises is raised in the current
    # fiber, at whatever it is waiting for then, as the error of a child would be; in the main fiber
    # of the program if this one has ended.
    # @return [self]
    # @raise [ThreadError] after stop
    def cast(&block)
      raise ArgumentError, 'cast needs a block to run' unless block

      fiber = ::Fiber.current
      # A fiber that is not ours may be resumed by anyone, and is no place to raise in.
      fiber = ::Thread.current.main_fiber unless fiber.main? || fiber.__spun?
      @crew.value.push(Crew::Cast.new(block, fiber))
      self
    end

    # @return [String]
    def inspect
      state = busy? ? 'busy' : 'idle'
      "#<#{self.class} of #{size}, #{@stopped ? 'stopped' : state}>"
    end

    private

    # Loads Etc here: not every program that uses fibers wants its constant.
    def processors
      require 'etc'
      Etc.nprocessors
    end
  end
end
