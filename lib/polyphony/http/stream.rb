# frozen_string_literal: true

module Polyphony
  module HTTP
    # Bytes in both directions, after HTTP has stepped aside: what an upgrade and a streaming body get. As much
    # of an IO as those who get one expect.
    class Stream
      # @param source [#fill, #write, #close] a Transport, or what stands for it on a stream of HTTP/2
      # @param buffer [String] bytes that came already
      def initialize(source, buffer = String.new(encoding: Encoding::BINARY))
        @source = source
        @buffer = buffer
        @closed = false
      end

      # Waits for bytes and appends them to the buffer.
      # @param buffer [String] binary
      # @param timeout [Numeric, nil] seconds
      # @return [Integer, nil, false] how many came; nil at the end; false when the time is over
      # @raise [ClientGone]
      def fill(buffer, timeout = nil)
        return @source.fill(buffer, timeout) if @buffer.empty?

        count = @buffer.bytesize
        buffer << @buffer
        @buffer.clear
        count
      end

      # @param length [Integer] at most so many bytes, at least one
      # @param into [String, nil] is replaced by them
      # @return [String]
      # @raise [EOFError] at the end
      def readpartial(length, into = nil)
        raise EOFError, 'end of stream' if @buffer.empty? && !@source.fill(@buffer)

        take(length, into)
      end

      # @param length [Integer, nil] so many bytes, fewer only at the end; nil: until the end
      # @param into [String, nil] is replaced by them
      # @return [String, nil] nil at the end, if there was a length
      def read(length = nil, into = nil)
        nil while (length.nil? || @buffer.bytesize < length) && @source.fill(@buffer)
        return if length&.positive? && @buffer.empty?

        take(length || @buffer.bytesize, into)
      end

      # Waits until the client took them.
      # @return [Integer] how many bytes
      # @raise [IOError] if it was closed
      # @raise [ClientGone]
      def write(*strings)
        raise IOError, 'closed stream' if @closed

        strings = strings.map(&:to_s)
        @source.write(*strings)
        strings.sum(&:bytesize)
      end

      # @return [self]
      def <<(string)
        write(string)
        self
      end

      # Nothing is held back, so there is nothing to do.
      # @return [self]
      def flush
        self
      end

      # Says that nothing more comes from us.
      # @return [nil]
      def close_write
        @source.close_write
        nil
      end

      # @return [nil]
      def close_read
        nil
      end

      # @return [nil] also when it was closed before
      def close
        return if @closed

        @closed = true
        @source.close
        nil
      end

      # Closes so that the client sees an error.
      # @return [nil]
      def reset
        return if @closed

        @closed = true
        @source.reset
        nil
      end

      # Hands out the socket itself, if nothing has been read ahead and there is no TLS. It is the caller's then.
      # @return [BasicSocket, nil]
      def detach
        return unless @buffer.empty? && !@closed && @source.respond_to?(:detach)

        socket = @source.detach
        @closed = true if socket
        socket
      end

      # @return [Boolean]
      def closed?
        @closed
      end

      # For those who take over: what came already goes to their buffer, and they write by themselves.
      # @return [#fill, #write, #close]
      # @!visibility private
      def __source(buffer)
        buffer << @buffer
        @buffer.clear
        @source
      end

      private

      def take(length, into)
        data = @buffer.slice!(0, length)
        into ? into.replace(data) : data
      end
    end
  end
end
