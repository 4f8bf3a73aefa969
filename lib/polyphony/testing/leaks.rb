# frozen_string_literal: true

module Polyphony
  module Testing
    # What a test may not leave behind: fibers, operations in flight, timers, descriptors, and errors that nobody waited for. Made
    # before it, asked after it, in the same fiber.
    # @example
    #   leaks = Polyphony::Testing::Leaks.new
    #   client.call
    #   leaks.check
    class Leaks
      # Seconds that descriptors have, of threads that are about to end for instance.
      LATE = 2.0
      LOOK = 0.01
      SOON = 10
      # Of fibers that can run.
      TURNS = 100
      FD_FOLDER = File.directory?('/proc/self/fd') ? '/proc/self/fd' : '/dev/fd'
      private_constant :LATE, :LOOK, :SOON, :TURNS, :FD_FOLDER

      # Something was left behind.
      class Left < StandardError
        # @return [Array<String>] what
        attr_reader :found

        # @!visibility private
        def initialize(found)
          @found = found
          super("left behind:\n  #{found.join("\n  ")}\n")
        end
      end

      # @param ignore [Regexp, nil] descriptors whose file matches are not looked at
      def initialize(ignore: nil)
        @ignore = ignore
        @backend = ::Thread.current.backend # its own descriptors are not the test's
        @children = Fiber.current.children
        @timers = @backend.stats[:pending_timers]
        @operations = @backend.stats[:pending_ops]
        @nothing_told = Fiber.current.monitor_mailbox.empty?
        @descriptors = descriptors
        @workers = workers
      end

      # @return [Array<String>] what is left, in words
      def found
        errors + unread_errors + fibers + operations + timers + new_descriptors
      end

      # @return [nil]
      # @raise [Left]
      def check
        left = found
        raise Left, left unless left.empty?
      end

      private

      # Who can run may be about to end, or to fail; where the order is drawn by lot, it may have had no turn yet. An error is on its way
      # to whoever spun the fiber.
      def errors
        heard = []
        TURNS.times do
          snooze
          break unless runnable?(Fiber.current.children - @children)
        rescue ::Exception => e # rubocop:disable Lint/RescueException -- whatever it is, it is reported
          heard << unheard(e)
        end
        heard
      end

      # Any of these, or below them.
      def runnable?(fibers)
        fibers = fibers.flat_map(&:children) until fibers.empty? || fibers.any? { |fiber| fiber.state == :runnable }
        fibers.any?
      end

      # Those of monitored fibers are in the mailbox for that, and would be there in the next test.
      def unread_errors
        return [] unless @nothing_told

        Fiber.current.monitor_mailbox.shift_all.grep(Array).map(&:last).grep(::Exception).map { |error| unheard(error) }
      end

      def unheard(error)
        "error that nobody waited for: #{error.class}: #{error.message}#{" (#{error.backtrace.first})" if error.backtrace}"
      end

      def fibers
        (Fiber.current.children - @children).map { |fiber| "fiber #{fiber.inspect}" }
      end

      def operations
        count(:pending_ops, @operations, 'operation', 'in flight')
      end

      # Of the fibers that are left there are some, too: these are not told twice. The limit within a generator that nobody goes on with
      # stays until it strikes; those that do so soon have a moment.
      def timers
        return [] unless fibers.empty?

        SOON.times { more(:pending_timers, @timers).positive? ? Polyphony.backend_sleep(LOOK) : break }
        count(:pending_timers, @timers, 'timer', 'pending')
      end

      def count(name, before, what, how)
        more = more(name, before)
        more.positive? ? ["#{more} #{what}#{'s' if more > 1} #{how}"] : []
      end

      def more(name, before)
        @backend.stats[name] - before
      end

      # An IO that nobody refers to any more is closed by the GC, which is then due first. A thread that has just been joined closes
      # those of its loop at its very end.
      def new_descriptors
        return [] if fresh.empty? || workers > @workers

        GC.start
        (LATE / LOOK).to_i.times { fresh.empty? ? break : KernelExtensions::STOCK_SLEEP.bind_call(self, LOOK) }
        fresh.map { |fd, target| "descriptor #{fd}: #{target}" }
      end

      # A thread of the blocking pool may have taken the place of one that had nothing to do, or was counted before it opened its loop.
      def fresh
        found = descriptors.to_a - @descriptors.to_a
        workers.positive? ? found.reject { |_, target| target.start_with?('anon_inode:[event', 'anon_inode:[io_uring') } : found
      end

      # The threads of the blocking pool begin with the first that needs them, and stay for a while, with their descriptors.
      def workers
        Polyphony.blocking_pool.stats[:threads]
      end

      # @return [Hash{Integer => String}] descriptor => what it stands for
      def descriptors
        Dir.children(FD_FOLDER).to_h { |fd| [Integer(fd), describe(fd)] }.compact
      end

      # nil for the descriptor with which the folder itself was read, and for what is ignored.
      def describe(fd)
        target = File.readlink("#{FD_FOLDER}/#{fd}")
        target unless @ignore&.match?(target)
      rescue Errno::ENOENT
        nil
      rescue Errno::EINVAL
        '(unknown)' # not a link outside Linux
      end
    end

    class << self
      # Runs the block, which may leave nothing behind.
      # @param ignore [Regexp, nil] descriptors whose file matches are not looked at
      # @return [Object] what the block returns
      # @raise [Leaks::Left]
      # @example
      #   Polyphony::Testing.no_leaks { client.call }
      def no_leaks(ignore: nil)
        raise ArgumentError, 'no_leaks needs a block to run' unless block_given?

        leaks = Leaks.new(ignore: ignore)
        yield.tap { leaks.check }
      end
    end
  end
end
