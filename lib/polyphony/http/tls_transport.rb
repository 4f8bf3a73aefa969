# frozen_string_literal: true

require 'openssl'

module Polyphony
  module HTTP
    # The bytes of a connection in both directions, in TLS.
    #
    # OpenSSL's calls are made on the socket as it is, and never wait by themselves: a client whose records are none of
    # data could keep them busy. A write that was cut short has left a part of a record: after that the connection says
    # nothing more.
    class TLSTransport < Transport
      # What a client or the network can do to a connection.
      ERRORS = [*Transport::ERRORS, ::OpenSSL::SSL::SSLError].freeze
      # For whoever speaks HTTP without TLS. It is not in TLS, either, so that they can read it.
      PLAIN_ANSWER = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 44\r\nconnection: close\r\n\r\n" \
                     "This port speaks HTTPS: use an https:// URL.".b.freeze
      # How long, and how much, we listen to a client that has been refused: closing at once would be a reset,
      # and cost it the answer.
      LINGER_TIME = 1
      LINGER_BYTES = 65_536
      # A client that hangs up without a good-bye. OpenSSL 3.2 and later then report what came last: that the alert
      # about it could not be written, either.
      HUNG_UP = /unexpected eof|tls_retry_write_records/
      private_constant :PLAIN_ANSWER, :LINGER_TIME, :LINGER_BYTES, :HUNG_UP

      class << self
        # Waits for the handshake.
        # @param socket [BasicSocket]
        # @param tls [TLS]
        # @param connection [Connection]
        # @return [TLSTransport]
        # @raise [TooSlow, BadRequest, ClientGone]
        def accept(socket, tls, connection)
          limit = connection.limits.handshake_time
          io = ::OpenSSL::SSL::SSLSocket.new(socket, tls.context)
          io.sync_close = true
          Polyphony.backend_timeout(limit, nil, false) { io.accept } or raise TooSlow, "no TLS handshake within #{limit} s"
          HTTP.__tls_input(io, socket.fileno)
          new(io, connection.limits, connection)
        rescue ::OpenSSL::SSL::SSLError => e
          failed(socket, reason(e))
        rescue *Transport::ERRORS => e
          raise ClientGone, e.message
        end

        # @param error [OpenSSL::SSL::SSLError]
        # @return [String] without the address, and the numbers that differ each time
        def reason(error)
          last = error.message[/state=[^:]*: (.*)/, 1] || error.message[/\A[^:]*: (.*)/, 1] || error.message
          last == 'record layer failure' && cause(error) || last
        end

        private

        # OpenSSL 3.2 and later end with an error that tells nothing; Ruby's openssl 4.0 has those before it, too.
        def cause(error)
          error.errors.first&.[](/\Aerror:\h+:[^:]*:[^:]*:(.+)/, 1) if error.respond_to?(:errors)
        end

        # Those who connect and hang up, to see whether somebody is there, are no bad input.
        def failed(socket, reason)
          raise ClientGone, reason if reason.match?(HUNG_UP)

          answer_plainly(socket) if reason.include?('http request')
          raise BadRequest, "TLS handshake: #{reason}"
        end

        def answer_plainly(socket)
          socket.write_nonblock(PLAIN_ANSWER, exception: false)
          socket.close_write
          Polyphony.backend_timeout(LINGER_TIME, nil) do
            read = 0
            buffer = +''
            nil while read < LINGER_BYTES && Polyphony.backend_recv(socket, buffer, LINGER_BYTES, 0) && (read += buffer.bytesize)
          end
        rescue *Transport::ERRORS
          nil # gone
        end
      end

      # @param io [OpenSSL::SSL::SSLSocket] after its handshake
      # @param limits [Limits]
      # @param connection [Connection, nil] whom to tell of broken TLS
      def initialize(io, limits, connection = nil)
        super(io, limits)
        @connection = connection
        @cut = false     # a record was begun that will not be ended, or one came that is none
        @midway = false  # a record was begun, and the next write has to go on with it
        @writing = false # somebody is in the middle of a write
        @turn = nil      # where others wait meanwhile
      end

      # @return [String]
      def scheme
        'https'
      end

      # @return [String] what ALPN agreed upon; +http/1.1+ if the client has not asked: HTTP/2 in TLS begins with it
      def alpn
        @io.alpn_protocol || 'http/1.1'
      end

      # @return [BasicSocket]
      def socket
        @io.io
      end

      # @return [nil] nobody can read and write in our place
      def detach
        nil
      end

      # @return [String] as in +TLSv1.3+
      def version
        @io.ssl_version
      end

      # @return [String] what is it encrypted with, as OpenSSL names it
      def cipher
        @io.cipher&.first
      end

      # @return [OpenSSL::X509::Certificate, nil] the client's, which has been verified
      def peer_certificate
        @io.peer_cert
      end

      # @return [Boolean] what was received need not be all of a record, or only one
      def hidden?
        true
      end

      # @return [Boolean] whether a write would not be the next thing to be said, or has nobody to say it to
      def busy?
        @cut || @midway || @writing
      end

      # @return [Boolean] whether bytes may be had without the kernel
      def pending?
        @io.pending.positive? || HTTP.__tls_left?(@io)
      end

      # Waits for bytes and appends them to the buffer.
      # @param buffer [String] binary
      # @param timeout [Numeric, nil] seconds
      # @param most [Integer] bytes at once
      # @return [Integer, nil, false] how many came; nil when the client has said that it is done; false when the time
      #   is over
      # @raise [ClientGone] also if the client has gone without saying so: somebody may have cut the rest off
      def fill(buffer, timeout = nil, most = READ_SIZE)
        check_whole
        return read_into(buffer, timeout, most) if buffer.empty?

        data = +''
        count = read_into(data, timeout, most)
        buffer << data
        data.clear # which frees its memory now, rather than at the next collection
        count
      rescue *ERRORS => e
        gone(e)
      end

      # As #fill, if nothing is expected yet: looking first would cost as much as reading does, and find nothing.
      # @param buffer [String] binary, empty
      # @param timeout [Numeric] seconds until something comes; the rest of a record has its own
      # @return [Integer, nil, false]
      def fill_later(buffer, timeout)
        check_whole
        return false unless pending? || socket.wait_readable(timeout)

        fill(buffer, timeout < @limits.header_time ? timeout : @limits.header_time)
      rescue *ERRORS => e
        gone(e)
      end

      # Writes all of it, in as few records as can be.
      # @param strings [Array<String>]
      # @raise [ClientGone]
      # @raise [TooSlow] if the client takes nothing for the time of Limits#write_stall
      def write(*strings)
        check_whole
        if strings.size == 1 then write_all(strings.first)
        elsif strings.sum(&:bytesize) <= SMALL then write_all(strings.inject(+'') { |all, string| all << string.b })
        else strings.each { |string| write_all(string) }
        end
      rescue *ERRORS => e
        gone(e)
      end

      # Writes what goes at once. If that is not all, the rest has to come next.
      # @param string [String]
      # @return [Integer] how many bytes
      # @raise [ClientGone]
      def try_write(string)
        check_whole
        return 0 if @writing

        offset = 0
        while offset < string.bytesize
          done = write_record(string, offset)
          return offset if (@midway = done.is_a?(Symbol))

          offset += done
        end
        offset
      rescue *ERRORS => e
        gone(e)
      end

      # Writes a part of a file. It has to come through here to be encrypted.
      # @param file [File]
      # @param offset [Integer]
      # @param length [Integer]
      # @raise [ClientGone]
      # @raise [TooSlow]
      # @raise [EOFError] if the file is shorter
      def write_file(file, offset, length)
        data = String.new(capacity: [length, FILE_PIECE].min)
        while length.positive?
          file.pread([length, FILE_PIECE].min, offset, data)
          write(data)
          offset += data.bytesize
          length -= data.bytesize
        end
      end

      # As Transport#close_read. Says good-bye before: there would be no other time for it.
      def close_read
        close_write
        super
      end

      # Says that nothing more comes from us (close_notify); does not wait for an answer.
      def close_write
        @cut || @midway ? socket.close_write : @io.__send__(:stop)
      rescue *ERRORS
        nil # gone anyway
      end

      # Says good-bye and closes.
      def close
        @cut || @midway ? socket.close : @io.sysclose
      rescue *ERRORS
        close_socket
      end

      # Closes so that the client sees an error (RST).
      def reset
        @cut = true # no good-bye
        super
      end

      # @return [Boolean]
      def closed?
        socket.closed?
      end

      # Broken TLS is bad input; nobody above can tell, since nothing can be answered any more.
      # @param error [StandardError]
      # @raise [ClientGone]
      # @!visibility private
      def gone(error)
        if error.is_a?(::OpenSSL::SSL::SSLError)
          @cut = true
          reason = TLSTransport.reason(error)
          @connection&.refuse(BadRequest.new("TLS: #{reason}")) unless reason.match?(HUNG_UP)
        end
        raise ClientGone, error.message
      end

      private

      # A record may be none of data, and there may be one after the other of them; they all have that time together. Of those
      # that have been received already the kernel knows nothing: they are not waited for, but others have their turn.
      # @param buffer [String] an empty one
      def read_into(buffer, timeout, most)
        deadline = nil
        until (done = @io.__send__(:sysread_nonblock, most, buffer, exception: false)).is_a?(String)
          return unless done
          deadline ? timeout = deadline - Clock.now : timeout && deadline = Clock.now + timeout
          return false if timeout && timeout <= 0
          next snooze if done == :wait_readable && HTTP.__tls_left?(@io)
          return false unless done == :wait_readable ? socket.wait_readable(timeout) : socket.wait_writable(timeout)
        end
        buffer.bytesize
      end

      # Broken once, OpenSSL would say that the stream has come to its end.
      def check_whole
        raise ClientGone, 'TLS is broken, or a write was cut short' if @cut
      end

      # OpenSSL writes a record at a time. What is left of one must be gone before anything else is said: others wait
      # for their turn, and whoever is interrupted here leaves the connection of no use.
      def write_all(string)
        await_turn if @writing
        begin
          @writing = true
          write_records(string)
          whole = true
        ensure
          @cut = true unless whole
          @writing = false
          @turn&.wake_all
        end
      end

      def await_turn
        @turn ||= WaitList.new(self, 'another write to end')
        @turn.park while @writing
        check_whole
      end

      def write_records(string)
        offset = 0
        while offset < string.bytesize
          case done = write_record(string, offset)
          when :wait_writable then wait_until_taken
          when :wait_readable then wait_for_client
          else offset += done
          end
        end
        @midway = false
      end

      # @return [Integer, Symbol] bytes, at most 16,384; or what has to be waited for
      def write_record(string, offset)
        @io.__send__(:syswrite_nonblock, offset.zero? ? string : string.byteslice(offset..), exception: false)
      end

      # A client that changes its keys keeps us from writing until it has said the rest.
      def wait_for_client
        socket.wait_readable(@limits.write_stall) or stalled
      end

      def close_socket
        socket.close
      rescue *ERRORS
        nil # gone anyway
      end
    end
  end
end
