# frozen_string_literal: true

module Polyphony
  # What a test may not leave behind. Made before it, asked after it.
  class Leaks
    FD_FOLDER = File.directory?('/proc/self/fd') ? '/proc/self/fd' : '/dev/fd'

    def initialize
      Thread.current.backend # its own descriptors are not the test's
      @descriptors = descriptors
      @workers = workers
    end

    # Fails +test+ with a list of what is left.
    def check(test)
      left = fibers + operations + new_descriptors
      test.assert_empty left, "left behind by this test:\n  #{left.join("\n  ")}\n"
    end

    private

    def fibers
      Fiber.current.children.map { |fiber| "fiber #{fiber.inspect}" }
    end

    def operations
      pending = Thread.current.backend.stats[:pending_ops]
      pending.zero? ? [] : ["#{pending} operations in flight"]
    end

    # An IO that nobody refers to any more is closed by the GC, which is then due first.
    def new_descriptors
      return [] if (descriptors.to_a - @descriptors.to_a).empty? || workers > @workers

      GC.start
      (descriptors.to_a - @descriptors.to_a).map { |fd, target| "descriptor #{fd}: #{target}" }
    end

    # The threads that compress for fibers, since Ruby 3.4, begin with the first that does, and stay with their
    # descriptors.
    def workers
      crew = Scheduler.const_get(:POOL).instance_variable_get(:@crew).value
      crew.instance_variable_get(:@threads).size
    end

    # @return [Hash{Integer => String}] descriptor => what it stands for
    def descriptors
      Dir.children(FD_FOLDER).to_h { |fd| [Integer(fd), describe(fd)] }.compact
    end

    # nil for the descriptor with which the folder itself was read, and for a sanitizer's report.
    def describe(fd)
      target = File.readlink("#{FD_FOLDER}/#{fd}")
      target unless target.include?('/tmp/sanitize/report.')
    rescue Errno::ENOENT
      nil
    rescue Errno::EINVAL
      '(unknown)' # not a link outside Linux
    end
  end
end
