# frozen_string_literal: true

require 'polyphony/version'

module Polyphony
  module HTTP
    # Numbers of all processes of a server, as Prometheus reads them (text format 0.0.4).
    # @!visibility private
    class Metrics
      CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

      # @param scoreboard [Scoreboard]
      def initialize(scoreboard)
        @scoreboard = scoreboard
      end

      # @return [String]
      def to_s
        @entries = @scoreboard.entries
        @sum = @entries.inject(Stats.new) { |sum, entry| sum.add(entry.stats) }
        @text = +''
        totals
        responses
        durations
        workers
        @text
      end

      private

      def totals
        Stats::COUNTERS.each do |name, what|
          gauge = Stats::GAUGES.include?(name)
          family(gauge ? names(name) : "#{names(name)}_total", what, gauge ? 'gauge' : 'counter') { [['', @sum.public_send(name)]] }
        end
      end

      def names(name)
        { open: 'polyphony_connections_open', running: 'polyphony_requests_running',
          bytes_out: 'polyphony_response_bytes' }.fetch(name) { "polyphony_#{name}" }
      end

      def responses
        family('polyphony_responses_total', 'answers by the class of their status', 'counter') do
          Stats::CLASSES.map { |digit| ["{class=\"#{digit}xx\"}", @sum.by_class[digit]] }
        end
      end

      def durations
        counts = @sum.durations or return
        so_far = 0
        rows = [*Stats::BUCKETS, '+Inf'].each_with_index.map { |limit, i| ["_bucket{le=\"#{limit}\"}", so_far += counts[i]] }
        family('polyphony_request_duration_seconds', 'how long requests took', 'histogram') do
          [*rows, ['_sum', @sum.seconds.round(6)], ['_count', so_far]]
        end
      end

      def workers
        processes = @entries.reject { |entry| entry.state == :total }
        family('polyphony_info', 'what runs', 'gauge') do
          [["{version=\"#{VERSION}\",ruby=\"#{RUBY_VERSION}\",backend=\"#{Thread.current.backend.kind}\"}", 1]]
        end
        family('polyphony_workers', 'processes that serve, by what they do', 'gauge') do
          %i[booting serving draining].map { |state| ["{state=\"#{state}\"}", processes.count { |one| one.state == state }] }
        end
        each_process(processes, 'polyphony_worker_connections', 'connections open') { |one| one.stats.open }
        each_process(processes, 'polyphony_worker_running', 'requests in progress') { |one| one.stats.running }
        each_process(processes, 'polyphony_worker_memory_bytes', 'resident memory', &:memory)
        each_process(processes, 'polyphony_worker_lag_seconds', 'how late the loop last came to its timer') { |one| one.lag.round(6) }
        each_process(processes, 'polyphony_worker_age_seconds', 'time since it was started') { |one| (Clock.now - one.started).round(3) }
      end

      def each_process(processes, name, what)
        family(name, what, 'gauge') { processes.map { |one| ["{worker=\"#{one.number}\",pid=\"#{one.pid}\"}", yield(one)] } }
      end

      def family(name, what, type)
        @text << "# HELP #{name} #{what}\n# TYPE #{name} #{type}\n"
        yield.each { |suffix, value| @text << "#{name}#{suffix} #{value}\n" }
      end
    end
    private_constant :Metrics
  end
end
