# frozen_string_literal: true

module Polyphony
  module HTTP
    # HTTP/1.0 and 1.1 on a connection (RFC 9112): one request after the other, in the connection's fiber.
    # While a request is being handled nothing is read but its body.
    class HTTP1
      # So many requests that came together are answered before others get their turn.
      TURN = 16
      # What a handler has not read of a body is read and thrown away, if it is no more than this.
      MOST_UNREAD = 262_144
      # Bodies are received in pieces up to this size.
      PIECE = 65_536
      # How long we wait for the client to read our last words and close, before we do.
      LINGER = 1
      # Requests of a connection, if there is no limit.
      UNLIMITED = 1 << 61
      private_constant :UNLIMITED, :TURN, :MOST_UNREAD, :PIECE, :LINGER
      private_constant :Parser, :Head # written in C

      # @return [Connection]
      attr_reader :connection
      # @return [Request, nil] the one that is being handled
      attr_reader :request
      # @return [Float, nil] until when the first head has to be here, if its time began before we were asked to #run
      # @!visibility private
      attr_writer :deadline

      # @param connection [Connection]
      # @param buffer [String] what came already
      def initialize(connection, buffer)
        @connection = connection
        @server = connection.server
        @limits = connection.limits
        @transport = connection.transport
        @plain = @transport.instance_of?(Transport) # what is received from the kernel is what was sent
        @__tls = @plain ? nil : @transport.io
        @socket = @transport.socket
        @buffer = buffer
        @parser = Parser.new(@limits)
        @parser.guest = connection.__guest
        @left = @limits.requests || UNLIMITED # how many may still come
        @patience = @limits.header_time
        @keep_alive = @limits.keep_alive
        @in_a_row = 0
        @drained = !@plain
        @deadline = nil
        @draining = @server.draining?
        @short = !@draining
        @idle = @broken = @gone_over = @expected = @writing = @emptied = false
        @turns = @reading_turns = nil # fibers that wait to write, and to read
        @readers = 0 # fibers that read
        @reader = nil # the one whose turn it is
        @waited = @received = 0
        @request = nil
      end

      # Serves until the connection is to be closed, or nothing is going on.
      # @return [Boolean] true: nothing is going on
      def run
        request = @request || (receive_shortly if @idle)
        more = request ? serve_shortly(request) : true
        more = serve while more
        more.nil?
      rescue BadRequest => e
        refuse(e)
        false
      end

      # The first request of a client that may go on in HTTP/2, if it is what most are, and there.
      # @return [Boolean] whether it is; else what has come of it is in the buffer
      # @!visibility private
      def __receive_first
        @plain && @buffer.empty? && receive_shortly ? true : false
      end

      # Waits for the first bytes of a request, or lets others wait for them, if the fiber can be spared.
      # @return [Boolean, nil] whether some are there; nil: others wait
      def await_bytes
        return true unless @buffer.empty?

        told = @idle # it was said that something has come
        @drained = false if told
        @idle = true
        came = receive_at_once
        if came == false
          return let_go if (@plain || !(told || @transport.pending?)) && @connection.__may_rest?

          came = told && !@plain ? receive_rest : receive_later
        end
        @idle = false
        came ? true : false
      rescue *Transport::ERRORS => e
        raise ClientGone, e.message
      end

      # The next answer is the last, and says so: see Connection#drain. If one has begun, it is the one after it.
      def drain
        @draining = true
        @short = false
        @parser.close if @request && !@request.answered?
      end

      # Ends if nothing is going on.
      def close_idle
        @transport.close_read if @idle
      end

      # @return [Integer, nil] changes with each request; nil while one is being handled
      # @!visibility private
      def __progress
        @request ? nil : @left
      end

      # @return [Boolean] whether the kernel has nothing that was not read, as far as that is known in TLS
      # @!visibility private
      def __emptied?
        @emptied
      end

      # See Connection#__disown.
      # @!visibility private
      def __disown
        @broken = true
      end

      # --- for Request --------------------------------------------------------------------------

      # @return [BasicSocket, nil] where an answer can be written without asking us: nobody else is writing
      # @!visibility private
      def __free_socket
        @socket unless @writing || @broken || (@__tls && @transport.busy?)
      end

      # @return [OpenSSL::SSL::SSLSocket, nil] what is around that socket
      # @!visibility private
      attr_reader :__tls

      # @return [Parser]
      # @!visibility private
      attr_reader :parser

      # @return [String, nil] the next piece of the body; nil at its end
      # @raise [BadRequest, ClientGone]
      # @!visibility private
      def read_body
        reading do
          while (piece = @parser.body(@buffer)) == false
            say_continue if @expected
            piece = await_piece and break
          end
          @expected = false # it came without our saying so
          piece
        end
      end

      # Receives a part of the body straight into what the handler reads into.
      # @param string [String] binary; is appended to
      # @param most [Integer] bytes
      # @return [Integer, nil] how many came; nil if the next piece does not come that way
      # @raise [BadRequest, ClientGone]
      # @!visibility private
      def read_into(string, most)
        reading do
          left = @plain && @parser.left
          next if !left || @parser.rest?(@buffer)

          say_continue if @expected
          await_body(string, left < most ? left : most).tap { |count| @parser.took(count) }
        end
      end

      # Fibers that write at the same time take turns. A write that was cut short, by whatever, may have left a
      # part behind: nothing that follows could be understood.
      # @!visibility private
      def write(string)
        wait_for_turn if @writing || @broken
        @writing = true
        begin
          @transport.write(string)
        rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised again
          cut_short(e)
        end
        @writing = false
        @turns&.wake
      end

      # @!visibility private
      def write_all(*strings)
        in_turn { @transport.write(*strings) }
      end

      # @param before [String, nil] goes in front of the part of the file
      # @param behind [String, nil]
      # @!visibility private
      def write_file(file, offset, length, before = nil, behind = nil)
        in_turn do
          @transport.write(before) if before
          @transport.write_file(file, offset, length)
          @transport.write(behind) if behind
        end
      end

      # The last answer may wait for the end of the connection, or for the answers to others: here it is.
      # @return [nil]
      # @!visibility private
      def __release
        rest = @parser.release(@socket) and write(rest)
        nil
      end

      # An answer has begun: what is left of the request's body may be more than is worth reading.
      # @!visibility private
      def answering
        @parser.close if @expected || (@parser.left || 0) > MOST_UNREAD
      end

      # The answer cannot be ended as it should be. Unless the client counts bytes or chunks, only a reset tells.
      # @!visibility private
      def break_off(reset)
        @broken = true
        @parser.close
        return unless reset

        @connection.__stay # the number of what is closed may soon be another's
        @transport.reset
      end

      # Leaves HTTP.
      # @return [Stream]
      # @!visibility private
      def go_over
        @connection.__stay
        @gone_over = true
        @parser.close
        Stream.new(@transport, @parser.rest(@buffer))
      end

      private

      # Fibers that read at the same time take turns: what one has received decides how much is left for the next.
      def reading
        @readers += 1
        (@reading_turns ||= WaitList.new).park while @reader
        @reader = Fiber.current
        yield
      rescue BadRequest, ClientGone
        @parser.close
        raise
      ensure
        @readers -= 1
        @reader = nil if @reader.equal?(Fiber.current)
        @reading_turns&.wake unless @reader
      end

      def wait_for_turn
        (@turns ||= WaitList.new).park while @writing
        raise ClientGone, 'the answer was broken off' if @broken
      end

      # What #write does, which has no block to call: every small answer goes through it.
      def in_turn
        wait_for_turn if @writing || @broken
        @writing = true
        begin
          yield
        rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is raised again
          cut_short(e)
        end
        @writing = false
        @turns&.wake
      end

      def cut_short(error)
        break_off(error.is_a?(TooSlow))
        @writing = false
        @turns&.wake_all
        raise error
      end

      # What most requests are, on a connection that has rested or is new: a short head and nothing else, from a client that waits for
      # the answer before it says more.
      # @return [Request, nil] nil: it is none of these
      def receive_shortly
        return unless @short && @left > 1

        @drained = false
        @request = @parser.request(self, @socket, @__tls, @buffer)
      rescue StandardError => e
        @__tls ? @transport.gone(e) : raise
      end

      # @return [Boolean, nil] as serve
      def serve_shortly(request)
        @idle = false
        @left -= 1
        @server.handle(request)
        @request = nil
        return follow(request) unless @parser.settled?(@buffer) && request.__state == :done && !@gone_over && !@broken && @readers == 0

        @patience = @keep_alive
        @drained = true
        unless @connection.__may_rest?
          __release
          return true
        end

        @emptied = @parser.emptied? unless @plain
        @idle = true
        nil
      end

      # @return [Boolean, nil] whether another request may follow; nil: when it comes
      def serve
        if @buffer.empty? then came = await_bytes or return came
        else
          @idle = false # what has come is there already: #serve_shortly did not want it
          let_others
        end
        head = @parser.head(@buffer) || rest_of_head or return false
        @deadline = nil
        @parser.close if @draining || (@left -= 1) < 1
        head.plain? ? handle(head) : serve_special(head)
      end

      # What raises ends the connection.
      # @return [Boolean] as serve
      def handle(head, body = false)
        @request = request = Request.new(self, head, body)
        @server.handle(request)
        @request = nil
        follow(request, body)
      end

      # @return [Boolean] as serve
      def follow(request, body = false)
        __release
        return false if @gone_over || @broken || @readers > 0 # who reads on must not get what comes next
        return close_gently unless request.__state == :done
        body && @parser.body? ? skip_body : again?
      end

      # What brings a body along, asks for another protocol, or for nothing in particular.
      # @return [Boolean] as serve
      def serve_special(head)
        body = @parser.body?
        if body
          @connection.__mute
          @short = false # what a reader gives back is not to be had there
        end
        @expected = body && @parser.expect?
        @waited = @received = 0
        if head.asterisk? then answer_options(head, body)
        elsif !body && http2?(head) then offer_http2(head)
        else handle(head, body)
        end
      end

      def answer_options(head, body)
        Request.new(self, head, body).respond(nil, 'allow' => Status::ALLOW)
        @parser.body? ? skip_body : again?
      end

      # @return [Boolean] as serve
      def again?
        return end_connection if @broken || !@parser.keep_alive?

        @patience = @keep_alive
        true
      end

      # @return [false]
      def end_connection
        linger unless @broken || @buffer.empty?
        false
      end

      # --- heads --------------------------------------------------------------------------------

      # Who got less than was asked for has got all; of TLS that cannot be known. Whoever has sent a part of a record there, or
      # one that is no data, is waited for in a fiber, so that his time is not renewed with each piece: see #receive_rest.
      # @return [Object] nil if the client is done; false if nothing is there
      def receive_at_once
        if @plain
          return false if @drained

          came = Polyphony.backend_recv_at_once(@socket, @buffer, Transport::FIRST_READ, -1)
          @drained = @buffer.bytesize < Transport::FIRST_READ
          return came
        end
        return false if @drained && !@transport.pending?

        @drained = true
        @transport.fill(@buffer, 0)
      end

      # @return [Object] nil if the client is done; false when the time is over
      def receive_later
        patience = @draining ? @limits.drain_idle : @patience
        return @transport.fill_later(@buffer, patience) unless @plain

        Polyphony.backend_recv_within(@socket, @buffer, Transport::FIRST_READ, -1, patience)
      end

      # Something has come, and it was not all of a record. With its first byte the time of a head has begun.
      # @return [Object] nil if the client is done
      def receive_rest
        @deadline = Clock.now + @limits.header_time
        came = @transport.fill(@buffer, @limits.header_time)
        late if came == false
        came
      end

      def late
        raise TooSlow, "the head of a request took longer than #{@limits.header_time} s"
      end

      # Whoever waits needs no memory for what will come.
      # @return [nil]
      def let_go
        @connection.__not_asked unless @patience == @keep_alive
        @emptied = false
        @buffer.clear
        nil
      end

      # Requests that came together must not keep everybody else waiting.
      def let_others
        @in_a_row += 1
        return if @in_a_row < TURN

        @in_a_row = 0
        snooze
      end

      def rest_of_head
        deadline = @deadline || (Clock.now + @limits.header_time)
        @deadline = nil
        loop do
          left = deadline - Clock.now
          count = left.positive? && @transport.fill(@buffer, left)
          late if count == false
          return if count.nil?

          head = @parser.head(@buffer) and return head
        end
      end

      # --- bodies -------------------------------------------------------------------------------

      def say_continue
        @expected = false
        write("HTTP/1.1 100 Continue\r\n\r\n") unless @request.answered?
      end

      # A body that has a length can be received into what the handler gets, a good deal at once; it is not
      # copied then. Others come through the buffer.
      # @return [String, nil]
      def await_piece
        left = @plain && @parser.left
        unless left
          await_body(@buffer, Transport::READ_SIZE)
          return
        end

        size = left < PIECE ? left : PIECE
        piece = String.new(capacity: size)
        @parser.took(await_body(piece, size))
        piece
      end

      # Slow is who had to be waited for longer than the grace and the time that what came may take.
      # @return [Integer] how many bytes came
      def await_body(into, size)
        patience = @limits.body_grace + (@received / @limits.body_rate) - @waited
        slow unless patience.positive?
        began = Clock.now
        count = @plain ? @transport.fill(into, patience, size) : @transport.fill(into, patience)
        slow if count == false
        raise ClientGone, 'the client closed in the middle of a body' if count.nil?

        @waited += Clock.now - began
        @received += count
        count
      end

      def slow
        raise TooSlow, "a body came slower than #{@limits.body_rate} bytes a second"
      end

      # The handler has not read all of it, so that the next request is behind the rest.
      def skip_body
        return close_gently unless @parser.keep_alive? && !@broken && !@expected

        rest = 0
        while (piece = read_body)
          return close_gently if (rest += piece.bytesize) > MOST_UNREAD
        end
        again?
      rescue BadRequest => e # it was answered already
        @connection.refuse(e)
        close_gently
      rescue ClientGone
        false
      end

      # --- the end ------------------------------------------------------------------------------

      def refuse(error)
        @connection.refuse(error)
        @parser.close
        body = "#{Status::PHRASES[error.status]}\n"
        headers = { 'content-type' => 'text/plain' }
        headers['allow'] = Status::ALLOW if error.status == 405
        @transport.write(@parser.answer(error.status, headers, body.bytesize, body))
        linger
      rescue ClientGone, TooSlow
        nil
      end

      def close_gently
        linger unless @broken
        false
      end

      # Closing while bytes come would make the kernel send a reset, which can overtake our answer.
      def linger
        @transport.close_write
        deadline = Clock.now + LINGER
        while (left = deadline - Clock.now).positive?
          @buffer.clear
          break unless @transport.fill(@buffer, left)
        end
      rescue ClientGone
        nil
      end

      # --- HTTP/2 -------------------------------------------------------------------------------

      # Of a request without a body, which would have to be read first.
      def http2?(head)
        head.upgrade? && HTTP.http2? && @transport.scheme == 'http' && HTTP2.settings(head) &&
          HTTP.__list(head['upgrade']).any? { |protocol| protocol.casecmp?('h2c') }
      end

      def offer_http2(head)
        request = Request.new(self, head, false)
        http2 = HTTP2.new(@connection, @parser.rest(@buffer), upgrade: request) # refuses settings that are none
        @transport.write(@parser.info(101, { 'upgrade' => 'h2c' }))
        @connection.__switch(http2)
        false
      end
    end
  end
end

require 'polyphony/http/http1/request'
