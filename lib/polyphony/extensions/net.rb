# frozen_string_literal: true

require 'polyphony/extensions/socket'

module Polyphony
  # Connections and listeners in one call, with or without TLS. OpenSSL is loaded when it is needed.
  module Net
    CONNECT_OPTIONS = %i[secure secure_context alpn_protocols].freeze
    LISTEN_OPTIONS = %i[reuse_addr dont_linger reuse_port backlog secure_context alpn_protocols].freeze
    private_constant :CONNECT_OPTIONS, :LISTEN_OPTIONS

    class << self
      # Connects to a server. With TLS, the handshake is done and the certificate has been checked: against the
      # authorities that the system trusts, unless you give a context.
      # @example
      #   socket = Polyphony::Net.tcp_connect('example.com', 443, secure: true, alpn_protocols: ['http/1.1'])
      # @param host [String] name or address
      # @param port [Integer, String]
      # @param opts [Hash]
      # @option opts [Boolean] :secure TLS; so it is with the following options
      # @option opts [OpenSSL::SSL::SSLContext] :secure_context
      # @option opts [Array<String>, String] :alpn_protocols what we offer, the dearest first
      # @return [TCPSocket, OpenSSL::SSL::SSLSocket] closing the latter closes the connection, too
      # @raise [ArgumentError] for an option it does not know
      def tcp_connect(host, port, opts = {})
        check_options(opts, CONNECT_OPTIONS)
        socket = ::TCPSocket.new(host, port)
        return socket unless secure?(opts)

        begin
          secure(socket, host, client_context(opts))
        rescue Exception # rubocop:disable Lint/RescueException -- nobody else has the socket
          socket.close
          raise
        end
      end

      # Listens for connections.
      # @example
      #   server = Polyphony::Net.tcp_listen('0.0.0.0', 8080, reuse_port: true)
      #   server.accept_loop { |socket| spin { serve(socket) } }
      # @overload tcp_listen(port, opts = {})
      # @overload tcp_listen(host, port, opts = {})
      #   @param host [String, nil] an address of this machine; nil: all of IPv4; +::+: all there are
      #   @param port [Integer, String] 0: one that is free
      #   @param opts [Hash]
      #   @option opts [Boolean] :reuse_addr (true)
      #   @option opts [Boolean] :reuse_port several processes may listen
      #   @option opts [Boolean] :dont_linger for the connections, too
      #   @option opts [Integer] :backlog how many connections may wait to be accepted
      #   @option opts [OpenSSL::SSL::SSLContext] :secure_context with certificate and key
      #   @option opts [Array<String>, String] :alpn_protocols what we speak, the dearest first
      # @return [TCPServer, OpenSSL::SSL::SSLServer]
      # @raise [RuntimeError] without a port
      # @raise [ArgumentError] for an option it does not know
      def tcp_listen(*args)
        opts = args.last.is_a?(Hash) ? args.pop : {}
        raise ArgumentError, "expected a host, a port and options, got #{args.inspect}" if args.size > 2

        check_options(opts, LISTEN_OPTIONS)
        host, port = args.size > 1 ? args : [nil, args.first]
        raise 'no port given: 0 means one that is free' unless port

        server = listen(::Addrinfo.tcp(host || '0.0.0.0', port), opts)
        opts[:secure_context] ? secure_server(server, opts) : server
      end

      # Tells a context which protocols to offer, and which to choose: the first of ours that the client has.
      # @param context [OpenSSL::SSL::SSLContext]
      # @param protocols [Array<String>, String]
      # @return [OpenSSL::SSL::SSLContext]
      def setup_alpn(context, protocols)
        ours = Array(protocols).map(&:to_s)
        raise ArgumentError, 'no protocols given, as in ["h2", "http/1.1"]' if ours.empty?

        context.alpn_protocols = ours
        context.alpn_select_cb = ->(theirs) { (ours & theirs).first }
        context
      end

      private

      def check_options(opts, known)
        unknown = opts.keys - known
        return if unknown.empty?

        raise ArgumentError, "unknown option #{unknown.first.inspect}: there are #{known.map(&:inspect).join(', ')}"
      end

      def secure?(opts)
        opts.fetch(:secure) { opts[:secure_context] || opts[:alpn_protocols] }
      end

      def client_context(opts)
        load_openssl
        context = opts[:secure_context] || OpenSSL::SSL::SSLContext.new.tap(&:set_params)
        setup_alpn(context, opts[:alpn_protocols]) if opts[:alpn_protocols]
        context
      end

      # A certificate for somebody else is refused in the handshake if the context says so, and after it anyway.
      def secure(socket, host, context)
        tls = OpenSSL::SSL::SSLSocket.new(socket, context)
        tls.sync_close = true
        name_peer(tls, host, address: socket.remote_address.ip_address == host)
        tls.connect
        tls.post_connection_check(host) unless (context.verify_mode || OpenSSL::SSL::VERIFY_NONE).zero?
        tls
      end

      # The name goes into the handshake, except for an address: SNI has none of these (RFC 6066, 3). But hostname= is also how
      # OpenSSL learns whom the certificate must be for, and without it warns and lets any pass until the check above.
      def name_peer(tls, host, address:)
        if address then tls.instance_variable_set(:@hostname, host)
        else tls.hostname = host
        end
      end

      def secure_server(server, opts)
        load_openssl
        setup_alpn(opts[:secure_context], opts[:alpn_protocols]) if opts[:alpn_protocols]
        OpenSSL::SSL::SSLServer.new(server, opts[:secure_context])
      end

      def load_openssl
        require 'openssl'
      rescue LoadError => e
        raise LoadError, "TLS needs Ruby's openssl library: #{e.message}"
      end

      # Options come before the address is bound, which TCPServer.new would not allow.
      def listen(address, opts)
        socket = ::Socket.new(address.pfamily, address.socktype, address.protocol)
        socket.reuse_addr if opts.fetch(:reuse_addr, true)
        socket.reuse_port if opts[:reuse_port]
        socket.dont_linger if opts[:dont_linger]
        socket.setsockopt(::Socket::IPPROTO_IPV6, ::Socket::IPV6_V6ONLY, 0) if address.ipv6? && address.ip_address == '::' # all addresses
        socket.bind(address)
        socket.listen(opts[:backlog] || ::Socket::SOMAXCONN)
        as_server(socket)
      rescue Exception # rubocop:disable Lint/RescueException -- nobody else has it
        socket&.close
        raise
      end

      def as_server(socket)
        ::TCPServer.for_fd(socket.fileno).tap { socket.autoclose = false }
      end
    end
  end
end
