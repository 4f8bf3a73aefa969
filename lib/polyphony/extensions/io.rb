# frozen_string_literal: true

require 'polyphony/extensions/fifo'
require 'polyphony/extensions/copy_stream'
require 'polyphony/extensions/file_locks'
require 'polyphony/extensions/io_additions'

module Polyphony
  # Stock methods with a shorter way to the backend, or for which the scheduler's is wrong; and two that
  # take more arguments than in stock Ruby. In C.
  module DirectPaths
    # @!method read(length = nil, buffer = nil, buffer_pos = 0)
    #   As stock; with a third argument the bytes go to that place in the buffer, and what stood behind is
    #   dropped.
    #   @param buffer_pos [Integer] -1 appends
    #   @return [String, nil] nil at the end of the file if a positive length is given
    # @!method readpartial(length, buffer = nil, buffer_pos = 0, raise_on_eof = true)
    #   As stock; with more arguments the bytes go to that place in the buffer, and what stood behind is
    #   dropped.
    #   @param buffer_pos [Integer] -1 appends
    #   @param raise_on_eof [Boolean]
    #   @return [String, nil] nil at the end of the file, unless that raises
    #   @raise [EOFError]
    # @!method read_nonblock(length, buffer = nil, exception: true)
    #   @return [String, Symbol, nil]
    # @!method sysread(length, buffer = nil)
    #   @return [String]
    # @!method pread(length, offset, buffer = nil)
    #   @return [String]
    # @!method write(*objects)
    #   @return [Integer] bytes
    # @!method syswrite(object)
    #   @return [Integer] bytes
    # @!method pwrite(object, offset)
    #   @return [Integer] bytes
    ::IO.prepend self
  end

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

  # Descriptors that a backend waits with are refused, like those of Ruby itself: a daemon that closes all there
  # may be must not close these. In C.
  module ReservedDescriptors
    [::IO, ::File].each { |klass| klass.prepend self }
    ::IO.singleton_class.prepend ForIO
  end

  private_constant :DirectPaths, :ReservedDescriptors, :IOEnd, :PipeBlock, :FileLocks, :CopyStream, :IOAdditions, :Compression
end
