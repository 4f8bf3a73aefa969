# frozen_string_literal: true

require 'polyphony/extensions/fifo'
require 'polyphony/extensions/copy_stream'
require 'polyphony/extensions/file_locks'

module Polyphony
  # Stock methods with a shorter way to the backend, or for which the scheduler's is wrong. In C.
  # @!visibility private
  module DirectPaths
    ::IO.prepend self
  end
  private_constant :DirectPaths

  # Closing an IO wakes the fibers that wait on it with IOError. In C.
  module IOEnd
    # @!method flush
    #   @return [IO]
    # @!method fsync
    #   @return [Integer] 0
    # @!method fdatasync
    #   @return [Integer] 0
    # @!method close
    #   @return [nil]
    # @!method close_read
    #   @return [nil]
    # @!method close_write
    #   @return [nil]
    # @!method reopen(other_or_path, mode = nil, **options)
    #   @return [self]
    ::IO.prepend self
  end

  # IO.pipe closes both ends when its block is left; whoever waits on one is woken.
  module PipeBlock
    # @yield [reader, writer]
    # @return [Array(IO, IO), Object] what the block returns
    def pipe(*args, **options)
      return super unless block_given?

      begin
        ends = super(*args, **options, &nil)
        yield ends
      ensure
        ends&.each(&:close)
      end
    end

    ::IO.singleton_class.prepend self
  end

  private_constant :IOEnd, :PipeBlock, :FileLocks, :CopyStream
end
