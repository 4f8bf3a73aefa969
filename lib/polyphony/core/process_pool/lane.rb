# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # The place of a worker: its queue, which stays when the process is replaced, and what the process has. Only with the
    # lock of the crew.
    # @api private
    class Lane
      # @return [Child, nil] nil while it is being replaced
      attr_reader :child
      # @return [Hash{Task => true}] what waits here
      attr_reader :queue
      # @return [Hash{Integer => Task}] what the worker has, by slot
      attr_reader :aboard

      # @param slots [Integer] how many tasks a worker has at most
      # @param fibers [Integer] how many of them it runs at a time
      def initialize(slots, fibers)
        @slots = slots
        @fibers = fibers
        @queue = {}.compare_by_identity
        @aboard = {}
        @frames = {}
        @free = []
      end

      # @param child [Child] a fresh one
      def man(child)
        @child = child
        @free = (0...@slots).to_a.reverse
      end

      # @return [Array<Array(Task, Boolean)>] what the worker had, and whether it had begun
      def unman
        left = @aboard.map { |slot, task| [task, begun?(slot)] }
        @aboard.clear
        @frames.clear
        @free.clear
        @child = nil
        left
      end

      # @return [Boolean] whether the worker can have one more
      def room?
        !@free.empty?
      end

      # @return [Integer] how many tasks it has that it cannot run now
      def surplus
        @aboard.size - @fibers
      end

      # @return [Integer] how much it has to do
      def load
        @queue.size + @aboard.size
      end

      # To the end of the queue.
      def push(task)
        task.lane = self
        @queue[task] = true
      end

      # To the head of the queue.
      def unshift(tasks)
        later = @queue.keys
        @queue.clear
        [*tasks, *later].each { |task| push(task) }
      end

      # @return [Task, nil] the first of the queue
      def shift
        @queue.shift&.first
      end

      # Gives the worker a task.
      def board(task)
        slot = @free.pop
        task.lane = self
        task.slot = slot
        @aboard[slot] = task
        @child.claims[slot] = Frames::OFFERED
        @frames[slot] = Frames.build(Frames::RUN, slot, task.payload, flags: task.flags)
        @child.post(@frames[slot])
      end

      # Takes back what the worker has not begun.
      # @return [Boolean] whether it had not
      def recall(task)
        slot = task.slot
        return false unless @child.claims.change(slot, Frames::OFFERED, Frames::WITHDRAWN)

        @aboard.delete(slot)
        free(slot) if @child.take_back(@frames.delete(slot))
        true
      end

      # @param count [Integer]
      # @return [Array<Task>] at most that many, which have not begun; those that came last
      def recall_last(count)
        @aboard.values.reverse.lazy.select { |task| recall(task) }.first(count).reverse
      end

      # Tells the worker to end a task.
      # @return [Boolean] whether it has begun, and was not told before
      def cancel(task)
        return false unless @child.claims.change(task.slot, Frames::TAKEN, Frames::CANCELLED)

        @child.signal(:URG)
        true
      end

      # The worker is done with what was in the slot.
      # @return [Task, nil] nil if that was taken back
      def leave(slot)
        free(slot)
        @frames.delete(slot)
        @aboard.delete(slot)
      end

      # @return [Integer] how many tasks have begun
      def running
        @aboard.count { |slot, _| begun?(slot) }
      end

      private

      def begun?(slot)
        @child.claims[slot] != Frames::OFFERED
      end

      def free(slot)
        @child.claims[slot] = Frames::FREE
        @free.push(slot)
      end
    end
  end
end
