# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # Does the same with every item of something, many at a time, and hands the results out in order. Items are
    # read when there are workers for them.
    # @api private
    class Stream
      # @param crew [Crew]
      # @param ahead [Integer, nil] how many results may wait for an earlier one, or for whoever takes them
      # @yield [item, over] makes a task, which calls +over+ when it is over
      def initialize(crew, ahead: nil, &make)
        @crew = crew
        @make = make
        @places = Semaphore.new(crew.fill + 1)
        @tasks = {}.compare_by_identity
        @order = Queue.new(ahead).__for_ourselves
      end

      # @param items [#each]
      # @yield [Object] each result
      # @raise [Exception] what a task raised, or the items
      def each(items)
        feeder = ::Fiber.current.spin(:map) { feed(items) }
        @order.each { |task| yield value(task) }
      ensure
        feeder&.stop
        CancelScope.shield do
          feeder&.await
          @tasks.each_key { |task| @crew.cancel(task) }
        end
      end

      private

      # An error comes when the results before it have been taken.
      def feed(items)
        items.each { |item| add(item) }
      rescue BaseException
        raise
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised in the caller
        @order << e
      ensure
        @order.close
      end

      def add(item)
        @places.acquire
        task = @make.call(item, @places.method(:release))
        @tasks[task] = true
        @crew.submit(task)
        @order << task
      end

      def value(task)
        raise task if task.is_a?(::Exception)

        task.value(@crew).tap { @tasks.delete(task) }
      end
    end
  end
end
