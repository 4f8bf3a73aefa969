# frozen_string_literal: true

require 'stringio'

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

    # Reads a line.
    # @param sep [String] what ends it
    # @return [String, nil] with the separator; nil at EOF
    def gets(sep = $/)
      take { |text| (index = text.index(sep)) && index + sep.bytesize }
    end

    # @return [String, nil] one character; nil at EOF
    def getc
      take { |text| (char = text[0]) && char.valid_encoding? && char.bytesize }
    end

    # @return [Integer, nil] one byte; nil at EOF
    def getbyte
      take { |text| 1 unless text.empty? }&.getbyte(0)
    end

    # Writes each on a line of its own, all in one go. As IO#puts.
    # @return [nil]
    def puts(*lines)
      text = StringIO.new
      text.puts(*lines)
      write(text.string)
      nil
    end

    # Waits, like readpartial: the names are those of IO, so that a pipe can stand in for one.
    def read_nonblock(length, buffer = +'', **)
      readpartial(length, buffer)
    end

    # Waits until all is written.
    # @return [Integer] bytes written
    def write_nonblock(buffer, **)
      write(buffer)
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

    # @return [Symbol] which operation of the backend reads from it
    def __read_method__
      :backend_read
    end

    # @return [Symbol] which operation of the backend writes to it
    def __write_method__
      :backend_write
    end

    private

    # Reads until the block says how many bytes are wanted of the text so far (as UTF-8), or until
    # EOF. What is over, or all when the wait is ended, goes back and comes first in the next read.
    def take
      text = +''
      until (size = yield text.force_encoding(Encoding::UTF_8))
        chunk = readpartial(8192, +'', 0, false) or break
        text << chunk.force_encoding(Encoding::UTF_8)
      end
      size ? text.byteslice(0, size) : (text unless text.empty?)
    ensure
      rest = size ? text.byteslice(size..) : (chunk ? text : '')
      Polyphony.__put_back__(self, rest) unless rest.nil? || rest.empty?
    end
  end
end
