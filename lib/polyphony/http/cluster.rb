# frozen_string_literal: true

require 'socket'
require 'polyphony/http/cluster/worker'
require 'polyphony/http/cluster/child'
require 'polyphony/http/cluster/restart'

module Polyphony
  module HTTP
    # A server in several processes: a master that keeps workers running, and never serves itself. All accept from the
    # same sockets, so who is busy leaves connections to the others.
    # @!visibility private
    class Cluster
      include Restart

      # Seconds: a worker that ended sooner than this has not worked, and the next one has to wait.
      SHORT_LIFE = 5
      # How long.
      PAUSES = { from: 0.5, to: 30 }.freeze
      # Seconds that a worker has, beyond those for its requests, to end.
      GRACE = 5

      # @param launcher [Launcher]
      def initialize(launcher)
        @launcher = launcher
        @log = launcher.log
        @systemd = launcher.systemd
        @handover = launcher.handover
        @inbox = Queue.new.__for_ourselves
        @workers = []
        @failures = Hash.new(0)
        @waiting = {}
        @pauses = Backoff.from(PAUSES)
        @generation = @handover.generation + 1
        @count = config.workers
        @status = 0
      end

      # @return [Integer] exit status
      def run
        @launcher.trap_others { |name| @inbox << name }
        @scoreboard = Scoreboard.new(fd: @handover.scoreboard)
        adopt
        preload
        @launcher.trap_stops { |name| @inbox << name }
        config.on_start.each(&:call)
        spin(:ticker) { every(interval) { @inbox << :tick } }
        start
        act(@inbox.shift) until done?
        finish
      rescue Exception # rubocop:disable Lint/RescueException -- they would be waited for in vain
        @workers.each(&:abandon)
        raise
      end

      private

      def config
        @launcher.config
      end

      def interval
        [ServerProcess::BEAT, config.worker_timeout / 4.0, (@systemd.interval || ServerProcess::BEAT * 3) / 3].min
      end

      def act(event)
        case event
        when 'TERM', 'INT', 'QUIT' then stop(event)
        when 'HUP'  then reload
        when 'USR1' then reopen
        when 'USR2' then restart
        when 'TTIN' then change_count(1)
        when 'TTOU' then change_count(-1)
        when :tick  then tick
        when Array  then __send__(*event)
        end
      end

      # --- the beginning and the end -------------------------------------------------------------

      # Old workers serve until new ones do.
      def adopt
        @handover.workers.each do |left|
          channel = ::UNIXSocket.for_fd(left['channel'])
          channel.close_on_exec = true
          worker = Worker.new(number: left['number'], pid: left['pid'], generation: left['generation'],
                              place: left['place'], channel: channel, state: :serving)
          keep(worker)
          worker.stop(drain_time) if left['stopping']
        end
      end

      def preload
        return unless config.preload

        @app = @launcher.load_app
        ::Process.respond_to?(:warmup) ? ::Process.warmup : GC.start
      rescue StandardError, ::ScriptError => e
        raise if @workers.empty?

        @broken = true
        @log.error(e, 'loading the application; the old workers go on, USR2 tries again')
      end

      def start
        @workers.empty? ? keep_up : roll
        @launcher.banner
        show
      end

      def done?
        @stopping && @workers.empty?
      end

      def finish
        @launcher.sockets.close
        @launcher.sockets.close_unused
        @log.info('stopped')
        @status
      end

      # One more signal means that there is no time.
      def stop(why)
        if @stopping
          @log.info("#{why} again: requests in progress are cut off")
          return @workers.each { |worker| worker.hurry(GRACE) }
        end

        @stopping = true
        @systemd.notify(stopping: 1, status: 'waiting for requests in progress')
        @log.info("#{why}: stopping #{count_text(@workers.size, 'worker')}, " \
                  "#{count_text(@scoreboard.total.running, 'request')} in progress")
        @launcher.sockets.leave
        @workers.each { |worker| worker.stop(drain_time, last: true) }
      end

      def drain_time
        config.limit_set.drain_time + config.drain_delay + GRACE
      end

      # --- workers -------------------------------------------------------------------------------

      # As many as there should be.
      def keep_up
        return if @stopping || @broken

        (1..@count).each { |number| spawn_worker(number) unless @waiting[number] || at_work(number) }
        @workers.each { |worker| worker.stop(drain_time) if worker.number > @count && !worker.stopping? }
      end

      def at_work(number)
        @workers.find { |worker| worker.number == number && !worker.stopping? }
      end

      # @return [Worker]
      def spawn_worker(number)
        place = @scoreboard.take(number: number, generation: @generation)
        ours, theirs = ::UNIXSocket.pair
        pid = Polyphony.fork { become_child(theirs, ours, number, place) }
        theirs.close
        keep(Worker.new(number: number, pid: pid, generation: @generation, place: place, channel: ours))
      end

      def keep(worker)
        @workers << worker
        spin(:worker) { worker.follow { |what| @inbox << [what, worker] } }
        worker
      end

      def become_child(channel, other_end, number, place)
        [other_end, *@workers.map(&:channel)].each(&:close)
        child = Child.new(@launcher, channel, @scoreboard, number: number, generation: @generation, place: place)
        exit child.run(@app)
      end

      def ready(worker)
        @log.info("worker #{worker.number} is ready (process #{worker.pid})") if @served || config.verbose
        show
        return if @served || @workers.any? { |one| one.state == :booting }

        @served = true
        @launcher.sockets.close_unused unless @rolling
        @systemd.notify(ready: 1, mainpid: ::Process.pid, status: status)
      end

      def gone(worker)
        @workers.delete(worker)
        last = @scoreboard.leave(worker.place)
        return if worker_was_stopped(worker)

        @log.info("worker #{worker.number} (process #{worker.pid}) #{worker.fate} after #{worker.age.round(1)} s; " \
                  "its last word was: #{last || 'nothing'}")
        @served || @handover.any? ? replace(worker) : give_up(worker)
      end

      # The successor of one that was told to stop is there already, or it is one too many.
      def worker_was_stopped(worker)
        return false unless worker.told?

        @log.info("worker #{worker.number} (process #{worker.pid}) #{worker.fate}") unless worker.status&.success?
        keep_up
        true
      end

      # None was ever ready: there is no use in trying again and again.
      def give_up(worker)
        @status = 1
        stop("worker #{worker.number} could not start") unless @stopping
      end

      # At once, unless it died young.
      def replace(worker)
        number = worker.number
        return if @stopping || @rolling_number == number

        return keep_up_after(0, number) if worker.age >= SHORT_LIFE

        pause = @pauses.delay(@failures[number])
        @failures[number] += 1
        @log.info("worker #{number} died young: the next one is started in #{pause.round(1)} s") if pause > 1
        keep_up_after(pause, number)
      end

      def keep_up_after(pause, number)
        @failures[number] = 0 if pause.zero?
        return keep_up if pause.zero?

        @waiting[number] = true
        spin(:pause) do
          sleep pause
          @waiting.delete(number)
          @inbox << [:keep_up]
        end
      end

      # --- the clock -----------------------------------------------------------------------------

      def tick
        entries = @scoreboard.entries.to_h { |entry| [entry.place, entry] }
        @workers.each { |worker| check(worker, entries[worker.place]) }
        @systemd.notify(watchdog: 1, status: status) if @systemd.interval
        show
      end

      def check(worker, entry)
        return late(worker, 'has not ended in time', entry) if worker.overdue?
        return late(worker, "was not ready within #{config.boot_timeout} s", entry) if booting_too_long?(worker)
        return if worker.state == :booting || entry.nil? || Clock.now - entry.beat < config.worker_timeout

        late(worker, "has not ticked for #{(Clock.now - entry.beat).round(1)} s", entry) unless worker.asked?
      end

      def booting_too_long?(worker)
        worker.state == :booting && worker.age > config.boot_timeout
      end

      def late(worker, what, entry)
        @log.info("worker #{worker.number} (process #{worker.pid}) #{what}: #{worker.asked? ? 'KILL' : 'TERM'}; " \
                  "its last word was: #{entry || 'nothing'}")
        worker.end_it([GRACE, config.worker_timeout].min)
        keep_up unless @rolling
      end

      def show
        total = @scoreboard.total
        @systemd.notify(status: status(total)) if @systemd.notify? && !@stopping
        ::Process.setproctitle("polyphony#{" (#{config.name})" if config.name}: master #{addresses} [#{status(total)}]")
      end

      def status(total = @scoreboard.total)
        "#{count_text(@workers.count { |one| one.state == :serving }, 'worker')}, #{total.open} connections, " \
          "#{total.running} running, #{total.requests} requests"
      end

      def addresses
        @launcher.sockets.listeners.map(&:address).join(', ')
      end

      def count_text(count, what)
        "#{count} #{what}#{'s' unless count == 1}"
      end

      # --- signals -------------------------------------------------------------------------------

      def reload
        @systemd.reloading
        if @launcher.reload
          @count = config.workers if config.cluster?
          @workers.each { |worker| worker.tell('reload') }
          @log.info("HUP: configuration and certificates were read again, #{count_text(@count, 'worker')}; " \
                    'limits and the like are for workers to come (USR2)')
          keep_up
        end
        @systemd.notify(ready: 1)
      end

      def reopen
        @launcher.reopen_logs
        @workers.each { |worker| worker.tell('reopen') }
        @log.info('USR1: logs were opened again')
      end

      def change_count(by)
        @count = [@count + by, 1].max
        @log.info("#{by.positive? ? 'TTIN' : 'TTOU'}: #{count_text(@count, 'worker')}")
        keep_up
      end
    end
    private_constant :Cluster
  end
end
