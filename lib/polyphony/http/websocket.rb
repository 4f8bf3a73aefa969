# frozen_string_literal: true

module Polyphony
  module HTTP
    # A WebSocket connection (RFC 6455, compressed as in RFC 7692): messages in both directions. Got from
    # Request#upgrade_to_websocket, or by WebSocket.connect.
    #
    # One fiber receives, any number of fibers send. While a message is received, pings are answered, and a peer
    # that is silent is asked whether it is still there.
    #
    # @example An echo
    #   Polyphony::HTTP::Server.new('http://127.0.0.1:8080') do |request|
    #     request.upgrade_to_websocket { |ws| ws.each { |message| ws << message } }
    #   end
    class WebSocket
      include Enumerable

      private_constant :Codec

      # Opcodes.
      TEXT = 0x1
      BINARY = 0x2
      CLOSE = 0x8
      PING = 0x9
      PONG = 0xa
      private_constant :TEXT, :BINARY, :CLOSE, :PING, :PONG
      # Bytes of the reason of a close that fit into its frame.
      REASON_SIZE = 123
      # How much of what a peer still sends is read after it broke the rules, so that it sees our close frame
      # and not only a connection that is gone.
      LINGER_SIZE = 1_048_576
      private_constant :LINGER_SIZE

      class << self
        # Makes a message ready for many connections: it is framed, and compressed, once.
        # @param message [String]
        # @param type [:text, :binary, nil] nil: by its encoding
        # @return [Frame] for #<<, #post and .broadcast
        def frame(message, type = nil)
          Frame.new(message, type)
        end

        # Sends a message to many without waiting for any of them, see #post.
        # @param sockets [Enumerable<WebSocket>]
        # @param message [String, Frame]
        # @return [Integer] to how many
        def broadcast(sockets, message)
          frame = message.is_a?(Frame) ? message : Frame.new(message)
          sockets.to_a.dup.count { |socket| socket.post(frame) }
        end

        # @return [Boolean] whether messages can be compressed: that needs zlib
        def deflate?
          Codec.deflate?
        end

        # @return [Array(Integer, String)] opcode, and the bytes to send
        # @raise [ArgumentError] for a text that cannot be UTF-8
        # @!visibility private
        def __typed(message, type)
          raise TypeError, "a message is a String, got #{message.class}" unless message.is_a?(String)

          type ||= message.encoding == Encoding::BINARY ? :binary : :text
          case type
          when :text then [TEXT, utf8(message)]
          when :binary then [BINARY, message]
          else raise ArgumentError, "type must be :text or :binary, got #{type.inspect}"
          end
        end

        private

        def utf8(text)
          unless text.encoding == Encoding::UTF_8
            text = text.encoding == Encoding::BINARY ? text.dup.force_encoding(Encoding::UTF_8) : text.encode(Encoding::UTF_8)
          end
          return text if text.valid_encoding?

          raise ArgumentError, 'a text has to be valid UTF-8: scrub it, or send it as binary'
        rescue ::EncodingError => e
          raise ArgumentError, "a text has to be UTF-8: #{e.message}"
        end
      end

      # A message made ready for many connections.
      # @see WebSocket.frame
      class Frame
        # @param message [String]
        # @param type [:text, :binary, nil]
        def initialize(message, type = nil)
          @opcode, @payload = WebSocket.__typed(message, type)
          @payload = @payload.frozen? ? @payload : @payload.dup.freeze
          @plain = @deflated = nil
        end

        # @return [String] for this connection
        # @!visibility private
        def __bytes(codec)
          return codec.frame(@opcode, @payload) if codec.client?
          return plain unless codec.shares?

          @deflated ||= Codec.deflated(@opcode, @payload) || plain
        end

        private

        def plain
          @plain ||= Codec.plain(@opcode, @payload)
        end
      end

      # @return [String, nil] what both sides agreed to speak
      attr_reader :subprotocol
      # @return [Integer, nil] why it ended: the code of the peer's close frame, 1005 if it had none, 1006 if the
      #   connection was lost, or the code that we closed with because of what the peer sent
      attr_reader :close_code
      # @return [String, nil] what the peer said about it
      attr_reader :close_reason

      # @param stream [Stream, Transport] bytes in both directions; is ours to close
      # @param limits [Limits]
      # @param client [Boolean] whether we are the client
      # @param deflate [Array(Boolean, Boolean, Integer), nil] whether the peer and we refer to earlier
      #   messages when compressing, and the bits of our window; nil: nothing is compressed
      # @param subprotocol [String, nil]
      # @param connection [Connection, nil] is told of bad input
      def initialize(stream, limits: Limits.new, client: false, deflate: nil, subprotocol: nil, connection: nil)
        @buffer = String.new(encoding: Encoding::BINARY)
        @stream = stream.is_a?(Stream) ? stream.__source(@buffer) : stream
        @direct = @stream.respond_to?(:try_write)
        @limits = limits
        @ping = limits.ws_ping
        @codec = Codec.new(client, limits.ws_frame, limits.ws_message, limits.ws_fragments, deflate)
        @client = client
        find_shortcut
        @compressed = !deflate.nil?
        @subprotocol = subprotocol
        @connection = connection
        @owner = Fiber.current
        @lock = Polyphony::Mutex.new
        @state = :open # then :closing, when no more messages are sent or received, then :closed
        @reading = false
        @pong = nil     # payload of a ping to be answered
        @pong_due = nil # when we give up waiting for one
        @posts = nil    # frames that nobody waits for
        @posted = 0     # their bytes
        @poster = nil   # the fiber that sends them
        @over = nil     # events of those who wait for the end
      end

      # Waits for a message. Pings are answered meanwhile; so somebody should be receiving all the time.
      # @return [String, nil] a text in UTF-8, or binary; nil when the connection has ended, see #close_code
      # @raise [RuntimeError] if another fiber receives
      def receive
        return unless @state == :open
        raise 'another fiber receives from this WebSocket' if @reading

        next_message
      end

      # Receives until the connection ends.
      # @yield [String] each message
      # @return [self]
      def each
        return to_enum(:each) unless block_given?

        while (message = receive)
          yield message
        end
        self
      end

      # Sends a message: as a text, or as binary if it has that encoding. Waits until the peer has room for it.
      # @param message [String, Frame]
      # @return [self]
      # @raise [ClientGone] if the connection has ended
      # @raise [TooSlow] if the peer takes nothing for the time of Limits#write_stall
      def <<(message)
        transmit(nil, message)
        self
      end

      # Sends a message.
      # @param message [String]
      # @param type [:text, :binary, nil] nil: by its encoding
      # @return [self]
      # @raise (see #<<)
      def send(message, type = nil)
        transmit(*WebSocket.__typed(message, type))
        self
      end

      # @param message [String]
      # @return [self]
      # @raise (see #<<)
      def text(message)
        send(message, :text)
      end

      # @param message [String]
      # @return [self]
      # @raise (see #<<)
      def binary(message)
        send(message, :binary)
      end

      # Sends a message without waiting. A peer for which more than Limits#ws_queue bytes wait that way is too slow, and
      # is cut off.
      # @param message [String, Frame]
      # @return [Boolean] whether the connection is open
      def post(message)
        return false unless @state == :open

        frame = bytes_of(nil, message)
        return too_slow if @posts && @posted + frame.bytesize > @limits.ws_queue

        if @posts.nil? && @direct && @lock.try_lock then try_write(frame)
        else
          (@posts ||= []) << frame
          @posted += frame.bytesize
        end
        start_poster if @posts
        @state == :open
      end

      # Sends a ping.
      # @param payload [String] at most 125 bytes
      # @return [self]
      # @raise (see #<<)
      def ping(payload = '')
        raise ArgumentError, "a ping has at most 125 bytes, got #{payload.bytesize}" if payload.bytesize > 125

        transmit(PING, payload)
        self
      end

      # Says good-bye and waits for the answer, at most for the time of Limits#ws_close.
      # @param code [Integer] 1000 to 1003, 1007 to 1014, or 3000 to 4999
      # @param reason [String] at most 123 bytes
      # @return [nil] also when it was closed before
      # @raise [ArgumentError] for a code or a reason that must not be sent
      def close(code = 1000, reason = '')
        payload = close_payload(code, reason)
        return if @state == :closed

        Polyphony.backend_timeout(@limits.ws_close, nil) do
          say_goodbye(payload) if @state == :open
          wait_for_end
        end
        nil
      rescue ClientGone, TooSlow
        nil # it need not be told any more
      ensure
        end_with(1006) if payload
      end

      # @return [Boolean] whether nothing can be sent any more
      def closed?
        @state != :open
      end

      # @return [Boolean] whether messages are compressed
      def compressed?
        @compressed
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@state}#{" #{@close_code}" if @close_code}#{" #{@subprotocol}" if @subprotocol}>"
      end

      # Says good-bye without waiting for an answer: we are being stopped.
      # @!visibility private
      def __leave(code)
        Polyphony.backend_timeout(0.1, nil) { say_goodbye([code].pack('n')) } if @state == :open
      rescue ClientGone, TooSlow
        nil # gone anyway
      ensure
        end_with(1006)
      end

      # The server stops: the peer is asked to go.
      # @!visibility private
      def __drain
        @owner.spin(:websocket) { close(1001) } if @state == :open && !@owner.dead?
      end

      private

      # --- receiving ----------------------------------------------------------------------------

      # When we have said good-bye, messages that still come are dropped.
      # @return [String, nil]
      def next_message
        @reading = true
        until @state == :closed
          event = @buffer.empty? ? nil : @codec.next(@buffer)
          if event.nil? then wait_for_bytes
          elsif event.is_a?(String)
            answer_ping if @pong
            return event if @state == :open
          else obey(event)
          end
        end
      rescue ClientGone
        end_with(1006)
      rescue TooSlow => e
        @connection&.refuse(e)
        end_with(1006)
      ensure
        @reading = false
      end

      def obey(event)
        case event
        when :ping then @pong = @codec.payload # of several that came together, the last is answered
        when :pong then @pong_due = nil
        when :close then peer_closes
        else refuse(@codec.code, @codec.why)
        end
      end

      def wait_for_bytes
        answer_ping if @pong
        came = @stream.fill(@buffer, @pong_due ? patience : @ping)
        if came then no_pong if @pong_due && Clock.now > @pong_due && !@codec.inside?
        elsif came.nil? then end_with(1006)
        else silence
        end
      end

      def patience
        [@pong_due - Clock.now, 0.001].max
      end

      def silence
        return no_pong if @pong_due
        return if @state != :open || @lock.locked? # who takes what we send is there

        @pong_due = Clock.now + @limits.ws_pong
        transmit(PING, '')
      end

      def no_pong
        @connection&.refuse(TooSlow.new("WebSocket: no pong within #{@limits.ws_pong} s"))
        end_with(1006)
      end

      # Only one is pending, ever: while somebody writes, the next ping replaces it.
      def answer_ping
        return if @lock.locked?

        payload = @pong
        @pong = nil
        transmit(PONG, payload) if @state == :open
      end

      def peer_closes
        code = @codec.code
        @close_reason = @codec.payload
        answer_ping if @pong
        say_goodbye(code == 1005 ? '' : [code].pack('n')) if @state == :open
        wait_until_closed if @client
        end_with(code)
      rescue ClientGone, TooSlow
        end_with(code) # it has not waited for our answer
      end

      # The server closes first (RFC 6455, 7.1.1).
      def wait_until_closed
        Polyphony.backend_timeout(@limits.ws_close, nil) { nil while @stream.fill(@buffer.clear) }
      end

      # The peer broke the rules.
      def refuse(code, why)
        @connection&.refuse(BadRequest.new("WebSocket: #{why}"))
        @close_code = code
        say_goodbye([code].pack('n')) if @state == :open
        linger
      rescue ClientGone, TooSlow
        nil # it is not there to hear it
      ensure
        end_with(code)
      end

      def linger
        @stream.close_write
        left = LINGER_SIZE
        Polyphony.backend_timeout(@limits.ws_close, nil) do
          while left.positive? && (count = @stream.fill(@buffer.clear))
            left -= count
          end
        end
      end

      # Where frames go out without a detour. A client's socket in TLS may be one that blocks.
      def find_shortcut
        @socket = @stream.is_a?(Transport) ? @stream.socket : nil
        @tls = @stream.io if @socket && !@stream.io.equal?(@socket)
        @socket = nil if @tls && @client
      end

      # --- sending ------------------------------------------------------------------------------

      # @param opcode [Integer, nil] nil: a message, whose kind its encoding tells
      # @param message [String, Frame]
      def transmit(opcode, message)
        @lock.lock
        begin
          write_posts if @posts
          raise ClientGone, 'the WebSocket is closed' unless @state == :open

          # Framed here and not before: compression may refer to what was sent last.
          frame = @codec.express(@socket, @tls, message) if @socket && !opcode && !(@tls && @stream.busy?)
          write_whole(frame || bytes_of(opcode, message)) unless true.equal?(frame)
          answer_late_ping if @pong
        ensure
          @lock.unlock
        end
      end

      def bytes_of(opcode, message)
        return @codec.frame(opcode, message) if opcode
        return message.__bytes(@codec) if message.is_a?(Frame)

        @codec.message(message) || @codec.frame(*WebSocket.__typed(message, nil))
      end

      # A frame that was not written to its end leaves nothing to go on with.
      def write_whole(bytes)
        whole = false
        @stream.write(bytes)
        whole = true
      ensure
        cut_off unless whole
      end

      def answer_late_ping
        payload = @pong
        @pong = nil
        write_whole(@codec.frame(PONG, payload))
      end

      def write_posts
        while @posts && @state == :open
          posts = @posts
          @posts = nil
          write_whole(posts.size == 1 ? posts.first : posts.join)
          @posted -= posts.sum(&:bytesize)
        end
      end

      # Most clients take what they get at once, and then no fiber is needed for it. What is left comes before all else.
      def try_write(frame)
        written = @stream.try_write(frame)
        return if written == frame.bytesize

        (@posts ||= []).unshift(frame.byteslice(written..))
        @posted += frame.bytesize - written
      rescue ClientGone
        cut_off
      ensure
        @lock.unlock
      end

      # Posted in another thread, they are sent in ours.
      def start_poster
        return if @poster

        if @owner.dead? then @poster = Fiber.current.spin(:websocket) { deliver_posts }
        elsif @owner.thread.equal?(Thread.current) then @poster = @owner.spin(:websocket) { deliver_posts }
        else
          @poster = @owner # for the time being
          @owner.interject { @poster = @owner.spin(:websocket) { deliver_posts } }
        end
      end

      def deliver_posts
        @lock.synchronize { write_posts if @state == :open }
      rescue ClientGone
        nil # as all who receive will see
      rescue TooSlow => e
        @connection&.refuse(e)
      ensure
        @poster = nil
      end

      def too_slow
        @connection&.refuse(TooSlow.new("WebSocket: more than #{@limits.ws_queue} bytes wait for it"))
        cut_off
        false
      end

      # --- the end ------------------------------------------------------------------------------

      def close_payload(code, reason)
        valid = code.is_a?(Integer) && (code.between?(3000, 4999) || code.between?(1000, 1003) || code.between?(1007, 1014))
        raise ArgumentError, "close code must be 1000 to 1003, 1007 to 1014 or 3000 to 4999, got #{code.inspect}" unless valid
        if reason.bytesize > REASON_SIZE
          raise ArgumentError, "the reason of a close has at most #{REASON_SIZE} bytes, got #{reason.bytesize}"
        end

        [code].pack('n') << WebSocket.__typed(reason, :text)[1].b
      end

      # No message of ours can follow, whatever becomes of it.
      def say_goodbye(payload)
        @lock.synchronize do
          write_posts if @posts
          return unless @state == :open

          @state = :closing
          write_whole(@codec.frame(CLOSE, payload))
        end
      end

      def wait_for_end
        return next_message unless @reading

        (@over ||= []) << (event = Event.new)
        event.await unless @state == :closed
      end

      def end_with(code)
        return if @state == :closed

        @close_code ||= code
        @state = :closed
        finish { @stream.close }
      end

      def cut_off
        return if @state == :closed

        @close_code ||= 1006
        @state = :closed
        finish { @stream.reset }
      end

      def finish
        @posts = nil
        @codec.release
        yield
        @over&.each(&:signal)
        nil
      end
    end
  end
end
