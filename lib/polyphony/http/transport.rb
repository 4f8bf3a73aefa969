# frozen_string_literal: true

require 'fcntl'
require 'socket'

module Polyphony
  module HTTP
    # The bytes of a connection in both directions, without TLS. See TLSTransport for the other kind.
    #
    # Whoever waits here has a time limit, and what the network does to us ends as ClientGone or TooSlow.
    class Transport
      # What a client or the network can do to a connection.
      ERRORS = [::SystemCallError, ::IOError].freeze
      # How many bytes are asked for at once.
      READ_SIZE = 16_384
      # The same, where it is likely to be little: connections spend their lives waiting for a request, and the
      # memory that it will be read to waits with them.
      FIRST_READ = 4_096
      # Answers up to this size are handed to the kernel at once: taking so little within the time of
      # Limits#write_stall is not too much to ask.
      SMALL = 16_384
      # How much of a file goes out before others have their turn.
      FILE_PIECE = 262_144
      # The kernel's word for how many bytes of a socket were not acknowledged yet.
      SIOCOUTQ = 0x5411
      private_constant :FILE_PIECE, :SIOCOUTQ

      # @return [IO]
      attr_reader :io

      # @param io [BasicSocket]
      # @param limits [Limits]
      def initialize(io, limits)
        @io = io
        @limits = limits
        @nonblocking = false
      end

      # @return [String] +http+ or +https+
      def scheme
        'http'
      end

      # @return [String, nil] what ALPN agreed upon
      def alpn
        nil
      end

      # @return [BasicSocket] without TLS
      def socket
        @io
      end

      # @return [Boolean] whether bytes may be there that the kernel does not tell of
      def hidden?
        false
      end

      # Waits for bytes and appends them to the buffer.
      # @param buffer [String] binary
      # @param timeout [Numeric, nil] seconds
      # @param most [Integer] bytes at once
      # @return [Integer, nil, false] how many came; nil at the end of the stream; false when the time is over
      # @raise [ClientGone]
      def fill(buffer, timeout = nil, most = READ_SIZE)
        before = buffer.bytesize
        result = Polyphony.backend_recv_within(@io, buffer, most, -1, timeout)
        result && (buffer.bytesize - before)
      rescue *ERRORS => e
        raise ClientGone, e.message
      end

      # Writes all of it.
      # @param strings [Array<String>]
      # @raise [ClientGone]
      # @raise [TooSlow] if the client takes nothing for the time of Limits#write_stall
      def write(*strings)
        if strings.size == 1
          string = strings[0]
          string.bytesize > SMALL ? write_large(string) : write_small(string)
        elsif strings.sum(&:bytesize) <= SMALL
          write_small(strings.inject(+'') { |all, text| all << text.b })
        else
          strings.each { |text| write_large(text) }
        end
      rescue *ERRORS => e
        raise ClientGone, e.message
      end

      # Writes what goes at once.
      # @param string [String]
      # @return [Integer] how many bytes
      # @raise [ClientGone]
      def try_write(string)
        written = @io.write_nonblock(string, exception: false)
        written.is_a?(Integer) ? written : 0
      rescue *ERRORS => e
        raise ClientGone, e.message
      end

      # Writes a part of a file, without bringing it into Ruby where that can be.
      # @param file [File]
      # @param offset [Integer]
      # @param length [Integer]
      # @raise [ClientGone]
      # @raise [TooSlow]
      # @raise [EOFError] if the file is shorter
      def write_file(file, offset, length)
        make_nonblocking
        while length.positive?
          sent = write_piece(file, offset, [length, FILE_PIECE].min)
          raise EOFError, "the file has ended at #{offset}, #{length} bytes too soon" if sent.zero?

          offset += sent
          length -= sent
          snooze if length.positive? # a fast client of a large file is not the only one
        end
      rescue EOFError
        raise
      rescue *ERRORS => e
        raise ClientGone, e.message
      end

      # Takes nothing more from the client: who waits in #fill sees the end. For a connection on which nothing is
      # going on.
      def close_read
        socket.shutdown(::Socket::SHUT_RD)
      rescue *ERRORS
        nil # gone anyway
      end

      # Says that nothing more comes from us.
      def close_write
        @io.close_write
      rescue *ERRORS
        nil # gone anyway
      end

      # @return [BasicSocket, nil] what others can read and write in our place; nil if bytes have to pass through us
      def detach
        @io
      end

      # Closes. What was written is still delivered.
      def close
        @io.close
      rescue *ERRORS
        nil # gone anyway
      end

      # Closes so that the client sees an error (RST): what it has got is not all.
      def reset
        socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_LINGER, [1, 0].pack('ii')) unless @io.closed?
        close
      rescue *ERRORS
        close
      end

      # @return [Boolean]
      def closed?
        @io.closed?
      end

      private

      def write_small(text)
        stalled unless Polyphony.backend_send_within(@io, text, 0, @limits.write_stall)
      end

      # Piece by piece, so that a client which takes some is told from one which takes nothing. A client that
      # takes all at once is not the only one.
      def write_large(string)
        offset = 0
        while offset < string.bytesize
          rest = offset.zero? ? string : string.byteslice(offset..)
          written = @io.write_nonblock(rest, exception: false)
          if written == :wait_writable then wait_until_taken
          else
            offset += written
            snooze
          end
        end
      end

      # The kernel copies what it has in memory. What has to be read from the disk comes through here, for
      # sendfile(2) would make everybody wait for it.
      # @return [Integer] bytes; 0 at the end of the file
      def write_piece(file, offset, length)
        case sent = HTTP.__sendfile(@io, file, offset, length)
        when Integer then sent
        when :wait_writable
          wait_until_taken
          write_piece(file, offset, length)
        else
          data = read_piece(file, offset, length)
          write_large(data)
          data.bytesize
        end
      end

      def read_piece(file, offset, length)
        file.pread(length, offset)
      rescue ::SystemCallError => e
        raise BadResponse, "the file cannot be read: #{e.message}"
      end

      # sendfile(2) has no flag for it.
      def make_nonblocking
        return if @nonblocking

        flags = @io.fcntl(::Fcntl::F_GETFL)
        @io.fcntl(::Fcntl::F_SETFL, flags | ::Fcntl::O_NONBLOCK) if (flags & ::Fcntl::O_NONBLOCK).zero?
        @nonblocking = true
      end

      # A socket is writable again when a good part of its buffer is free, which can take a slow client longer
      # than the limit; so ask how much is still on its way, too.
      def wait_until_taken
        waiting = unacknowledged
        until socket.wait_writable(@limits.write_stall)
          now = unacknowledged
          stalled if now >= waiting
          waiting = now
        end
      end

      def unacknowledged
        count = [0].pack('i')
        socket.ioctl(SIOCOUTQ, count)
        count.unpack1('i')
      end

      def stalled
        raise TooSlow, "took nothing of the answer for #{@limits.write_stall} s"
      end
    end
  end
end
