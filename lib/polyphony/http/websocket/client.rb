# frozen_string_literal: true

require 'uri'
require 'uri/wss' # uri itself forgets it in Ruby 3.1

module Polyphony
  module HTTP
    class WebSocket
      class << self
        # Connects to a server.
        # @param url [String] +ws://HOST/PATH+ or +wss://HOST/PATH+
        # @param protocols [Array<String>] subprotocols that we speak, the best first
        # @param headers [Hash{String => String}] for the request, as cookies or an origin
        # @param compress [Boolean] whether we offer to compress messages
        # @param limits [Limits, Hash] the ones named +ws_…+, header_time and write_stall
        # @param ssl_context [OpenSSL::SSL::SSLContext, nil] nil: the server's certificate is verified
        # @yield [WebSocket] it is closed at the end of the block
        # @return [WebSocket, Object] what the block returns, if there is one
        # @raise [BadRequest] if the server's answer is none
        # @raise [ClientGone] if it hangs up
        # @example
        #   Polyphony::HTTP::WebSocket.connect('ws://127.0.0.1:8080/chat') do |ws|
        #     ws << 'hello'
        #     ws.receive
        #   end
        def connect(url, protocols: [], headers: {}, compress: true, limits: {}, ssl_context: nil)
          limits = Limits.new(**limits) unless limits.is_a?(Limits)
          socket = Client.new(url, Array(protocols), headers, compress, limits, ssl_context).connect
          return socket unless block_given?

          begin
            yield socket
          ensure
            socket.close
          end
        end
      end

      # The client's side of a handshake.
      # @!visibility private
      class Client
        FIELD = /\A([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)\z/n.freeze

        def initialize(url, protocols, headers, compress, limits, ssl_context)
          @uri = URI(url.to_s.sub(/\Aws(?=s?:)/i, 'http')) # of which Ruby knows paths and ports
          unless url.to_s.match?(/\Awss?:/i) && @uri.host
            raise ArgumentError, "a WebSocket has a URL like ws://HOST/PATH or wss://HOST/PATH, got #{url.inspect}"
          end

          @protocols = protocols
          @headers = headers
          @compress = compress && Codec.deflate?
          @limits = limits
          @ssl_context = ssl_context
          @key = [Random.urandom(16)].pack('m0')
        end

        # @return [WebSocket]
        def connect
          transport = open_transport
          transport.write(request)
          buffer = String.new(encoding: Encoding::BINARY)
          options = check(*read_head(transport, buffer))
          socket = WebSocket.new(Stream.new(transport, buffer), limits: @limits, client: true, **options)
        ensure
          transport&.close unless socket
        end

        private

        def open_transport
          host = @uri.hostname
          socket = ::TCPSocket.new(host, @uri.port)
          socket.setsockopt(::Socket::IPPROTO_TCP, ::Socket::TCP_NODELAY, 1)
          @uri.scheme == 'https' ? start_tls(socket, host) : Transport.new(socket, @limits)
        end

        def start_tls(socket, host)
          require 'polyphony/http/tls_transport'
          ssl = ::OpenSSL::SSL::SSLSocket.new(socket, @ssl_context || verifying_context)
          ssl.sync_close = true
          ssl.hostname = host
          done = Polyphony.backend_timeout(@limits.handshake_time, nil, false) { ssl.connect }
          raise TooSlow, "no TLS handshake within #{@limits.handshake_time} s" unless done

          TLSTransport.new(ssl, @limits)
        ensure
          socket.close unless done
        end

        def verifying_context
          ::OpenSSL::SSL::SSLContext.new.tap(&:set_params)
        end

        def request
          fields = { 'host' => authority, 'upgrade' => 'websocket', 'connection' => 'Upgrade', 'sec-websocket-key' => @key,
                     'sec-websocket-version' => Handshake::VERSION }
          fields['sec-websocket-protocol'] = @protocols.join(', ') unless @protocols.empty?
          fields['sec-websocket-extensions'] = Extension.offer if @compress
          lines = fields.merge(@headers).map { |name, value| field(name.to_s, value.to_s) }
          "GET #{@uri.request_uri} HTTP/1.1\r\n#{lines.join}\r\n"
        end

        def authority
          [@uri.host, (@uri.port unless @uri.port == @uri.default_port)].compact.join(':')
        end

        def field(name, value)
          line = "#{name}: #{value}"
          raise ArgumentError, "cannot send the header #{name.inspect}" unless FIELD.match?(line.b)

          "#{line}\r\n"
        end

        # @return [Array(String, Hash)] status line and fields; what came behind them stays in the buffer
        def read_head(transport, buffer)
          deadline = Clock.now + @limits.header_time
          until (cut = buffer.index("\r\n\r\n"))
            raise BadRequest, 'the head of the answer is too big' if buffer.bytesize > @limits.header_block

            count = transport.fill(buffer, [deadline - Clock.now, 0.001].max)
            raise TooSlow, "no answer within #{@limits.header_time} s" if count == false
            raise ClientGone, 'the server has hung up' if count.nil?
          end
          status, *lines = buffer.slice!(0, cut + 4).split("\r\n")
          [status.to_s, parse_fields(lines)]
        end

        def parse_fields(lines)
          lines.each_with_object({}) do |line, fields|
            match = FIELD.match(line) or raise BadRequest, 'a header that is none'
            name, value = match[1].downcase, match[2].strip
            fields[name] = fields.key?(name) ? "#{fields[name]}, #{value}" : value
          end
        end

        # @return [Hash] for WebSocket#initialize
        def check(status, fields)
          unless status.start_with?('HTTP/1.1 101')
            raise BadRequest, "the server answered #{status[0, 80].inspect} in place of 101"
          end

          fine = fields['upgrade'].to_s.casecmp?('websocket') && HTTP.__list(fields['connection']).any? { |word| word.casecmp?('upgrade') }
          raise BadRequest, 'the server does not upgrade to websocket' unless fine
          raise BadRequest, 'the answer is not to our key' unless fields['sec-websocket-accept'] == Handshake.accept(@key)

          protocol = fields['sec-websocket-protocol']
          raise BadRequest, 'a subprotocol that was not offered' unless protocol.nil? || @protocols.include?(protocol)
          raise BadRequest, 'an extension that was not offered' if fields['sec-websocket-extensions'] && !@compress

          { subprotocol: protocol, deflate: Extension.agreed(fields['sec-websocket-extensions']) }
        end
      end

      private_constant :Client
    end
  end
end
