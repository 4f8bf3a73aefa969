# frozen_string_literal: true

require 'polyphony'
require 'polyphony/http/errors'
require 'polyphony/polyphony_http_ext'

module Polyphony
  # A web server: HTTP/1.1, HTTP/2 and WebSocket, with TLS and without, for Rack applications and for
  # handlers of your own. A handler runs in a fiber as soon as the head of its request is in.
  #
  # @example
  #   require 'polyphony/http'
  #
  #   server = Polyphony::HTTP::Server.new('http://127.0.0.1:8080') do |request|
  #     request.respond("Hello from #{request.path}\n", 'content-type' => 'text/plain')
  #   end
  #   server.run
  module HTTP
    autoload :AccessLog, 'polyphony/http/access_log'
    autoload :Check, 'polyphony/http/check'
    autoload :Config, 'polyphony/http/config'
    autoload :ConfigError, 'polyphony/http/config'
    autoload :HandlerFile, 'polyphony/http/handler_file'
    autoload :Launcher, 'polyphony/http/launcher'
    autoload :LogFile, 'polyphony/http/log_file'
    autoload :Scoreboard, 'polyphony/http/scoreboard'
    autoload :Systemd, 'polyphony/http/systemd'
    autoload :RackHandler, 'polyphony/http/rack_handler'
    autoload :RackupHandler, 'polyphony/http/rackup_handler'

    class << self
      # @return [Boolean] whether HTTP/2 was compiled in: it needs libnghttp2
      def http2?
        const_defined?(:HTTP2)
      end

      # A regular expression that has blanks in front of the comma would look at each of them as often as there are others before it.
      # @param text [String, nil] of a header, as Upgrade
      # @return [Array<String>]
      # @!visibility private
      def __list(text)
        text.to_s.split(',').map(&:strip)
      end
    end
  end
end

require 'polyphony/http/limits'
require 'polyphony/http/status'
require 'polyphony/http/log'
require 'polyphony/http/stats'
require 'polyphony/http/transport'
require 'polyphony/http/stream'
require 'polyphony/http/request'
require 'polyphony/http/websocket'
require 'polyphony/http/websocket/extension'
require 'polyphony/http/websocket/handshake'
require 'polyphony/http/websocket/client'
require 'polyphony/http/request_websocket'
require 'polyphony/http/static'
require 'polyphony/http/request_files'
require 'polyphony/http/event_stream'
require 'polyphony/http/http1'
require 'polyphony/http/http2' if Polyphony::HTTP.http2?
require 'polyphony/http/connection'
require 'polyphony/http/listener'
require 'polyphony/http/crew'
require 'polyphony/http/server'

module Polyphony
  module HTTP
    private_constant :Counts, :Crew
    private_constant :Lobby if const_defined?(:Lobby) # there is epoll
  end
end
