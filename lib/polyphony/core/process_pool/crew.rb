# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # The workers of a pool, and who does what. Fibers of any thread bring tasks; the sockets are served by fibers of the
    # thread that made the pool, below the one that runs #run.
    #
    # Each lane has a queue. A worker has at most +fibers+ tasks that run and PREFETCH that it may begin without asking.
    # A lane that could have more takes from its own queue, then half of the longest one; if all are empty and its
    # worker is idle, half of what another worker has and has not begun.
    # @api private
    class Crew
      # How many tasks a worker has besides those it runs. They can be taken back as long as it has not begun.
      PREFETCH = 4
      # Seconds before a worker is replaced that has died without having done anything.
      PAUSES = { from: 0.05, to: 5 }.freeze
      private_constant :PAUSES

      # @return [Integer] how many tasks keep all workers busy
      attr_reader :fill

      # @param size [Integer] how many workers
      # @param fibers [Integer] how many tasks each runs at a time
      # @param grace [Numeric] seconds that a cancelled task has
      # @yield [UNIXSocket, Claims] in a worker
      def initialize(size, fibers:, grace:, &work)
        @slots = fibers + PREFETCH
        @fill = size * @slots
        @lanes = Array.new(size) { Lane.new(@slots, fibers) }
        @fibers = fibers
        @grace = grace
        @work = work
        @lock = ::Thread::Mutex.new
        @orders = Queue.new # for the fiber that runs #run
        @begun = Queue.new.__for_ourselves
        @leaving = Queue.new # closed when workers are not replaced any more
        @unfinished = {}.compare_by_identity
        @doomed = []
        @posts = size
        @counts = Hash.new(0)
      end

      # --- for everybody -----------------------------------------------------------------------------

      # Has a task done.
      # @raise [Stopped]
      def submit(task)
        @lock.synchronize do
          raise Stopped, 'this process pool has been stopped' if @closed

          @unfinished[task] = true
          lane = @lanes.min_by { |one| [one.child ? 0 : 1, one.load] }
          lane.push(task)
          feed(lane)
        end
      end

      # Nobody wants it any more: it does not begin, or is ended.
      def cancel(task)
        CancelScope.shield do
          @lock.synchronize { drop(task, :cancelled) unless task.over? }
          task.finish(Frames::ENDED, nil)
        end
      end

      # Lets a task report more.
      def grant(task, count)
        @lock.synchronize do
          next unless task.lane&.aboard&.[](task.slot).equal?(task)

          task.lane.child.post(Frames.build(Frames::ROOM, task.slot, [count].pack('L')))
        end
      end

      # New tasks are not taken; it ends when all have been done.
      def close
        @lock.synchronize { @closed = true }
        @orders << :look
      end

      # Ends all tasks, and the workers.
      def abandon
        @orders << :abandon
      end

      # @return [Boolean] whether there are tasks that have not ended
      def busy?
        !@unfinished.empty?
      end

      # @return [Boolean] whether new tasks are refused
      def closed?
        @closed || false
      end

      # @return [Hash{Symbol => Object}]
      def stats
        @lock.synchronize do
          manned = @lanes.select(&:child)
          counted = %i[done failed cancelled stolen retried died].to_h { |name| [name, @counts[name]] }
          { size: @lanes.size, alive: manned.size, running: manned.sum(&:running),
            waiting: @lanes.sum(&:load) - manned.sum(&:running), **counted, pids: manned.map { |lane| lane.child.pid } }
        end
      end

      # Waits until all workers have been forked.
      # @raise [SystemCallError] if one could not be
      def wait_until_begun
        error = @begun.shift
        raise error if error
      end

      # --- in the fiber of the pool ------------------------------------------------------------------

      # Returns when the pool has been closed and everything is done. What ends it sooner ends all tasks, unless it is to
      # end gracefully.
      def run
        be_free_of_limits
        Roster.enter(self, :process_pools)
        return unless begin_all

        mind until finished?
      ensure
        CancelScope.shield { wind_up }
        Roster.leave(self)
      end

      private

      # It belongs to the fiber that made it, not to a block that this one was in.
      def be_free_of_limits
        Polyphony.__drop_limits__
        ::Fiber.current.__deadline = nil
      end

      def begin_all
        children = []
        @lanes.each { children << recruit }
        @lanes.zip(children) { |lane, child| man(lane, child) }
        @begun << nil
      rescue ::SystemCallError, ::NotImplementedError => e
        @posts = children.size
        @lanes.first(@posts).zip(children) { |lane, child| man(lane, child) }
        @begun << e
        nil
      end

      def man(lane, child)
        @lock.synchronize { lane.man(child) }
        spin(:worker) { keep(lane, child) }
      end

      def recruit
        Child.new(@slots, @lock, &@work)
      end

      def finished?
        @closed && @unfinished.empty?
      end

      # Waits until there is something to do, and does it.
      def mind
        due = @doomed.first&.first
        order = @orders.shift(timeout: due && [due - Clock.now, 0].max)
        case order
        when :abandon then end_all
        when Array    then @doomed << order
        end
        end_overdue
      end

      def end_overdue
        while @doomed.any? && @doomed.first.first <= Clock.now
          _, child, lane, task = @doomed.shift
          @lock.synchronize { child.signal(:KILL) if lane.child.equal?(child) && (!task || lane.aboard.value?(task)) }
        end
      end

      def end_all
        tasks = @lock.synchronize do
          @closed = true
          @unfinished.keys.each { |task| drop(task, :cancelled) }
        end
        tasks.each { |task| task.finish(nil, Stopped.new("the process pool was stopped before the end of #{task}")) }
      end

      def wind_up
        close if ::Fiber.current.graceful_shutdown?
        mind while @closed && ::Fiber.current.graceful_shutdown? && !finished?
        end_all
        @leaving.close
        @lock.synchronize { dismiss_all }
        mind until @posts.zero?
      end

      def dismiss_all
        @lanes.each do |lane|
          next unless lane.child

          lane.child.dismiss
          @orders << [Clock.now + @grace, lane.child, lane, nil]
        end
      end

      # --- a fiber for each lane ---------------------------------------------------------------------

      # Keeps a worker running.
      def keep(lane, child)
        failures = 0
        while child
          child.attend { |kind, slot, payload| hear(lane, child, kind, slot, payload) }
          failures = lose(lane, child) || child.useful ? 0 : failures + 1
          child = successor(lane, failures)
        end
      ensure
        @posts -= 1
        @orders << :look
      end

      def hear(lane, child, kind, slot, payload)
        if kind == Frames::PROGRESS
          lane.aboard[slot]&.report(payload)
        else
          child.useful = true
          settle(lane, slot, kind, payload)
        end
      end

      def settle(lane, slot, kind, payload)
        task = @lock.synchronize do
          left = lane.leave(slot)
          left = nil unless left && @unfinished.delete(left)
          @counts[kind == Frames::DONE ? :done : :failed] += 1 if left
          feed(lane)
          left
        end
        task&.finish(kind, payload)
        @orders << :look if @closed
      end

      # What it had begun is tried again, or reported; what it had not is for the others.
      # @return [Boolean] whether it had begun anything
      def lose(lane, child)
        begun = died = nil
        @lock.synchronize do
          begun, waiting = lane.unman.partition(&:last).map { |pairs| pairs.map(&:first) }
          @counts[:died] += 1 unless @leaving.closed?
          again, died = begun.select { |task| @unfinished.key?(task) }.partition { |task| again?(task) }
          died.each { |task| @unfinished.delete(task) }
          @counts[:failed] += died.size
          lane.unshift([*again, *waiting])
          @lanes.each { |one| feed(one) }
        end
        died.each { |task| task.finish(nil, WorkerDied.new(child.pid, child.status, task.to_s)) }
        @orders << :look
        begun.any?
      end

      def again?(task)
        return false unless task.retries.positive?

        task.retries -= 1
        @counts[:retried] += 1
      end

      # At once, unless it would be in vain.
      # @return [Child, nil] nil when workers are not replaced any more
      def successor(lane, failures)
        loop do
          rest(failures) if failures.positive?
          return if @leaving.closed?

          child = recruit_or_warn or next failures += 1
          return child.tap { @lock.synchronize { take_over(lane, child) } }
        end
      end

      def rest(failures)
        @leaving.shift(timeout: Backoff.from(PAUSES).delay(failures - 1))
      rescue ClosedQueueError
        nil # it is over
      end

      def recruit_or_warn
        recruit
      rescue ::SystemCallError => e
        warn "a worker of a process pool cannot be replaced yet: #{e.message}"
      end

      def take_over(lane, child)
        lane.man(child)
        feed(lane)
      end

      # --- with the lock -----------------------------------------------------------------------------

      def feed(lane)
        while lane.room? && (task = lane.shift || steal(lane)) do lane.board(task) end
      end

      # @return [Task, nil]
      def steal(lane)
        stolen = half_of_longest || (half_of_surplus if lane.aboard.size < @fibers) or return
        @counts[:stolen] += stolen.size
        stolen.each { |task| lane.push(task) }
        lane.shift
      end

      # Those that have waited longest: they are the next to begin.
      def half_of_longest
        victim = @lanes.max_by { |lane| lane.queue.size }
        count = victim.queue.size
        Array.new((count + 1) / 2) { victim.shift } if count.positive?
      end

      def half_of_surplus
        victim = @lanes.max_by(&:surplus)
        stolen = victim.surplus.positive? ? victim.recall_last((victim.surplus + 1) / 2) : []
        stolen unless stolen.empty?
      end

      def drop(task, counter)
        return unless @unfinished.delete(task)

        @counts[counter] += 1
        lane = task.lane
        return if lane.nil? || lane.queue.delete(task) || !lane.aboard[task.slot].equal?(task)

        @orders << [Clock.now + @grace, lane.child, lane, task] if !lane.recall(task) && lane.cancel(task)
      end
    end
  end
end
