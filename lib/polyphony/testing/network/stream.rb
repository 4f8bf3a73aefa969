# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # One end of a connection in memory: looks like a TCPSocket to whoever reads and writes. It has no descriptor: it cannot be
      # given to IO.select, to a child, to OpenSSL or to the web server, nor spliced.
      class Stream
        include Reading

        # @return [Network]
        attr_reader :network
        # @return [Numeric, nil] seconds that a read or write waits, as of IO#timeout
        attr_reader :timeout

        # @!visibility private
        def initialize(network, incoming, outgoing, here, there)
          @network = network
          @incoming = incoming
          @outgoing = outgoing
          @here = here
          @there = there
          @buffer = String.new(encoding: Encoding::BINARY)
        end

        # Waits for room as long as it takes.
        # @param strings [Array<#to_s>]
        # @return [Integer] bytes
        # @raise [Errno::EPIPE] if nobody is there to read
        # @raise [Errno::ECONNRESET]
        def write(*strings)
          strings.sum { |string| write_all(string.to_s.b) }
        end

        # @return [self]
        def <<(object)
          write(object)
          self
        end

        # @return [nil]
        def print(*objects)
          write(*objects, *$\)
          nil
        end

        # @return [nil]
        def puts(*objects)
          lines = StringIO.new
          lines.puts(*objects)
          write(lines.string)
          nil
        end

        # @return [nil]
        def printf(format, *objects)
          write(Kernel.format(format, *objects))
          nil
        end

        # Writes what there is room for, at least one byte; less, if the conditions of the network say so.
        # @return [Integer] bytes
        def syswrite(string)
          string = string.to_s.b
          check_writable
          wait_for_room
          @outgoing.push(shortened(string))
        end

        # @return [Integer] bytes, as for #syswrite
        def send(string, _flags = 0)
          syswrite(string)
        end

        # @return [Integer, Symbol] bytes; +:wait_writable+ with +exception: false+
        # @raise [IO::EAGAINWaitWritable]
        def write_nonblock(string, exception: true)
          string = string.to_s.b
          check_writable
          return @outgoing.push(shortened(string)) if @outgoing.room.positive? || @outgoing.ended?

          exception ? raise(IO::EAGAINWaitWritable, 'write would block') : :wait_writable
        end

        # @return [String, nil, Symbol] +:wait_readable+ with +exception: false+, nil at the end
        # @raise [IO::EAGAINWaitReadable]
        # @raise [EOFError]
        def read_nonblock(most, buffer = nil, exception: true)
          check_readable
          if @buffer.empty?
            bytes = @incoming.take(most)
            return exception ? raise(IO::EAGAINWaitReadable, 'read would block') : :wait_readable if bytes == false
            return exception ? raise(EOFError, 'end of file reached') : nil if bytes.nil?

            @buffer << bytes
          end
          into(buffer, @buffer.slice!(0, most))
        end

        # @return [String] empty at the end
        def recv(most, _flags = 0, buffer = nil)
          readpartial(most, buffer)
        rescue EOFError
          into(buffer, +'')
        end

        # @param timeout [Numeric, nil] seconds
        # @return [self, nil] nil after the timeout
        def wait_readable(timeout = nil)
          check_readable
          !@buffer.empty? || @incoming.wait_for_news(timeout) ? self : nil
        end

        # @param timeout [Numeric, nil] seconds
        # @return [self, nil] nil after the timeout
        def wait_writable(timeout = nil)
          check_writable
          @outgoing.wait_for_room(timeout) ? self : nil
        end

        # @param seconds [Numeric, nil]
        def timeout=(seconds)
          @timeout = seconds
        end

        # The other end reads what was sent, then the end.
        # @return [nil]
        def close
          close_write
          close_read
          @closed = true
          nil
        end

        # @return [nil]
        def close_write
          @outgoing.finish
          @write_closed = true
          nil
        end

        # Whoever writes to it is told that nobody reads, after the time that takes.
        # @return [nil]
        def close_read
          @incoming.deafen unless @read_closed
          @read_closed = true
          nil
        end

        # @param how [Integer, Symbol, String] as of BasicSocket#shutdown
        # @return [0]
        def shutdown(how = ::Socket::SHUT_RDWR)
          how = { 'RD' => 0, 'WR' => 1, 'RDWR' => 2 }.fetch(how.to_s.delete_prefix('SHUT_')) unless how.is_a?(Integer)
          @outgoing.finish unless how == ::Socket::SHUT_RD
          @incoming.deafen unless how == ::Socket::SHUT_WR
          0
        end

        # Breaks the connection off: the other end gets Errno::ECONNRESET.
        # @return [nil]
        def reset
          @network.__count(:resets)
          @outgoing.reset
          @incoming.reset
          @closed = @read_closed = @write_closed = true
          nil
        end

        # @return [Boolean]
        def closed?
          @closed || (@read_closed && @write_closed) || false
        end

        # @return [self] it is all there is
        def to_io
          self
        end

        # @return [nil] there is none
        def fileno
          nil
        end

        # @return [self]
        def flush
          self
        end
        alias binmode flush

        # @return [true]
        def sync
          true
        end

        # @return [true]
        def sync=(_value)
          true
        end

        # @return [false]
        def tty?
          false
        end
        alias isatty tty?

        # Options of sockets mean nothing here.
        # @return [0]
        def setsockopt(*)
          0
        end

        # @return [Array] as of IPSocket#addr
        def addr(*)
          ['AF_INET', @here.last, @here.first, @here.first]
        end

        # @return [Array] as of IPSocket#peeraddr
        def peeraddr(*)
          ['AF_INET', @there.last, @there.first, @there.first]
        end

        # @return [String]
        def inspect
          "#<#{self.class} #{@here.join(':')} to #{@there.join(':')}#{' (closed)' if closed?}>"
        end

        private

        # @return [Boolean] false at the end
        def fill
          raise IO_TIMEOUT, 'Blocking operation timed out!' unless @incoming.wait_for_news(@timeout)

          check_readable # it may have been closed meanwhile
          bytes = @incoming.take(READ_SIZE)
          @buffer << bytes if bytes
          bytes ? true : false
        end

        def write_all(bytes)
          offset = 0
          check_writable
          while offset < bytes.bytesize
            wait_for_room
            offset += @outgoing.push(bytes.byteslice(offset..))
          end
          offset
        end

        def wait_for_room
          raise IO_TIMEOUT, 'Blocking operation timed out!' unless @outgoing.wait_for_room(@timeout)

          check_writable
        end

        def shortened(bytes)
          size = @network.conditions.__shortened(bytes.bytesize)
          @network.__count(:short_writes) if size < bytes.bytesize
          bytes.byteslice(0, size)
        end

        def check_readable
          raise IOError, 'closed stream' if closed?
          raise IOError, 'not opened for reading' if @read_closed
        end

        def check_writable
          raise IOError, 'closed stream' if closed?
          raise IOError, 'not opened for writing' if @write_closed
        end

        READ_SIZE = 65_536
        IO_TIMEOUT = defined?(::IO::TimeoutError) ? ::IO::TimeoutError : ::IOError
        private_constant :READ_SIZE, :IO_TIMEOUT
      end
    end
  end
end
