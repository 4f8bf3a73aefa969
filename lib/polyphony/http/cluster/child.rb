# frozen_string_literal: true

module Polyphony
  module HTTP
    class Cluster
      # What a worker does: serves, and obeys its master.
      # @!visibility private
      class Child
        # Signals that are the master's to handle. They come here, too, from a terminal or when a whole group is meant.
        OTHERS = %w[INT HUP USR1 USR2 TTIN TTOU].freeze

        # @param launcher [Launcher]
        # @param channel [UNIXSocket] to the master
        # @param scoreboard [Scoreboard]
        def initialize(launcher, channel, scoreboard, number:, generation:, place:)
          @launcher = launcher
          @config = launcher.config
          @log = launcher.log
          @channel = channel
          @scoreboard = scoreboard
          @identity = { number: number, generation: generation, place: place }
          @number = number
          @last = false
        end

        # @param app [#call, nil] nil: it is loaded here
        # @return [Integer] exit status
        def run(app)
          prepare
          @config.on_worker_start.each { |block| block.call(@number) }
          @process = ServerProcess.new(@config, app || @launcher.load_app, @launcher.sockets, log: @log,
                                       access_log: @launcher.access_log, scoreboard: @scoreboard, **@identity)
          @process.start
          @channel.write("ready\n")
          obey
          @config.on_worker_stop.each { |block| block.call(@number) }
          0
        rescue StandardError, ::ScriptError => e
          @log.error(e, "worker #{@number}")
          1
        ensure
          @launcher.access_log&.flush
        end

        private

        def prepare
          @stop = Event.new
          ::Process.setproctitle("polyphony: worker #{@number} [starting]")
          ENV.delete('NOTIFY_SOCKET')
          @launcher.sockets.all.each(&:disown)
          OTHERS.each { |name| trap(name) { nil } }
          %w[TERM QUIT].each { |name| ::Signal.trap(name) { told_by(name) } }
        end

        # Called in the middle of whatever runs: where that is, is what one wants to know of a worker that is stuck.
        def told_by(name)
          beat = @process&.last_beat
          if beat && Clock.now - beat > @config.worker_timeout / 2.0
            place = caller(1, 15).reject { |line| line.start_with?(__FILE__) }.map { |line| "\n    #{line}" }.join
            @log.info("#{name}: worker #{@number} has not ticked for #{(Clock.now - beat).round(1)} s, and is here:#{place}")
          end
          @stop.signal
        end

        # Ends when all is over.
        def obey
          orders = spin(:orders) { follow_orders }
          @stop.await
          @process.stop(last: @last)
          orders.stop
        end

        # Without a master there is nobody to work for.
        def follow_orders
          while (order = @channel.gets)
            carry_out(order.chomp)
          end
          @stop.signal
          suspend
        rescue ::SystemCallError
          @stop.signal
        end

        def carry_out(order)
          case order
          when 'stop' then @stop.signal
          when 'last' then @last = true
          when 'now'
            @stop.signal
            @process.hurry
          when 'reopen' then @launcher.reopen_logs
          when 'reload' then reload_certificates
          end
        end

        def reload_certificates
          @launcher.tls&.reload
        rescue StandardError => e
          @log.info("worker #{@number} keeps its certificates: #{e.message}")
        end
      end
      private_constant :Child
    end
  end
end
