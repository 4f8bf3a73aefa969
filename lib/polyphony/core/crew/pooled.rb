# frozen_string_literal: true

module Polyphony
  # What pools of threads have in common. Their crew is in +@crew+, a PerProcess.
  # @api private
  module Pooled
    # @!visibility private
    def process(&block)
      raise ArgumentError, 'process needs a block to run' unless block

      crew = @crew.value
      crew.member? ? yield : wait_for(Crew::Job.new(block), crew)
    end

    # Like process, for a block that works on what belongs to the running fiber: does not return before it is
    # done. If the wait is ended, a block that has begun is woken from what it waits for, and the exception comes
    # at the next switchpoint.
    # @api private
    # @return [Object] what the block returns
    def __complete(&block)
      crew = @crew.value
      return yield if crew.member?

      job = Crew::Job.new(block)
      late = wait_to_the_end(job, crew)
      ::Fiber.current.schedule(late) if late
      job.outcome
    end

    # @return [Boolean] whether there are blocks that run or wait to be run
    def busy?
      @crew.value.busy?
    end

    # @return [Hash{Symbol => Integer}] +:threads+ there are, +:idle+ and +:busy+ ones, blocks that are +:waiting+ for one, the
    #   +:largest+ number of threads there was, blocks that are +:done+
    def stats
      @crew.value.stats
    end

    # @api private
    def __crew
      @crew.value
    end

    # Waits until all blocks it was given have run, and ends the threads. New ones are not taken.
    # @return [self]
    # @raise [ThreadError] in a thread of this pool
    def stop
      @stopped = true
      @crew.value.stop
      self
    end

    private

    # @return [Exception, nil] what was to end the wait, after the block had begun
    def wait_to_the_end(job, crew)
      given = false
      CancelScope.shield { crew.push(job); given = true }
      job.wait_giving_way
      nil
    rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised again, here or later
      given &&= !crew.withdraw(job)
      raise unless given

      job.hurry
      e
    ensure
      # A thread that is killed has no exception.
      crew.withdraw(job) || job.hurry if given && !job.finished?
    end

    def wait_for(job, crew)
      crew.push(job)
      job.value
    ensure
      crew.withdraw(job) unless job.finished?
    end
  end

  private_constant :Pooled
end
