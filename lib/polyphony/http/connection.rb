# frozen_string_literal: true

module Polyphony
  module HTTP
    # A client's connection, from the moment it was accepted: whose it is, and which protocol it speaks. It
    # runs in a fiber of its own.
    class Connection
      # What HTTP/2 begins with, on a connection whose client knows that we speak it.
      PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b.freeze

      # How long a client may have us wait when others wait for its place, in seconds.
      STALE = 1
      private_constant :STALE

      # @return [Server]
      attr_reader :server
      # @return [Listener] where it came in
      attr_reader :listener
      # @return [Transport]
      attr_reader :transport
      # @return [String, nil] the client's address; nil on a unix socket
      attr_reader :peer
      # @return [Integer, nil] the client's port
      attr_reader :peer_port
      # @return [Object, nil] for the handler, to keep what belongs to this connection
      attr_accessor :app_data

      # @param server [Server]
      # @param listener [Listener]
      # @param socket [BasicSocket] is ours to close
      def initialize(server, listener, socket)
        @server = server
        @listener = listener
        @socket = socket
        @transport = nil
        @protocol = nil
        @seen = @seen_at = nil
        @gone = false
        @app_data = nil
        @given_away = false
        remember_peer(socket.remote_address)
      rescue ::SystemCallError
        # It was reset already. What it has sent could still be read: by nobody's order, since without an address it would
        # look like a client of this machine.
        @gone = true
      end

      # @return [Limits]
      def limits
        @server.limits
      end

      # @return [String] for logs
      def name
        @peer ? "#{@peer}:#{@peer_port}" : 'local client'
      end

      # Serves until the connection ends.
      def run
        return if @gone

        @transport = @listener.transport(@socket, self)
        buffer = String.new(capacity: Transport::FIRST_READ, encoding: Encoding::BINARY)
        @protocol = choose(buffer)
        @protocol&.run
      rescue ClientGone
        nil
      rescue BadRequest => e
        refuse(e)
      ensure
        close
        forget(buffer) if buffer && !@given_away
      end

      # @return [nil]
      def close
        (@transport || @socket).close unless @given_away
        nil
      end

      # Asks to end soon: after the requests in progress, or the one that is on its way.
      def drain
        @upgraded&.each_key(&:__drain)
        @protocol&.drain
      end

      # Ends if nothing is going on.
      # @return [nil]
      def close_idle
        @protocol ? @protocol.close_idle : @socket.close
        nil
      end

      # Whether the client has had us wait for a request for some time. It is not looked at before others need the place,
      # and counted from then on: so it costs nothing as long as there is room.
      # @param now [Float]
      # @return [Boolean]
      # @!visibility private
      def __stale?(now)
        progress = @protocol ? @protocol.__progress : 0 # 0: it is in the handshake
        unless progress && progress == @seen
          @seen = progress
          @seen_at = now
          return false
        end
        now - @seen_at >= STALE
      end

      # Ends, so that somebody else can have the place.
      # @return [nil]
      # @!visibility private
      def __make_room
        refuse(BadRequest.new('had to make room: as many connections as may be, and it asked for nothing'))
        @seen = nil
        @protocol ? @transport.close_read : @socket.close
        nil
      rescue ::SystemCallError, ::IOError
        nil # gone anyway
      end

      # Bad input. Of each kind, a connection gets one line in the log.
      # @param error [BadRequest]
      def refuse(error)
        @server.stats.refused += 1
        @told ||= []
        return if @told.include?(error.message) || @told.size > 20

        @told << error.message
        @server.log.refuse(name, error.message)
      end

      # Remembers what goes on beyond HTTP and can be asked to end.
      # @param socket [#__drain]
      # @!visibility private
      def __upgraded(socket)
        (@upgraded ||= {}.compare_by_identity)[socket] = true
      end

      # @!visibility private
      def __left(socket)
        @upgraded&.delete(socket)
      end

      # What the PROXY protocol told.
      # @param address [String]
      # @param port [Integer]
      # @!visibility private
      def __peer(address, port)
        @peer = address
        @peer_port = port
      end

      # The bytes belong to a handler now, which closes the connection when it likes.
      # @!visibility private
      def __give_away
        @given_away = true
      end

      # Goes on with another protocol.
      # @!visibility private
      def __switch(protocol)
        @protocol = protocol
        protocol.run
      end

      private

      # Its memory is free now, and not when the GC gets around to it.
      def forget(buffer)
        buffer.clear
      rescue ::RuntimeError
        nil # a fiber of the handler's still reads into it
      end

      def remember_peer(address)
        return unless address.ip?

        address = address.ipv6_to_ipv4 || address # as a socket for both has it
        @peer = address.ip_address
        @peer_port = address.ip_port
      end

      def choose(buffer)
        case @transport.alpn
        when 'h2' then HTTP2.new(self, buffer)
        when nil then choose_by_first_bytes(buffer)
        else HTTP1.new(self, buffer)
        end
      end

      # Nothing was agreed upon: either may come. What could still become HTTP/2 has as long as a head of HTTP/1, and if
      # it turns out to be one, its time has begun already.
      def choose_by_first_bytes(buffer)
        http1 = HTTP1.new(self, buffer)
        @protocol = http1
        return http1 unless HTTP.http2?
        return unless http1.await_bytes

        http1.deadline = deadline = Clock.now + limits.header_time
        while buffer.bytesize < PREFACE.bytesize && PREFACE.start_with?(buffer)
          left = deadline - Clock.now
          break unless left.positive? && @transport.fill(buffer, left)
        end
        buffer.start_with?(PREFACE) ? HTTP2.new(self, buffer) : http1
      end
    end
  end
end
