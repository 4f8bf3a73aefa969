# frozen_string_literal: true

require 'digest/sha1'

module Polyphony
  module HTTP
    class WebSocket
      # How a request becomes a WebSocket, or is told why not.
      # @!visibility private
      class Handshake
        VERSION = '13'
        GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        KEY = %r{\A[A-Za-z0-9+/]{21}[AQgw]==\z}.freeze
        PORTS = { 'http' => 80, 'https' => 443 }.freeze
        ORIGIN = %r{\A(https?)://([^/?#@\s]+?)(?::(\d{1,5}))?\z}i.freeze

        # @return [String] the answer to a key
        def self.accept(key)
          [Digest::SHA1.digest(key + GUID)].pack('m0')
        end

        def initialize(request, protocols, origins, compress)
          @request = request
          @protocols = Array(protocols)
          @origins = check_origins(origins)
          @compress = compress
        end

        # @return [WebSocket]
        # @raise [BadRequest] after it was answered
        def run
          @request.version == '2' ? check_http2 : check_http1
          check_version
          check_origin
          headers, options = negotiate
          connection = @request.connection
          stream = @request.upgrade('websocket', headers)
          WebSocket.new(stream, limits: connection.limits, connection: connection, **options)
        end

        private

        def check_origins(origins)
          return origins if %i[same any].include?(origins)
          return origins.map { |origin| origin.is_a?(Regexp) ? origin : origin.to_s.downcase } if origins.is_a?(Array)

          raise ArgumentError, "origins must be :same, :any or an Array of origins, got #{origins.inspect}"
        end

        def decline(status, why, headers = {})
          @request.respond("#{Status::PHRASES[status]}\n", { 'content-type' => 'text/plain' }.merge(headers), status: status)
          raise BadRequest.new("WebSocket: #{why}", status)
        end

        def check_http2
          decline(405, 'upgrade without an extended CONNECT', 'allow' => 'CONNECT') unless @request.verb == 'CONNECT'
          decline(400, 'no websocket asked for') unless @request.websocket?
        end

        def check_http1
          decline(405, 'upgrade with another method than GET', 'allow' => 'GET') unless @request.verb == 'GET'
          decline(400, 'upgrade with a version before HTTP/1.1') if @request.version == '1.0'
          decline(400, 'no upgrade to websocket asked for') unless token?('connection', 'upgrade') && token?('upgrade', 'websocket')
          decline(400, 'upgrade with a body') if @request.body?
        end

        def check_version
          if @request['sec-websocket-version'] != VERSION
            decline(426, 'another version than 13', 'sec-websocket-version' => VERSION)
          end
          return if @request.version == '2' || @request['sec-websocket-key']&.match?(KEY)

          decline(400, 'no valid key')
        end

        def token?(name, token)
          HTTP.__list(@request[name]).any? { |part| part.casecmp?(token) }
        end

        # Programs send none; browsers always do, and there a foreign page must not speak for its visitor.
        def check_origin
          origin = @request['origin'] or return
          decline(403, 'foreign origin') unless welcome?(origin)
        end

        def welcome?(origin)
          case @origins
          when :any then true
          when :same then same?(origin)
          else @origins.any? { |ours| ours === origin || ours === origin.downcase }
          end
        end

        # Without TLS we may stand behind somebody who has it, so both schemes are ours.
        def same?(origin)
          match = ORIGIN.match(origin) or return false
          scheme = match[1].downcase
          return false if @request.scheme == 'https' && scheme != 'https'

          port = match[3] ? Integer(match[3], 10) : PORTS[scheme]
          host, ours = split_authority(@request.authority.to_s)
          host.casecmp?(match[2]) && port == (ours || PORTS[scheme])
        end

        def split_authority(authority)
          match = /\A(.*?)(?::(\d{1,5}))?\z/m.match(authority)
          [match[1], match[2] && Integer(match[2], 10)]
        end

        # @return [Array(Hash, Hash)] headers of the answer, arguments of the WebSocket
        def negotiate
          headers = {}
          options = {}
          headers['sec-websocket-accept'] = self.class.accept(@request['sec-websocket-key']) unless @request.version == '2'
          if (options[:subprotocol] = choose_protocol)
            headers['sec-websocket-protocol'] = options[:subprotocol]
          end
          if @compress && (answer = Extension.accept(@request['sec-websocket-extensions'], @compress == :context))
            headers['sec-websocket-extensions'], options[:deflate] = answer
          end
          [headers, options]
        end

        # The client names them as it likes them best.
        def choose_protocol
          asked = HTTP.__list(@request['sec-websocket-protocol'])
          (asked & @protocols).first
        end
      end

      private_constant :Handshake

      # @return [WebSocket]
      # @!visibility private
      def self.__accept(request, protocols, origins, compress)
        Handshake.new(request, protocols, origins, compress).run
      end
    end
  end
end
