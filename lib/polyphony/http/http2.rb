# frozen_string_literal: true

module Polyphony
  module HTTP
    # HTTP/2 on a connection (RFC 9113). The connection's fiber reads; child fibers handle requests, each one at a time; what
    # they answer is gathered and goes out together.
    #
    # The session (in C, on libnghttp2) knows the protocol and the limits and never waits; waiting is done here.
    class HTTP2
      # About so many bytes are handed to the transport at once.
      PULL = 65_536
      # How long a client that is told to go may take to read it.
      LINGER = 1
      # A writer that has nothing to do for so long ends.
      WRITER_PATIENCE = 1
      # A fiber for requests that has nothing to do for so long ends, and so many may have nothing to do.
      SPARE_PATIENCE = 1
      SPARES = 2
      # How long a fault of a stream waits for being told: see #note.
      FAULT_DELAY = 0.1
      # Codes of RST_STREAM.
      INTERNAL_ERROR = 2
      REFUSED_STREAM = 7
      CANCEL = 8
      # Ends the reader's wait for bytes that are of no interest any more.
      class Enough < StandardError; end
      private_constant :Enough, :PULL, :LINGER, :WRITER_PATIENCE, :SPARE_PATIENCE, :SPARES, :FAULT_DELAY

      # @param head [#[]] of a request of HTTP/1
      # @return [String, nil] what its field HTTP2-Settings says; nil if there is none, or it is wrong
      # @!visibility private
      def self.settings(head)
        text = head['http2-settings']
        return unless text&.match?(/\A[A-Za-z0-9_-]*=*\z/)

        settings = text.delete('=').tr('-_', '+/').unpack1('m')
        settings if (settings.bytesize % 6).zero?
      end

      # @return [Connection]
      attr_reader :connection
      # @return [Session]
      # @!visibility private
      attr_reader :session
      # @return [Limits]
      # @!visibility private
      attr_reader :limits

      # @param connection [Connection]
      # @param buffer [String] what came already
      # @param upgrade [HTTP1::Request, nil] what asked for HTTP/2 and was answered with 101; it is stream 1
      # @raise [BadRequest] if its settings are none
      def initialize(connection, buffer, upgrade: nil)
        @connection = connection
        @server = connection.server
        @limits = connection.limits
        @transport = connection.transport
        @buffer = buffer
        @output = String.new(capacity: 4096, encoding: Encoding::BINARY)
        @session = Session.new(@limits.to_h)
        @streams = {}
        @requests = []   # those that no fiber has begun with
        @spares = WaitList.new(self, 'a request')
        @begun = 0
        @work = WaitList.new(self, 'something to write')
        @writing = @writer_runs = @batch = @waited = @reading = @ended = false
        take_over(upgrade) if upgrade
      end

      # Serves until the connection is to be closed.
      def run
        @connection.__stay
        @fiber = Fiber.current
        @storage = RUBY_VERSION < '3.2' ? @fiber.__storage : @fiber.storage # as its children have it, too
        converse
        abandon
        @transport.close
        @fiber.await_all_children
      ensure
        abandon
        @server.__streams -= @streams.size # some of their fibers may never run
        @streams.clear
      end

      # Ends soon: the client is asked to go. What it sent before it learns that still counts.
      def drain
        @session.drain
        flush
      end

      # Ends after the requests in progress, without waiting for the client to answer that it knows.
      def close_idle
        @session.drained
        flush
      end

      # Has what the session wants to send sent, soon.
      # @!visibility private
      def flush
        hand_over unless @batch || @writing || @ended || !@fiber || !@session.pending?
      end

      # See Connection#__disown.
      # @!visibility private
      def __disown
        @ended = true
      end

      # @return [Integer, nil] changes with each request; nil while one is being handled
      # @!visibility private
      def __progress
        @begun if @streams.empty?
      end

      private

      # --- reading ------------------------------------------------------------------------------

      def converse
        drain if @server.draining?
        step while @session.open?
        part
      rescue ClientGone
        nil
      ensure
        tell_fault
      end

      def step
        unless @buffer.empty?
          events = @session.feed(@buffer)
          begin_batch(events) if events || @upgraded
        end
        write_now
        return unless @session.open?

        tell_fault if @fault_at && Clock.now >= @fault_at
        read
      end

      def read
        @reading = true
        idle = @streams.empty?
        forget_buffers if idle && !@writing
        case @transport.fill(@buffer, @fault ? FAULT_DELAY : @session.wait_time, idle ? Transport::FIRST_READ : Transport::READ_SIZE)
        when nil then raise ClientGone, 'the client closed the connection'
        when false then @session.check
        end
      rescue Enough
        nil
      ensure
        @reading = false
      end

      # A connection spends its life waiting for the next request, and needs little memory for it. One answer of 64 KB would
      # have its memory kept for ever.
      def forget_buffers
        @buffer.clear
        @output.clear
      end

      # Handlers that need not wait answer before we write, so that their answers go out together.
      def begin_batch(events)
        @batch = true
        start_upgraded if @upgraded
        dispatch(events) if events
        serve_batch
      ensure
        @batch = false
      end

      # A fiber serves one request after the other until a handler waits. Then we come here, and others go on with the rest, all
      # at once: handlers that begin together may end together, and their answers go out together.
      def serve_batch
        loop do
          (@waited ? @requests.size : [@requests.size, 1].min).times { call_server }
          snooze
          @waited = !@streams.empty?
          break if @requests.empty?
        end
      end

      def dispatch(events)
        events.each do |event|
          case event
          when Integer then @streams[event]&.__wake
          when String then note(event)
          else begin_stream(event)
          end
        end
      end

      # --- streams ------------------------------------------------------------------------------

      def take_over(request)
        settings = HTTP2.settings(request)
        unless settings && @session.upgrade(settings, request.head?)
          raise BadRequest, 'a field HTTP2-Settings that is none'
        end

        @upgraded = Request.new(self, 1, request.verb, request.target, request.headers, nil, false)
      end

      # Not before the client has begun to speak HTTP/2, though that is allowed: curl fails if more than a little
      # comes behind the 101.
      def start_upgraded
        request, @upgraded = @upgraded, nil
        start_stream(request)
      end

      def begin_stream(event)
        id, verb, target, headers, protocol, body, status, reason = event
        return @session.release(id) if @session.room(id) == false # the same read has cancelled it
        return refuse_stream(id, verb, status, reason) if status
        return turn_away(id) if crowded?

        request = Request.new(self, id, verb, target, headers, protocol, body)
        target == '*' ? answer_options(request) : start_stream(request)
      end

      # Each request has a fiber, and a few hundred clients with a hundred requests each could have us run out of them. One
      # of each connection is always served.
      def crowded?
        @server.__streams >= @limits.h2_running && !@streams.empty?
      end

      # The client may send it again, at once or on another connection.
      def turn_away(id)
        @connection.refuse(BadRequest.new("turned away: #{@limits.h2_running} requests are in progress (HTTP/2)"))
        @session.reset(id, REFUSED_STREAM)
        @session.release(id)
      end

      def start_stream(request)
        @begun += 1
        @server.__streams += 1
        @streams[request.id] = request
        @requests << request
        call_server unless @batch
      end

      # Has somebody take a request: a fiber that is there, or a new one.
      def call_server
        @spares.wake || @fiber.spin(:stream) { serve_streams }
      end

      # A fiber on which a handler has left something ends: the next request must not meet it.
      def serve_streams
        begin
          while (request = @requests.shift)
            serve_stream(request)
            return unless Polyphony.__as_new?(@storage)
          end
        end while wait_for_request
      end

      # @return [Boolean] whether there may be one
      def wait_for_request
        !@ended && @spares.length < SPARES && @spares.park(SPARE_PATIENCE)
      end

      def serve_stream(request)
        @server.handle(request)
        request.__discard_rest
      ensure
        @server.__streams -= 1 if @streams.delete(request.id)
        request.__release
        flush
      end

      def answer_options(request)
        request.respond(nil, { 'allow' => Status::ALLOW })
      rescue ClientGone
        nil # it was cancelled
      ensure
        request.__release
      end

      def refuse_stream(id, verb, status, reason)
        @connection.refuse(BadRequest.new("#{reason} (HTTP/2)", status))
        text = "#{Status::PHRASES[status]}\n"
        headers = { 'content-type' => 'text/plain' }
        headers['allow'] = Status::ALLOW if status == 405
        body = verb == 'HEAD' ? nil : text
        @session.respond(id, status, headers, text.bytesize, body, body.nil?)
        @session.release(id)
      end

      # --- writing ------------------------------------------------------------------------------

      # As much as goes at once; the rest is the writer's.
      def write_now
        return if @writing

        while @session.pull(@output, PULL)
          after_pull
          written = @transport.try_write(@output)
          next if written == @output.bytesize

          @rest = @output.byteslice(written..)
          return hand_over
        end
        after_pull
      end

      # From here on, until it has nothing more to write, the writer is the only one who does.
      # A handler that answers in another thread has the writer started in ours.
      def hand_over
        @writing = true
        if @work.wake then nil
        elsif @fiber.thread.equal?(Thread.current) then start_writer
        else @fiber.interject { start_writer }
        end
      end

      # Who asks from another thread may come late: the writer waits by now, or is about to look once more.
      def start_writer
        return if @writer_runs && (@work.wake || @writing)

        @writer_runs = true
        @writer = @fiber.spin(:http2_writer) { write_on }
      end

      def write_on
        loop do
          write_all
          @writing = false
          break stop_reading unless @session.open?
          break unless @work.park(WRITER_PATIENCE) || @writing
        end
      rescue ClientGone, TooSlow => e
        @writing = false
        broken(e)
      ensure
        @writer_runs = false
      end

      def write_all
        rest, @rest = @rest, nil
        @transport.write(rest) if rest
        while @session.pull(@output, PULL)
          after_pull
          @transport.write(@output)
        end
        after_pull
      end

      # What was sent makes room for more, and tells what was wrong with a stream.
      def after_pull
        events = @session.events and dispatch(events)
      end

      # A fault of a stream goes to the log a little later: if it was the beginning of a flood, that is what the log
      # is to tell.
      def note(fault)
        @server.stats.refused += 1 if @fault # the first one counts when it is told
        @fault ||= fault
        @fault_at ||= Clock.now + FAULT_DELAY
      end

      def tell_fault
        fault, @fault, @fault_at = @fault
        @connection.refuse(BadRequest.new(fault)) if fault
      end

      # --- the end ------------------------------------------------------------------------------

      # The reader sees that the session is over.
      def stop_reading
        @fiber.raise(Enough.new) if @reading
      end

      def broken(error)
        @connection.refuse(error) if error.is_a?(TooSlow)
        abandon
        error.is_a?(TooSlow) ? @transport.reset : stop_reading
      end

      # Nothing more can be said on any stream. Handlers learn it when they try.
      def abandon
        @ended = true
        @session.close
        @streams.each_value(&:__wake)
        @work.wake_all(false)
        @spares.wake_all(false)
      end

      # Says goodbye.
      def part
        reason = @session.failure
        @fault = @fault_at = nil if reason
        @connection.refuse(BadRequest.new(reason)) if reason
        Polyphony.backend_timeout(LINGER, nil, nil) { last_words } unless @ended
      end

      def last_words
        @writing ? @writer.await : write_all
        linger
      rescue TooSlow
        nil
      end

      # Closing while bytes come would make the kernel send a reset, which can overtake our last frames.
      def linger
        @transport.close_write
        nil while @buffer.clear && @transport.fill(@buffer)
      end
    end
  end
end

require 'polyphony/http/http2/session'
require 'polyphony/http/http2/request'
require 'polyphony/http/http2/duplex'
