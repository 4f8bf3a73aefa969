# frozen_string_literal: true

module Polyphony
  module HTTP
    class Cluster
      # The rolling restart of a cluster: the master becomes a new program, which replaces the workers.
      # @!visibility private
      module Restart
        private

        # The process becomes a new program, which then replaces the workers one after the other.
        def restart
          return @log.info('USR2: this program cannot be started again by itself') unless @handover.possible?
          return if @stopping
          return @log.info('USR2: a restart is under way') if @rolling

          @rolling = true
          spin(:restart) do
            @systemd.reloading
            trouble = @handover.trial
            trouble ? refuse(trouble) : @inbox << [:become_new]
          end
        end

        def refuse(trouble)
          @rolling = false
          @log.info("USR2: not restarted, since the new program does not start:\n#{trouble}")
          @systemd.notify(ready: 1)
        end

        def become_new
          return if @stopping

          @log.info('USR2: restarting')
          sockets = @launcher.sockets.to_hand_over
          ios = [@scoreboard.file, *sockets.values.map(&:first), *@workers.map(&:channel)]
          @handover.exec(ios, sockets: sockets, workers: @workers.map(&:to_hand_over), generation: @generation,
                              scoreboard: @scoreboard.file.fileno)
        rescue ::SystemCallError => e
          @rolling = false
          @log.error(e, 'restarting')
        end

        # One at a time: there is never one less than there should be, and never more than one more.
        def roll
          return if @broken

          @rolling = true
          spin(:roll) do
            renew_all
            @rolling = false
            @launcher.sockets.close_unused
            @log.info("generation #{@generation} serves: #{status}")
            @systemd.notify(ready: 1, status: status)
            @inbox << [:keep_up]
          end
        end

        def renew_all
          (1..@count).each do |number|
            break @log.info("worker #{number} could not start: the old ones go on") unless renew(number)
          end
        end

        # @return [Boolean] whether the new one is there
        def renew(number)
          @rolling_number = number
          olds = @workers.select { |worker| worker.number == number && worker.generation < @generation }
          return true if @stopping
          return false unless spawn_worker(number).await_boot

          olds.each { |old| old.stop(drain_time) }
          olds.each(&:await_end)
          true
        ensure
          @rolling_number = nil
        end
      end
      private_constant :Restart
    end
  end
end
