# frozen_string_literal: true

module Polyphony
  module HTTP
    # A client's connection, from the moment it was accepted: whose it is, and which protocol it speaks. It
    # has a fiber while something is going on, see Crew.
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
      # @return [String, nil] the client's address, frozen; nil on a unix socket
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
        @given_away = @disowned = false
        @guest = nil # its place in the lobby, if there is one
        @closed = false
        @peer, @peer_port = HTTP.__peer(socket)
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

      # Serves until the connection ends, or until nothing is going on and its fiber can be spared.
      # @return [Boolean] whether it is to go on when more comes
      def run
        rests = !@gone && (@decided ? @protocol.run : speak).equal?(true)
      rescue ClientGone
        rests = false
      rescue BadRequest => e
        refuse(e)
        rests = false
      ensure
        rests ? @guest.rest(@hidden && !@protocol.__emptied?, @hidden) : close
      end

      # @return [nil]
      def close
        return if @closed

        @closed = true
        @guest&.leave
        return if @given_away
        return @socket.close if @disowned

        (@transport || @socket).close
        forget_buffer
      end

      # Asks to end soon: after the requests in progress, or the one that is on its way.
      def drain
        @upgraded&.each_key(&:__drain)
        @protocol&.drain
      end

      # Ends if nothing is going on.
      # @return [nil]
      def close_idle
        @protocol ? @protocol.close_idle : hang_up
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
        @protocol ? @transport.close_read : hang_up
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
        @peer = address.dup.freeze
        @peer_port = port
      end

      # The bytes belong to a handler now, which closes the connection when it likes.
      # @!visibility private
      def __give_away
        __stay
        @given_away = true
      end

      # A forked child is about to end, through everything that was to be done at the end of this connection. It is the parent's:
      # not a byte of ours may come between those of the parent, nor a good-bye that would hold for both.
      # @!visibility private
      def __disown
        @disowned = true
        @protocol&.__disown
      end

      # Waits in the lobby from here on, until the client says something.
      # @param crew [Crew]
      # @!visibility private
      def __wait_in(crew)
        @guest = crew.enter(self, @socket)
        @storage = crew.storage
      end

      # @return [Lobby::Guest, nil] what it is there
      # @!visibility private
      def __guest
        @guest
      end

      # The client has not taken all of an answer yet, and nothing else is going on.
      # @param rest [String]
      # @!visibility private
      def __unsent(rest)
        @unsent = rest
        @decided = false # for the time being
      end

      # It has waited for too long.
      # @!visibility private
      def __expire
        @gone = true
      end

      # @return [Boolean] whether its fiber is not needed while it waits
      # @!visibility private
      def __may_rest?
        @guest && Polyphony.__as_new?(@storage)
      end

      # What comes next is waited for by whoever serves it.
      # @!visibility private
      def __mute
        @guest&.mute
      end

      # It has not asked for anything yet, and rests now.
      # @!visibility private
      def __not_asked
        @guest&.not_asked
      end

      # What comes from here on is of no interest to the lobby.
      # @!visibility private
      def __stay
        @guest&.leave
        @guest = nil
      end

      # Goes on with another protocol.
      # @!visibility private
      def __switch(protocol)
        @protocol = protocol
        protocol.run
      end

      private

      # Its memory is free now, and not when the GC gets around to it.
      def forget_buffer
        @buffer&.clear
        nil
      rescue ::RuntimeError
        nil # a fiber of the handler's still reads into it
      end

      # Whoever waits for the client sees the end.
      def hang_up
        @guest ? @socket.shutdown(::Socket::SHUT_RDWR) : @socket.close
      rescue ::SystemCallError, ::IOError
        nil # gone anyway
      end

      # @return [Boolean] true: nothing is going on
      def speak
        return send_rest if @unsent

        @transport ||= @listener.transport(@socket, self)
        @protocol ||= begin_protocol
        @decided ||= @protocol.__receive_first
        unless @decided
          came = @protocol.await_bytes or return came.nil?
          @decided = true
          @protocol = HTTP2.new(self, @buffer) if preface?
        end
        @protocol.run
      end

      # @return [Boolean] as speak
      def send_rest
        rest = @unsent
        @unsent = nil
        @protocol.write(rest)
        @decided = true
        @protocol.run
      end

      # If nothing was agreed upon, either may come.
      def begin_protocol
        @buffer = ''.b # String.new with an encoding makes two Hashes, besides
        alpn = @transport.alpn
        @decided = alpn || !HTTP.http2?
        @hidden = @transport.hidden?
        alpn == 'h2' ? HTTP2.new(self, @buffer) : HTTP1.new(self, @buffer)
      end

      # What could still become HTTP/2 has as long as a head of HTTP/1, and if it turns out to be one, its time has begun
      # already.
      def preface?
        return @buffer.start_with?(PREFACE) if @buffer.bytesize >= PREFACE.bytesize || !PREFACE.start_with?(@buffer)

        @protocol.deadline = deadline = Clock.now + limits.header_time
        while @buffer.bytesize < PREFACE.bytesize && PREFACE.start_with?(@buffer)
          left = deadline - Clock.now
          break unless left.positive? && @transport.fill(@buffer, left)
        end
        @buffer.start_with?(PREFACE)
      end
    end
  end
end
