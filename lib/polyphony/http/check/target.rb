# frozen_string_literal: true

require 'uri'

module Polyphony
  module HTTP
    class Check
      # The server under attack: where it is, how one connects, and what it can do.
      class Target
        # What may be asked of it.
        SCHEMES = { 'http' => 80, 'https' => 443, 'ws' => 80, 'wss' => 443 }.freeze
        private_constant :SCHEMES

        # @return [String]
        attr_reader :host
        # @return [Integer]
        attr_reader :port
        # @return [String] path and query
        attr_reader :path
        # @return [Boolean]
        attr_reader :tls

        # @param url [String] http, https, ws or wss
        # @param insecure [Boolean] whether any certificate will do
        # @raise [ArgumentError]
        def initialize(url, insecure: false)
          uri = parse(url)
          @host = uri.hostname
          @port = uri.port || SCHEMES.fetch(uri.scheme)
          @path = uri.path.empty? ? '/' : uri.request_uri
          @tls = %w[https wss].include?(uri.scheme)
          @insecure = insecure
        end

        # @return [Boolean] whether it is on this machine, by every address it has
        def loopback?
          addresses = ::Addrinfo.getaddrinfo(@host, @port, nil, :STREAM)
          addresses.any? && addresses.all? { |address| address.ipv4_loopback? || address.ipv6_loopback? }
        end

        # @return [String] for Host
        def authority
          host = @host.include?(':') ? "[#{@host}]" : @host
          @port == (@tls ? 443 : 80) ? host : "#{host}:#{@port}"
        end

        # @return [String]
        def to_s
          "#{@tls ? 'https' : 'http'}://#{authority}#{@path}"
        end

        # @param alpn [Array<String>, nil] what we offer
        # @return [Wire] after the handshake, if there is one
        # @raise [SystemCallError, OpenSSL::SSL::SSLError]
        def connect(alpn: ['http/1.1'], &configure)
          socket = tcp
          wire = Wire.new(@tls ? handshake(socket, alpn, &configure) : socket)
        ensure
          socket&.close unless wire
        end

        # @return [Wire] without TLS, whatever the server speaks
        def connect_plain
          Wire.new(tcp)
        end

        # A good request on a fresh connection.
        # @return [Array(Integer, Float)] status and seconds; status nil if there was no answer
        def probe(within: 5)
          began = Clock.now
          wire = connect
          wire.send("GET #{@path} HTTP/1.1\r\nHost: #{authority}\r\nConnection: close\r\n\r\n", within: within)
          wire.read(within) { Answers.new(wire.received, ended: wire.closed?).finals.any?(&:whole) }
          [Answers.new(wire.received, ended: wire.closed?).statuses.first, Clock.now - began]
        rescue ::SystemCallError, ::OpenSSL::SSL::SSLError
          [nil, Clock.now - began]
        ensure
          wire&.close
        end

        # @return [Boolean] whether it speaks HTTP/2 here: by ALPN, or by prior knowledge
        def http2?
          wire = connect(alpn: ['h2'])
          return false if @tls && wire.io.alpn_protocol != 'h2'

          client = H2Client.new(wire)
          client.start
          client.pump(2) { client.settled? || wire.received.start_with?('HTTP/') }
          client.settled?
        rescue ::SystemCallError, ::OpenSSL::SSL::SSLError
          false
        ensure
          wire&.close
        end

        private

        def parse(url)
          url = "http://#{url}" unless url.match?(%r{\A\w+://})
          uri = ::URI.parse(url)
          return uri if SCHEMES.key?(uri.scheme) && uri.hostname

          raise ArgumentError, "cannot check #{url.inspect}: say http://HOST:PORT/ or https://HOST:PORT/"
        rescue ::URI::InvalidURIError
          raise ArgumentError, "cannot check #{url.inspect}: say http://HOST:PORT/ or https://HOST:PORT/"
        end

        def tcp
          ::Socket.tcp(@host, @port, connect_timeout: 5)
        end

        def handshake(socket, alpn)
          context = ::OpenSSL::SSL::SSLContext.new
          context.set_params(verify_mode: @insecure ? ::OpenSSL::SSL::VERIFY_NONE : ::OpenSSL::SSL::VERIFY_PEER)
          context.alpn_protocols = alpn if alpn
          yield context if block_given?
          ssl = ::OpenSSL::SSL::SSLSocket.new(socket, context)
          ssl.hostname = @host unless @host.match?(/\A[\d.]+\z|:/)
          Polyphony.backend_timeout(10, nil, false) { ssl.connect } || raise(::Errno::ETIMEDOUT, 'TLS handshake')
          ssl
        end
      end
    end
  end
end
