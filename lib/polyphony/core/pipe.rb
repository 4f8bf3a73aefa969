# frozen_string_literal: true

module Polyphony
  # Both ends of a pipe in one object: what is written to it can be read from it.
  #
  # @example
  #   pipe = Polyphony.pipe
  #   spin { pipe << "hello\n"; pipe.close }
  #   pipe.read  #=> "hello\n"
  class Pipe
    # Raised when a pipe that is closed is written to.
    class ClosedPipeError < RuntimeError
    end

    # @!method initialize
    #   @raise [Errno::EMFILE] if there are no descriptors left

    # @!method fds
    #   @return [Array(Integer, Integer)] descriptors for reading and writing, -1 when closed

    # @!method close
    #   Closes the end for writing. What was written can still be read; the end for reading goes
    #   with the object.
    #   @return [self]
    #   @raise [RuntimeError] the second time

    # @!method closed?
    #   @return [Boolean] whether the end for writing is closed

    # Reads up to +length+ bytes, all until EOF without it.
    # @return [String, nil] nil at EOF when a length was given
    def read(length = nil, buffer = nil, pos = 0)
      result = Polyphony.backend_read(self, buffer, length, true, pos)
      result || (length ? nil : buffer || +'')
    end

    # Reads what is there, waiting for at least one byte.
    # @raise [EOFError] at the end, unless raise_on_eof is false (nil then)
    def readpartial(length, buffer = +'', pos = 0, raise_on_eof = true)
      result = Polyphony.backend_read(self, buffer, length, false, pos)
      raise EOFError, 'end of file reached' if !result && raise_on_eof

      result
    end

    # @return [Integer] bytes written: all of them
    def write(*buffers)
      Polyphony.backend_write(self, *buffers)
    end

    # @return [self]
    def <<(buffer)
      write(buffer)
      self
    end

    # Calls the block with each chunk until EOF.
    # @return [self]
    def read_loop(maxlen = 8192, &block)
      Polyphony.backend_read_loop(self, maxlen, &block)
    end

    # Calls +receiver.method+ with each chunk until EOF.
    # @return [self]
    def feed_loop(receiver, method = :call, &block)
      Polyphony.backend_feed_loop(self, receiver, method, &block)
    end

    # @return [self] when there is something to read, or EOF; nil after the timeout
    def wait_readable(timeout = nil)
      CancelScope.move_on_after(timeout, nil) { Polyphony.backend_wait_io(self, false) }
    end

    # @return [self] when there is room to write; nil after the timeout
    def wait_writable(timeout = nil)
      CancelScope.move_on_after(timeout, nil) { Polyphony.backend_wait_io(self, true) }
    end

    # @return [Integer] bytes moved from +source+ into the pipe without copying
    def splice_from(source, maxlen)
      Polyphony.backend_splice(source, self, maxlen)
    end

    # @return [Integer] bytes duplicated from the pipe +source+ into this one
    def tee_from(source, maxlen)
      Polyphony.backend_tee(source, self, maxlen)
    end
  end
end
