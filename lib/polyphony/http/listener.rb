# frozen_string_literal: true

require 'socket'
require 'polyphony/http/listening'
require 'polyphony/http/proxy_protocol'

module Polyphony
  module HTTP
    autoload :TLS, 'polyphony/http/tls'
    autoload :TLSTransport, 'polyphony/http/tls_transport'

    # A place where a server takes connections: a port, a unix socket or a socket that was handed to us.
    class Listener
      # What the system may be out of. A connection that cannot be accepted stays in the kernel's queue, where asking again at
      # once would find it.
      SHORTAGES = [::Errno::EMFILE, ::Errno::ENFILE, ::Errno::ENOBUFS, ::Errno::ENOMEM].freeze
      # Seconds: how long accepting pauses then, and how long before it is told again.
      SHORTAGE_PAUSE = 0.1
      SHORTAGE_SILENCE = 10
      # Connections that are there are accepted so many at a time. With one, a request on a connection of its own costs
      # a sixth more, in switches between accepting and serving (bench/net/http, row close).
      BATCH = 8
      private_constant :BATCH, :SHORTAGES, :SHORTAGE_PAUSE, :SHORTAGE_SILENCE

      # @return [String] as in +http://127.0.0.1:8080+, +https://[::]:443+, +unix:/run/app.sock+
      attr_reader :address
      # @return [TCPServer, UNIXServer]
      attr_reader :socket
      # @return [Integer, nil] the port; nil for a unix socket
      attr_reader :port
      # @return [TLS, nil]
      attr_reader :tls

      # Opens the socket.
      # @param address [String, Integer, BasicSocket] +http://HOST:PORT+, +https://HOST:PORT+, +unix:PATH+ (+unix:@NAME+:
      #   without a file), +fd://NUMBER+, +HOST:PORT+, a port on all IPv4 addresses, or a socket that listens.
      #   +[::]+ is all addresses of IPv6 and IPv4
      # @param tls [TLS, Hash, Symbol, nil] for https, see TLS.for; also for an address that does not say which it is
      # @param proxy [Boolean, String, Array<String>] whether connections begin with a header of the PROXY protocol; with
      #   addresses or networks: and come only from these
      # @param reuse_port [Boolean] whether other processes may listen there, too
      # @param backlog [Integer] how many connections may wait to be accepted
      # @param mode [Integer, nil] permissions of a unix socket, as in 0o660; nil: what umask leaves
      # @param shared [Boolean] whether other processes accept from the same socket
      # @raise [ArgumentError] for an address that is none
      # @raise [SystemCallError] if it cannot be had; says why, and what to do
      # @raise [TLS::Error] for certificates that cannot be used
      def initialize(address, tls: nil, proxy: false, reuse_port: false, backlog: 1024, mode: nil, shared: false)
        @shared = shared
        @last = false
        @short = nil
        @proxy = ProxyProtocol.trusted(proxy)
        @tls = tls_for(address, tls)
        @listening = Listening.new(address, reuse_port: reuse_port, backlog: backlog, mode: mode)
        @socket = @listening.socket
        # Connections inherit it. What is written goes out at once, and is written in one go.
        @socket.setsockopt(::Socket::IPPROTO_TCP, ::Socket::TCP_NODELAY, 1) if @socket.is_a?(::TCPServer)
        @address = name_of(@socket)
        @port = @socket.local_address.then { |local| local.ip? ? local.ip_port : nil }
      end

      # @return [Share, nil] how connections are shared with other processes
      # @!visibility private
      attr_accessor :share

      # @return [Log] where it says what goes wrong
      # @!visibility private
      attr_writer :log

      # @return [Boolean]
      def tls?
        !@tls.nil?
      end

      # Accepts until it is closed. The next connection is accepted when the block has returned.
      # @yield [BasicSocket]
      def accept_loop(&block)
        klass = @socket.is_a?(::UNIXServer) ? ::UNIXSocket : ::TCPSocket
        @shared ? accept_one_by_one(&block) : Polyphony.backend_accept_loop(@socket, klass, BATCH, &block)
      rescue *SHORTAGES => e
        wait_out(e)
        retry
      rescue ::IOError
        raise unless @socket.closed?
      end

      # Others accept no more, either: who waits in the kernel's queue waits for us.
      # @return [nil]
      # @!visibility private
      def last_one
        @last = true
        nil
      end

      # Accepts those that are there already, unless other processes can.
      # @yield [BasicSocket]
      # @!visibility private
      def accept_rest
        return if (@shared && !@last) || @socket.closed?

        while (socket = accept_if_there) != :wait_readable
          yield socket
        end
      rescue ::SystemCallError
        nil # what cannot be accepted now is refused
      end

      # Waits for what a proxy has to say, and for the handshake, if there are such.
      # @return [Transport]
      # @raise [BadRequest, ClientGone]
      # @!visibility private
      def transport(socket, connection)
        ProxyProtocol.read(socket, connection, @proxy) if @proxy
        @tls ? TLSTransport.accept(socket, @tls, connection) : Transport.new(socket, connection.limits)
      end

      # @return [Array<String>] what whoever starts the server should know
      def notes
        @tls ? @tls.notes : []
      end

      # @return [nil]
      def close
        @listening.close
      end

      # @return [Boolean] whether the file of a unix socket is removed when it is closed
      def own_path?
        @listening.own_path?
      end

      # Has the file of a unix socket that was handed to us removed when it is closed.
      # @return [nil]
      def own_path
        @listening.own_path
      end

      # Leaves the file of a unix socket alone when it is closed: another process listens there.
      # @return [nil]
      def disown
        @listening.disown
      end

      private

      # A kernel that is asked for all that come gives all to the process that was there first. And an accept that is
      # cancelled may have got a connection, which would be lost; waiting for one takes none.
      def accept_one_by_one
        loop do
          @socket.wait_readable
          @share&.give_way
          socket = accept_if_there
          yield socket unless socket == :wait_readable
        end
      end

      # It may be gone before we come to it.
      def accept_if_there
        @socket.accept_nonblock(exception: false)
      rescue ::Errno::ECONNABORTED, ::Errno::EPROTO, ::Errno::ETIMEDOUT, ::Errno::ENETDOWN, ::Errno::EHOSTUNREACH
        :wait_readable
      end

      def wait_out(shortage)
        if @short.nil? || Clock.now - @short > SHORTAGE_SILENCE
          @log&.info("accepting at #{@address} pauses: #{shortage.class.new.message}. Raise the limit with ulimit -n, or " \
                     'LimitNOFILE= in systemd')
        end
        @short = Clock.now
        sleep SHORTAGE_PAUSE
      end

      # What the address says about TLS comes first.
      def tls_for(address, tls)
        case address
        when %r{\A(?:https|ssl)://}
          tls or raise ArgumentError, "#{address} needs a certificate: tls: { cert: 'cert.pem', key: 'key.pem' }, or " \
                                      'tls: :self_signed for development'
          load_tls(tls)
        when %r{\A(?:(?:http|tcp)://|unix:)}, ::UNIXServer then nil
        else tls ? load_tls(tls) : nil
        end
      end

      # Now, and not with the first connection.
      def load_tls(tls)
        TLS.for(tls).tap { TLSTransport }
      end

      def name_of(socket)
        address = socket.local_address
        return "unix:#{address.unix_path.sub(/\A\0/, '@')}" unless address.ip?

        host = address.ipv6? ? "[#{address.ip_address}]" : address.ip_address
        "#{tls? ? 'https' : 'http'}://#{host}:#{address.ip_port}"
      end
    end
  end
end
