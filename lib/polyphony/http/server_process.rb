# frozen_string_literal: true

module Polyphony
  module HTTP
    # A process that serves: the only one, or a worker of a cluster. Shows signs of life, and tells in its title what it
    # does.
    # @!visibility private
    class ServerProcess
      # Seconds between signs of life, if not shorter is needed.
      BEAT = 1.0
      # Objects that requests may leave behind before Ruby collects them, beyond what there is room for: 5 MB. A small application has room for
      # what a thousand requests leave, and a collection costs what it costs, however little it finds.
      ROOM = 40_000
      private_constant :ROOM

      # @return [Server]
      attr_reader :server
      # @return [Float] when it last showed a sign of life, on the monotonic clock
      attr_reader :last_beat

      # @param config [Config]
      # @param app [#call]
      # @param sockets [Sockets]
      # @param log [Log]
      # @param access_log [AccessLog, nil]
      # @param scoreboard [Scoreboard]
      # @param place [Integer] on it
      # @param number [Integer] of the worker; 0: the only process
      # @param generation [Integer]
      def initialize(config, app, sockets, log:, access_log:, scoreboard:, place:, number: 0, generation: 0)
        @config = config
        @log = log
        @access_log = access_log
        @scoreboard = scoreboard
        @identity = { number: number, generation: generation, started: Clock.now }
        @place = place
        @number = number
        @interval = [BEAT, config.worker_timeout / 4.0].min
        @lag = 0
        @hurry = Event.new
        @server = Server.new(*sockets.listeners, app: with_endpoints(app), limits: config.limit_set, log: log,
                                                 access_log: access_log)
        open_metrics(sockets.metrics)
        share(sockets.listeners) if config.cluster?
      end

      # @return [self]
      def start
        Array.new(ROOM) { ::Object.new }.clear # the heap keeps the places
        @server.start
        @metrics_server&.start
        @state = :serving
        show
        @ticker = spin(:ticker) { tick }
        self
      end

      # @return [Boolean] whether more requests may be sent here
      def ready?
        @state == :serving
      end

      # Waits for requests in progress. May be called again while it does, by another fiber, to hurry.
      # @param within [Numeric] seconds
      # @param last [Boolean] whether nobody else will come for those who wait to be accepted
      def stop(within: @config.limit_set.drain_time, last: false)
        begin_stop
        @server.listeners.each(&:last_one) if last
        @server.stop(within: within)
        @metrics_server&.stop(within: 0)
        @ticker&.stop
        show
        @access_log&.flush
      end

      # Cuts off requests in progress.
      def hurry
        @hurry.signal
        @server.stop(within: 0)
      end

      # @return [String] for Prometheus
      def metrics
        show
        Metrics.new(@scoreboard).to_s
      end

      # Says how things are.
      def show
        stats = @server.stats
        @last_beat = Clock.now
        @share&.crowded? if @state == :serving # tells the others
        @scoreboard.write(@place, stats: stats, state: @state || :booting, lag: @lag, memory: memory, **@identity)
        title(stats)
      end

      private

      def with_endpoints(app)
        paths = { @config.health => :health, @config.ready => :ready }
        paths[@config.metrics] = :metrics unless @config.metrics_address
        paths.delete(nil)
        paths.empty? ? app : Endpoints.new(app, self, paths)
      end

      def share(listeners)
        stats = @server.stats
        @share = @scoreboard.share(@place, @config.workers * 2 + 4) { stats.open } # some are being replaced
        listeners.each { |listener| listener.share = @share }
      end

      # For those who come to look, not for those who are served: their requests are not counted.
      def open_metrics(listener)
        @server.stats.count_durations if @config.metrics
        return unless listener

        paths = { '/metrics' => :metrics, '/health' => :health, '/ready' => :ready }
        @metrics_server = Server.new(listener, app: Endpoints.new(nil, self, paths), log: @log)
      end

      # Those who balance the load are to notice before connections are refused.
      def begin_stop
        return if @state == :draining

        @state = :draining
        @share&.leave
        show
        move_on_after(@config.drain_delay) { @hurry.await } if @config.drain_delay.positive?
      end

      def tick
        due = Clock.now + @interval
        loop do
          sleep([due - Clock.now, 0].max)
          @lag = [Clock.now - due, 0].max
          due = Clock.now + @interval
          show
        end
      end

      def title(stats)
        who = @number.zero? ? @server.listeners.map(&:address).join(', ') : "worker #{@number}"
        state = ', stopping' if @state == :draining
        text = "polyphony#{" (#{@config.name})" if @config.name}: #{who} [#{stats.open} connections, " \
               "#{stats.running} running, #{stats.requests} requests#{state}]"
        return if text == @title

        ::Process.setproctitle(@title = text)
      end

      def memory
        return 0 unless @config.metrics

        ::File.read('/proc/self/statm').split[1].to_i * 4096
      rescue ::SystemCallError
        0
      end
    end
    private_constant :ServerProcess
  end
end
