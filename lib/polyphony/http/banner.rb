# frozen_string_literal: true

require 'polyphony/version'

module Polyphony
  module HTTP
    # What a server says about itself when it starts.
    # @!visibility private
    class Banner
      # @param launcher [Launcher]
      def initialize(launcher)
        @launcher = launcher
        @config = launcher.config
      end

      # @return [String]
      def to_s
        ["Polyphony #{VERSION} (#{RUBY_ENGINE} #{RUBY_VERSION}, #{Thread.current.backend.kind}), process #{::Process.pid}",
         row('protocols', protocols),
         *@launcher.sockets.listeners.map { |listener| row('listening', listener.address) },
         *(row('metrics', "#{@launcher.sockets.metrics.address}/metrics") if @launcher.sockets.metrics),
         row('processes', processes),
         row('environment', @config.environment),
         *limits, *notes].map { |line| "#{line}\n" }.join
      end

      # @return [String] after a restart
      def again
        "Polyphony #{VERSION} (#{RUBY_ENGINE} #{RUBY_VERSION}), process #{::Process.pid}: restarted, " \
          "#{@launcher.sockets.listeners.map(&:address).join(', ')}\n"
      end

      private

      def row(name, text)
        format('  %-12s %s', name, text)
      end

      def protocols
        http2 = HTTP.http2? ? 'HTTP/2' : 'no HTTP/2 (it needs the package libnghttp2-dev when the gem is built)'
        ['HTTP/1.1', http2, websocket].join(', ')
      end

      def websocket
        "WebSocket#{' with compression' if WebSocket.const_get(:Codec).deflate?}"
      end

      def processes
        return 'one (--workers N for more)' unless @config.cluster?

        "#{@config.workers} worker#{'s' if @config.workers > 1}, the application is loaded " \
          "#{@config.preload ? 'before they are forked' : 'by each of them'}"
      end

      def limits
        changed = @config.changed_limits
        shown = @config.verbose ? @config.limit_set.to_h.to_h { |name, value| [name, [value, nil]] } : changed
        shown.map do |name, (value, _)|
          default = Limits::TABLE[name].first
          row('limit', "#{name} #{value.inspect}#{" (default #{default.inspect})" unless value == default}")
        end
      end

      def notes
        list = @launcher.sockets.listeners.flat_map(&:notes).uniq
        unused = @launcher.sockets.unused
        list += ["sockets that nobody asked for: #{unused.join(', ')}"] unless unused.empty?
        [*list, *@launcher.shortage].map { |note| row('note', note) }
      end
    end
    private_constant :Banner
  end
end
