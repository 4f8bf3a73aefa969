# frozen_string_literal: true

module Polyphony
  # Waiting for several fibers at once.
  module FiberAwait
    # Waits for all fibers. If one ends with an exception, or the wait itself is interrupted, the
    # others are terminated and waited for, and the exception is raised.
    # @param fibers [Array<Fiber>]
    # @return [Array] their results, in order
    # @raise [TypeError] if one of them is not a fiber
    # @raise [FiberError] if one of them is the current fiber
    def await(*fibers)
      fibers = FiberAwait.check(fibers)
      FiberAwait.await_all(fibers)
    end
    alias join await

    # Waits for the first to end; the others go on.
    # @param fibers [Array<Fiber>]
    # @return [Array(Fiber, Object), nil] that fiber and its result; nil without fibers
    # @raise [Exception] what it ended with
    def select(*fibers)
      fibers = FiberAwait.check(fibers)
      return if fibers.empty?

      fiber = fibers.find(&:dead?) || Watch.on(fibers, &:next_ended)
      [fiber, fiber.await]
    end

    # Waits for the first to succeed and stops the others.
    # @param fibers [Array<Fiber>]
    # @return [Object, nil] its result; nil without fibers
    # @raise [Exception] what they ended with, if none succeeds: MultipleErrors for several
    # @example
    #   Fiber.race(spin { sleep 1; :slow }, spin { sleep 0.1; :fast })  #=> :fast
    def race(*fibers)
      FiberAwait.run_race(FiberAwait.check(fibers))
    end

    # Calls the block for every element, each in a fiber of its own.
    # @param enum [Enumerable] taken element by element, as fibers become free
    # @param limit [Integer, nil] how many run at once at most; nil: all
    # @return [Array] what the block returned, in the order of the elements
    # @raise [Exception] what one of them ended with; the others have been ended then
    # @example Three downloads at a time
    #   Fiber.map(urls, limit: 3) { |url| fetch(url) }
    def map(enum, limit: nil, &block)
      raise ArgumentError, 'Fiber.map needs a block to run' unless block
      unless enum.respond_to?(:each_entry)
        raise TypeError, "expected an Enumerable, got #{enum.inspect}"
      end
      unless limit.nil? || (limit.is_a?(Integer) && limit.positive?)
        raise ArgumentError, "limit must be a positive Integer or nil, got #{limit.inspect}"
      end

      FiberAwait.map_all(enum, limit, block)
    end

    class << self
      # @!visibility private
      # Before anything is begun: what ends the others on an error must not end the caller.
      def check(fibers)
        fibers.flatten.each do |fiber|
          raise TypeError, "expected a Fiber, got #{fiber.inspect}" unless fiber.is_a?(Fiber)
          raise FiberError, 'a fiber cannot await itself' if fiber.equal?(Fiber.current)
        end
      end

      # @!visibility private
      # The error of a child is raised here as soon as it fails, whomever we are waiting for. That of
      # another's child is not, so all of them are watched then.
      def await_all(fibers)
        ours = fibers.all? { |fiber| fiber.parent.equal?(Fiber.current) || fiber.dead? }
        Watch.on(fibers.uniq) { |watch| each_end(watch, &:await) } unless ours
        fibers.map(&:await)
      rescue Exception # rubocop:disable Lint/RescueException -- the rest must not be left running
        end_all(fibers)
        raise
      end

      # @!visibility private
      def run_race(fibers)
        winner = Watch.on(fibers) { |watch| first_success(watch) }
        return winner.result if winner

        raise_all(fibers.map(&:result))
      ensure
        end_all(fibers.reject(&:dead?))
      end

      # @!visibility private
      def map_all(enum, limit, users_block)
        fibers = []
        Watch.on([]) do |watch|
          enum.each_entry do |element|
            watch.next_ended.await while limit && watch.pending >= limit
            fibers << Fiber.current.spin { users_block.call(element) }
            watch.add(fibers.last)
          end
          each_end(watch, &:await)
        end
        fibers.map(&:result)
      ensure
        end_all(fibers.reject(&:dead?))
      end

      # @!visibility private
      def first_success(watch)
        each_end(watch) { |fiber| return fiber unless fiber.__failed? }
        nil
      end

      # @!visibility private
      # Raises the only one as it is. An exception that is no StandardError goes before the others: it
      # ends the program, or controls a fiber, and must not be hidden in a list.
      def raise_all(errors)
        return if errors.empty?

        grave = errors.find { |error| !error.is_a?(StandardError) }
        raise grave || (errors.size == 1 ? errors.first : MultipleErrors.new(errors))
      end

      # @!visibility private
      # Their errors have been reported through the first one, or are of the same making. What else
      # comes meanwhile is raised, also if it comes together with the end of a fiber.
      def end_all(fibers)
        fibers.each(&:__end)
        fibers.each do |fiber|
          fiber.await
        rescue Exception => e # rubocop:disable Lint/RescueException
          raise unless fibers.any? { |other| other.__failed? && other.result.equal?(e) }

          retry unless fiber.dead?
        end
      end

      private

      def each_end(watch)
        yield watch.next_ended while watch.pending.positive?
      end
    end
  end

  ::Fiber.extend FiberAwait
end
