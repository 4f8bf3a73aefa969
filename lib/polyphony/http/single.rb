# frozen_string_literal: true

module Polyphony
  module HTTP
    # A server in one process.
    # @!visibility private
    class Single
      # @param launcher [Launcher]
      def initialize(launcher)
        @launcher = launcher
        @config = launcher.config
        @log = launcher.log
        @systemd = launcher.systemd
        @inbox = Queue.new.__for_ourselves
        @status = 0
      end

      # @return [Integer] exit status
      def run
        @launcher.trap_others { |name| @inbox << name }
        app = @launcher.load_app
        @launcher.trap_stops { |name| @inbox << name }
        @config.on_start.each(&:call)
        start(app)
        @launcher.handover.dismiss_workers
        @launcher.banner
        @systemd.notify(ready: 1, mainpid: ::Process.pid, status: 'serving')
        nil until act(@inbox.shift) == :end
        @config.on_worker_stop.each { |block| block.call(0) }
        @launcher.sockets.close_unused
        @status
      end

      private

      def start(app)
        @config.on_worker_start.each { |block| block.call(0) }
        @scoreboard = Scoreboard.new
        @process = ServerProcess.new(@config, app, @launcher.sockets, log: @log, access_log: @launcher.access_log,
                                                                      scoreboard: @scoreboard, place: 1)
        @process.start
        watch if @systemd.interval
      end

      def watch
        spin(:watchdog) do
          every(@systemd.interval / 2) { @systemd.notify(watchdog: 1) }
        end
      end

      def act(event)
        case event
        when 'TERM', 'INT', 'QUIT' then stop(event)
        when 'HUP'  then reload
        when 'USR1' then reopen
        when 'USR2' then restart
        when 'TTIN', 'TTOU' then @log.info("#{event}: there are no workers to add or to take away (--workers)")
        else event
        end
      end

      # One more signal means that there is no time.
      def stop(signal)
        return hurry(signal) if @stopping

        @stopping = true
        @systemd.notify(stopping: 1, status: 'waiting for requests in progress')
        @log.info("#{signal}: stopping, #{running} in progress")
        spin(:stop) do
          @process.stop
          @log.info('stopped')
          @inbox << :end
        end
      end

      def hurry(signal)
        @log.info("#{signal} again: #{running} cut off")
        @process.hurry
      end

      def running
        count = @process.server.stats.running
        "#{count} request#{'s' unless count == 1}"
      end

      def reload
        @systemd.reloading
        @log.info('HUP: certificates were read again; other settings need a restart (USR2)') if @launcher.reload
        @systemd.notify(ready: 1)
      end

      def reopen
        @launcher.reopen_logs
        @log.info('USR1: logs were opened again')
      end

      # New connections wait until the new program accepts them.
      def restart
        return @log.info('USR2: this program cannot be started again by itself') unless @launcher.handover.possible?
        return if @stopping || @restarting

        @restarting = spin(:restart) do
          @systemd.reloading
          trouble = @launcher.handover.trial
          trouble ? refuse(trouble) : become_new
          @restarting = nil
        end
      end

      def refuse(trouble)
        @log.info("USR2: not restarted, since the new program does not start:\n#{trouble}")
        @systemd.notify(ready: 1)
      end

      def become_new
        @stopping = true
        handed = @launcher.sockets.to_hand_over.transform_values { |fd, own| [::IO.for_fd(fd, autoclose: false).dup, own] }
        @launcher.sockets.all.each(&:disown)
        @log.info("USR2: restarting, #{running} in progress")
        @process.stop
        @launcher.handover.exec(handed.values.map(&:first), sockets: handed.transform_values { |io, own| [io.fileno, own] })
      rescue ::SystemCallError => e
        @log.error(e, 'restarting')
        @status = 1
        @inbox << :end
      end
    end
    private_constant :Single
  end
end
