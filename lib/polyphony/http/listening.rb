# frozen_string_literal: true

require 'socket'

module Polyphony
  module HTTP
    # Opens the socket of a Listener, and says in words what is wrong if it cannot.
    # @api private
    class Listening
      TCP = %r{\A(?:https?://|tcp://|ssl://)?(\[[^\]]+\]|[^:/\[\]]*):(\d{1,5})/?\z}.freeze
      UNIX = %r{\Aunix:(?://)?(.+)\z}m.freeze
      FD = %r{\Afd:(?://)?(\d+)\z}.freeze
      # Bytes of a path that the kernel takes, with the NUL behind it.
      LONGEST_PATH = 108
      private_constant :TCP, :UNIX, :FD, :LONGEST_PATH

      # @return [TCPServer, UNIXServer]
      attr_reader :socket

      # @param address [String, Integer, BasicSocket]
      def initialize(address, reuse_port:, backlog:, mode:)
        @reuse_port = reuse_port
        @backlog = backlog
        @mode = mode
        @path = nil
        @socket = open(address)
      end

      # Closes it, and takes the file of a unix socket away if it is still ours.
      # @return [nil]
      def close
        @socket.close
        ::File.unlink(@path) if @path && @process == ::Process.pid && id_of(@path) == @id
        nil
      rescue ::Errno::ENOENT
        nil # somebody was faster
      end

      # @return [Boolean] whether there is a file that is ours to remove
      def own_path?
        !@path.nil?
      end

      # Takes over the file of a socket that was handed to us.
      # @return [nil]
      def own_path
        address = @socket.local_address
        own(address.unix_path) if address.unix? && ::File.socket?(address.unix_path)
        nil
      end

      # @return [nil]
      def disown
        @path = nil
      end

      private

      def own(path)
        @path = path
        @process = ::Process.pid
        @id = id_of(path)
      end

      def open(address)
        case address
        when ::TCPServer, ::UNIXServer then address
        when ::BasicSocket then as_server(address)
        when Integer then listen('0.0.0.0', address)
        when UNIX then listen_at_path(Regexp.last_match(1))
        when FD then inherited(Integer(Regexp.last_match(1), 10))
        when TCP then listen(Regexp.last_match(1).delete('[]'), Integer(Regexp.last_match(2), 10))
        else
          raise ArgumentError, "cannot listen at #{address.inspect}: say http://HOST:PORT, https://HOST:PORT, unix:PATH " \
                               'or fd://NUMBER'
        end
      end

      # --- a port -----------------------------------------------------------------------------------

      def listen(host, port)
        raise ArgumentError, "a port is between 0 and 65535, got #{port}" unless port.between?(0, 65_535)

        host = '0.0.0.0' if host.empty? || host == '*'
        Net.tcp_listen(address_of(host, port), port, reuse_port: @reuse_port, backlog: @backlog)
      rescue ::SystemCallError => e
        raise e.class, "#{host}:#{port}: #{advice(e, port)}"
      end

      # A name may have several addresses. Those who type 127.0.0.1 mean localhost, seldom the other way round.
      def address_of(host, port)
        found = ::Addrinfo.getaddrinfo(host, port, nil, :STREAM)
        (found.find(&:ipv4?) || found.first).ip_address
      rescue ::SocketError => e
        raise ArgumentError, "cannot listen at #{host}: #{e.message}. An address of this machine is wanted, as in 127.0.0.1"
      end

      def advice(error, port)
        case error
        when ::Errno::EADDRINUSE
          "somebody listens there already (ss -ltnp 'sport = :#{port}' tells who): stop it, or take another port; " \
          'reuse_port: true shares it, if they all say so'
        when ::Errno::EACCES
          "ports below 1024 are root's: take another, let systemd open it, or give ruby the capability cap_net_bind_service"
        when ::Errno::EADDRNOTAVAIL
          'this machine has no such address: ip addr tells which it has; 0.0.0.0 and [::] mean all'
        else "cannot listen there (#{error.class})"
        end
      end

      # --- a path -----------------------------------------------------------------------------------

      def listen_at_path(path)
        return listen_without_file(path) if path.start_with?('@')

        check_path(path)
        path = ::File.expand_path(path)
        ::File.unlink(path) if ::File.socket?(path) && !alive?(path)
        server = with_mode { ::UNIXServer.new(path) }
        server.listen(@backlog)
        own(path)
        server
      rescue ::SystemCallError => e
        raise e.class, "unix:#{path}: #{advice_for_path(e, path)}"
      end

      # Linux has names that are no files; they vanish with who listens.
      def listen_without_file(path)
        socket = ::Socket.new(:UNIX, :STREAM, 0)
        socket.bind(::Addrinfo.unix("\0#{path[1..]}"))
        socket.listen(@backlog)
        as_server(socket)
      rescue Exception # rubocop:disable Lint/RescueException -- nobody else has it
        socket&.close
        raise
      end

      def check_path(path)
        return if path.bytesize < LONGEST_PATH

        raise ArgumentError, "the path of a unix socket has fewer than #{LONGEST_PATH} bytes, #{path} has #{path.bytesize}: " \
                             'take a shorter one, or one that is relative'
      end

      # The mask rather than chmod: at no time may others connect who must not.
      def with_mode
        return yield unless @mode

        before = ::File.umask(0o777 & ~@mode)
        begin
          yield
        ensure
          ::File.umask(before)
        end
      end

      # A socket that nobody listens at was left over by somebody who had no time to tidy up.
      def alive?(path)
        ::UNIXSocket.new(path).close
        true
      rescue ::SystemCallError
        false
      end

      def id_of(path)
        stat = ::File.lstat(path)
        [stat.dev, stat.ino]
      end

      def advice_for_path(error, path)
        case error
        when ::Errno::EADDRINUSE
          ::File.socket?(path) ? 'somebody listens there already' : 'there is a file which is no socket: move it away'
        when ::Errno::ENOENT then "there is no folder #{::File.dirname(path)}: make it first"
        when ::Errno::EACCES then "user #{::Process.euid} may not write to #{::File.dirname(path)}"
        else "cannot listen there (#{error.class})"
        end
      end

      # --- a descriptor ------------------------------------------------------------------------------

      def inherited(number)
        as_server(::Socket.for_fd(number))
      rescue ::Errno::EBADF, ::Errno::ENOTSOCK => e
        raise e.class, "fd://#{number}: whoever starts the server has to open a listening socket under that number " \
                       '(systemd: .socket unit; the first is 3)'
      end

      # The same socket, as an object of the class that accept_loop wants.
      def as_server(socket)
        unless socket.getsockopt(::Socket::SOL_SOCKET, ::Socket::SO_ACCEPTCONN).bool
          raise ArgumentError, "#{socket.inspect} does not listen: call listen on it first"
        end

        klass = socket.local_address.ip? ? ::TCPServer : ::UNIXServer
        server = klass.for_fd(socket.fileno)
        socket.autoclose = false
        server
      end
    end
    private_constant :Listening
  end
end
