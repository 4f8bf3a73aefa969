# frozen_string_literal: true

module Polyphony
  module HTTP
    # Takes connections and gives each request to a handler, in a fiber of the connection's or the stream's.
    #
    # @example A server for the length of a block
    #   server = Polyphony::HTTP::Server.new('http://127.0.0.1:0') { |request| request.respond('hello') }
    #   server.start
    #   Net::HTTP.get(URI(server.url))  #=> "hello"
    #   server.stop
    class Server
      # How often connections are looked at when there is no room for another, in seconds.
      LOOK = 0.25
      # What ends a fiber or the process; anything else that a handler raises is a 500.
      CONTROL = [BaseException, ::SystemExit, ::SignalException].freeze
      private_constant :LOOK, :CONTROL

      # @return [Limits]
      attr_reader :limits
      # @return [Log]
      attr_reader :log
      # @return [Stats]
      attr_reader :stats
      # @return [Array<Listener>]
      attr_reader :listeners
      # @return [Integer] requests of HTTP/2 that have a fiber, of all connections
      # @!visibility private
      attr_accessor :__streams
      # @return [#call, nil] gets each request when it is over, and how many seconds it took
      attr_accessor :access_log

      # Opens the sockets; nothing is accepted before #start or #run.
      # @param addresses [Array<String, Integer, Listener>] see Listener
      # @param app [#call, nil] in place of a block
      # @param limits [Limits, Hash] see Limits
      # @param log [Log, IO, nil] where to write what went wrong
      # @param access_log [#call, nil]
      # @param options [Hash] for the listeners, see Listener#initialize
      # @yield [Request] in a fiber for itself
      # @raise [ArgumentError] without a handler or an address
      def initialize(*addresses, app: nil, limits: nil, log: $stderr, access_log: nil, **options, &handler)
        @handler = handler || app
        check_arguments(addresses, limits)
        @limits = limits.is_a?(Limits) ? limits : Limits.new(**limits.to_h)
        @log = log.is_a?(Log) ? log : Log.new(log)
        @access_log = access_log
        @stats = Stats.new
        @counts = @stats.__counts
        @connections = {}.compare_by_identity
        @places = Semaphore.new(@limits.connections)
        @stale = []
        @look_again = 0
        @__streams = 0
        @draining = false
        open_listeners(addresses, options)
      end

      # Serves until it is stopped, or until this call is cancelled, by a time limit or an Interrupt.
      # @return [self]
      def run
        start
        begin
          wait
        ensure
          @fiber.stop
          @fiber.await
        end
      end

      # Begins to serve, in a child of the current fiber.
      # @return [self]
      def start
        raise 'the server runs already' if @fiber && !@fiber.dead?
        raise 'the server has ended, and its sockets are closed: make another one with Server.new' if @fiber || @draining

        @fiber = spin(:http_server) { serve }
        snooze until @acceptors || @fiber.dead? # what has not begun to run closes nothing at its end
        self
      end

      # Waits until the server has ended.
      # @return [self]
      def wait
        @fiber&.await
        self
      end

      # Ends: nothing more is accepted, idle connections are closed (after the time of Limits#drain_idle, in which a
      # request that was on its way is answered), requests in progress go on for a time.
      # A handler may call it as well; it goes on at once then, since nobody can wait for his own end.
      # @param within [Numeric] seconds for these; 0: they are cut off
      # @return [self]
      def stop(within: @limits.drain_time)
        return close unless @fiber && !@fiber.dead?
        return stop_from_inside(within) if inside?

        @draining = true
        move_on_after(within) { drain } if within.positive?
        @listeners.each(&:close)
        @fiber.stop
        wait
      end

      # @return [Boolean] whether it is stopping
      def draining?
        @draining
      end

      # @return [Array<Connection>] those that are open
      def connections
        @connections.keys
      end

      # @return [String] of the first listener
      def url
        @listeners.first.address
      end

      # @return [Integer, nil] of the first listener
      def port
        @listeners.first.port
      end

      # Without what it is made of, which would fill a screen and may have secrets in it.
      # @return [String]
      def inspect
        state = if @fiber.nil? then 'not started'
                elsif @fiber.dead? then 'ended'
                else "#{@draining ? 'stopping' : 'serving'}, connections: #{@connections.size}"
                end
        "#<#{self.class} #{@listeners.map(&:address).join(' ')} (#{state})>"
      end

      # Has a request answered; for the protocols, in the fiber of the request. Raises only what ends the
      # fiber.
      # @param request [Request]
      # @return [Exception, nil] what the handler has raised
      # @!visibility private
      def handle(request)
        hooks = Telemetry.hooks
        hooks ? hooks.request(request) { answer(request) } : answer(request)
      end

      # Serves a connection that has something to say.
      # @return [Boolean] whether it waits for its next request now
      # @!visibility private
      def __serve(connection)
        rests = connection.run
      rescue StandardError, ::NoMemoryError => e # of one connection, which is no reason to end the others
        @log.error(e, "a connection of #{connection.name}")
        rests = false
      ensure
        forget(connection) unless rests
      end

      private

      def answer(request)
        began = (@access_log || @stats.durations) && Clock.now
        @counts.began
        @handler.call(request)
        complete(request) unless request.__state == :done
        nil
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- of one request, which is no reason to end the others
        raise child_ends(request, e) if child?

        tell_exit(request, e) if e.is_a?(::SystemExit)
        raise if CONTROL.any? { |kind| e.is_a?(kind) }

        failed(request, e)
        e
      ensure
        @counts.over(request)
        over(request, e, began) if (began || request.__on_finish) && !(e && child?)
      end

      def check_arguments(addresses, limits)
        raise ArgumentError, 'a server needs a handler: a block, or app:' unless @handler
        raise ArgumentError, "a handler can be called with a request, got app: #{@handler.inspect[0, 60]}" unless @handler.respond_to?(:call)
        raise ArgumentError, 'a server needs an address, as in http://127.0.0.1:8080' if addresses.empty?
        return if limits.nil? || limits.is_a?(Limits) || limits.is_a?(::Hash)

        raise ArgumentError, "limits are a Hash, as in limits: { body: 1_000_000 }, got #{limits.inspect[0, 60]}"
      end

      # It never ran.
      def close
        @draining = true
        @listeners.each { |listener| listener.close unless listener.socket.closed? }
        self
      end

      # @return [Boolean] whether this is a fiber of ours, a handler's for instance
      def inside?
        fiber = Fiber.current
        fiber = fiber.parent while fiber && !fiber.equal?(@fiber)
        !fiber.nil?
      end

      def stop_from_inside(within)
        unless @draining
          @draining = true
          @fiber.spin(:http_server_stop) do
            move_on_after(within) { drain } if within.positive?
            @fiber.stop
          end
        end
        self
      end

      def open_listeners(addresses, options)
        @listeners = []
        addresses.each { |address| @listeners << (address.is_a?(Listener) ? address : Listener.new(address, **options)) }
        @listeners.each { |listener| listener.log = @log }
        own = @listeners - addresses # of others, who opened them tells
        own.flat_map(&:notes).uniq.each { |note| @log.info(note) }
      rescue Exception # rubocop:disable Lint/RescueException -- nobody else has them
        @listeners.each(&:close)
        raise
      end

      def serve
        @process = ::Process.pid
        @crew = Crew.new(self) if HTTP.const_defined?(:Lobby)
        @acceptors = @listeners.map { |listener| spin(:accept) { listener.accept_loop { |socket| accept(listener, socket) } } }
        suspend
      ensure
        tidy_up
      end

      # Whatever goes wrong meanwhile, no descriptor waits for the GC.
      def tidy_up
        @listeners.each { |listener| listener.close unless listener.socket.closed? }
        @crew&.dismiss
        Fiber.current.shutdown_all_children
      ensure
        @connections.keys.each { |connection| forget(connection) } # those without a fiber
        @crew&.close
      end

      # The kernel may have accepted more than we have seen, and those who wait in its queue would be refused.
      def stop_accepting
        @acceptors&.each do |fiber|
          fiber.stop
          fiber.await
        end
        @listeners.each do |listener|
          listener.accept_rest { |socket| accept(listener, socket) }
          listener.close
        end
      end

      # When there are as many connections as may be, the next stay in the kernel's queue.
      def accept(listener, socket)
        connection = Connection.new(self, listener, socket)
        @places.try_acquire or wait_for_place
        @stats.connections += 1
        @stats.open += 1
        @connections[connection] = true
        start_connection(connection)
      ensure
        socket.close unless @connections.key?(connection)
      end

      # If there is no memory for another, this client is out of luck, and the next may not be.
      def start_connection(connection)
        @crew ? connection.__wait_in(@crew) : @fiber.spin(:connection) { __serve(connection) }
      rescue ::FiberError, ::NoMemoryError, ::SystemCallError => e
        @log.error(e, "a connection of #{connection.name}")
        forget(connection)
      end

      # Whoever has asked for nothing for a while makes room, the longest there first: else a thousand clients that
      # connect and say nothing would lock everybody else out.
      def wait_for_place
        loop do
          next_stale&.__make_room
          break if @places.acquire(timeout: LOOK)
        end
      end

      # All are looked at from time to time, and then it is one after the other.
      def next_stale
        now = Clock.now
        if now >= @look_again
          @stale = @connections.each_key.select { |connection| connection.__stale?(now) }
          @look_again = now + LOOK
        end
        while (connection = @stale.shift)
          return connection if @connections.key?(connection) && connection.__stale?(now)
        end
      end

      def forget(connection)
        connection.close
        @stats.open -= 1
        @connections.delete(connection)
        @places.release
        @all_gone&.signal if @connections.empty?
      end

      # A client that has just been answered may have sent its next request before it could know.
      def drain
        @connections.keys.each(&:drain)
        stop_accepting
        move_on_after(@limits.drain_idle) { await_connections }
        @connections.keys.each(&:close_idle)
        await_connections
      end

      def await_connections
        @all_gone = Event.new
        @all_gone.await unless @connections.empty?
      end

      def complete(request)
        raise BadResponse, 'the handler has not answered: respond, or send_headers, has to be called before it returns' unless request.answered?

        request.finish
      end

      # @return [Boolean] whether a handler has forked, and this is its child
      def child?
        @process != ::Process.pid
      end

      # The client is the parent's. What has broken here ends the child, as it would outside of a server.
      # @return [Exception]
      def child_ends(request, error)
        request.connection.__disown
        return error unless error.is_a?(StandardError)

        @log.error(error, "#{request.verb} #{request.path[0, 200]}, in a child process")
        ::SystemExit.new(1, 'a handler has failed')
      end

      # Else the process would be gone and nobody would know why.
      def tell_exit(request, exit)
        place = exit.backtrace&.first.to_s[/\A.+?:\d+/]
        @log.info("#{request.verb} #{request.path[0, 200]} ends the process: exit with status #{exit.status} at #{place}")
      end

      def failed(request, error)
        case error
        when ClientGone then nil
        when BadRequest
          request.connection.refuse(error)
          give_up(request, error.status)
        else
          @stats.errors += 1
          @log.error(error, "#{request.verb} #{request.path[0, 200]}")
          give_up(request, 500)
        end
      end

      # The client learns that it went wrong, and nothing else.
      def give_up(request, status)
        return request.__give_up if request.answered?

        request.respond("#{Status::PHRASES[status]}\n", { 'content-type' => 'text/plain' }, status: status)
      rescue Error
        nil # it is gone
      end

      def over(request, error, began)
        request.__finished(error)
        return unless began

        took = Clock.now - began
        @stats.took(took) if @stats.durations
        @access_log&.call(request, took)
      rescue StandardError => e
        @log.error(e, 'what runs after a request')
      end
    end
  end
end
