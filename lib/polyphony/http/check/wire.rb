# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # A connection to the server under attack: bytes as they are, nothing made right, and never waiting
      # longer than it was told. What comes in is kept.
      class Wire
        READ_SIZE = 65_536
        # How often it is read in one go.
        READS = 16
        GONE = [::SystemCallError, ::IOError, ::OpenSSL::SSL::SSLError].freeze
        private_constant :READ_SIZE, :READS, :GONE

        # @return [String] all that came
        attr_reader :received
        # @return [nil, :eof, :reset] how the server ended it
        attr_reader :ended
        # @return [BasicSocket, OpenSSL::SSL::SSLSocket]
        attr_reader :io

        # @param io [BasicSocket, OpenSSL::SSL::SSLSocket] is ours to close
        def initialize(io)
          @io = io
          @received = String.new(encoding: Encoding::BINARY)
          @ended = nil
        end

        # @return [BasicSocket]
        def socket
          @io.to_io
        end

        # @return [Boolean] whether the server has closed
        def closed?
          !@ended.nil?
        end

        # Sends, and takes what comes meanwhile, so that neither side waits for the other.
        # @param bytes [String]
        # @param within [Numeric] seconds
        # @param mute [Boolean] takes nothing: for a client that does not read
        # @return [Integer] how many were taken; fewer if the server closed or the time was over
        def send(bytes, within: 10, mute: false)
          finish = Clock.now + within
          offset = 0
          while offset < bytes.bytesize && !gone?(mute) && Clock.now < finish
            offset += (count = push(bytes.byteslice(offset, READ_SIZE)))
            next snooze if count.positive?

            wait(finish, mute ? nil : socket, socket)
            take unless mute
          end
          offset
        end

        # Takes what comes, until the block is content, the server closes or the time is over.
        # @yieldreturn [Boolean] whether it is enough; asked before the first wait, too
        # @return [Symbol] :done, :eof, :reset or :time
        def read(within)
          finish = Clock.now + within
          loop do
            return :done if block_given? && yield
            return @ended if @ended
            return :time if Clock.now >= finish

            wait(finish, socket, nil) unless buffered?
            take
          end
        end

        # Takes what is there, without waiting; of an endless answer a part.
        # @return [self]
        def take
          return self if @ended

          READS.times do
            data = @io.read_nonblock(READ_SIZE, exception: false)
            return self if data.is_a?(Symbol)
            return end_with(:eof) if data.nil?

            @received << data
          end
          self
        rescue *GONE
          end_with(:reset)
        end

        # Says that nothing more comes from us; reading goes on.
        # @return [self]
        def half_close
          @io.is_a?(::OpenSSL::SSL::SSLSocket) ? @io.stop : @io.close_write
          self
        rescue *GONE
          self
        end

        # @return [nil]
        def close
          socket.close unless socket.closed?
        rescue *GONE
          nil
        end

        # Closes so that the server gets an RST.
        # @return [nil]
        def reset
          socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_LINGER, [1, 0].pack('ii')) unless socket.closed?
          close
        rescue *GONE
          close
        end

        # Whether the kernel knows that the connection was reset, without anything being read.
        # @return [Boolean]
        def reset_seen?
          return true if @ended

          socket.getsockopt(::Socket::IPPROTO_TCP, ::Socket::TCP_INFO).data.getbyte(0) == 7 # TCP_CLOSE
        rescue *GONE
          true
        end

        private

        # A client that does not read learns of the end by its writes only.
        def gone?(mute)
          take unless mute
          closed?
        end

        def push(bytes)
          count = @io.write_nonblock(bytes, exception: false)
          count.is_a?(Integer) ? count : 0
        rescue *GONE
          end_with(:reset)
          0
        end

        def wait(finish, reader, writer)
          left = finish - Clock.now
          ::IO.select([reader].compact, [writer].compact, nil, [left, 0.05].min) if left.positive?
        end

        def buffered?
          @io.is_a?(::OpenSSL::SSL::SSLSocket) && @io.pending.positive?
        end

        # The answer may have come before the reset.
        def end_with(how)
          if how == :reset && @ended.nil?
            @ended = how
            drain
          end
          @ended ||= how
          self
        end

        def drain
          while (data = @io.read_nonblock(READ_SIZE, exception: false)).is_a?(::String)
            @received << data
          end
        rescue *GONE
          nil
        end
      end
    end
  end
end
