# frozen_string_literal: true

require 'socket'

module Polyphony
  module HTTP
    # The sockets of a server: those that systemd opened for us, those that the process before us left, and those that we
    # open ourselves.
    # @!visibility private
    class Sockets
      # Where it listens if nothing was said.
      DEFAULT = '127.0.0.1:9292'

      # @return [Array<Listener>] for the application
      attr_reader :listeners
      # @return [Listener, nil] for metrics
      attr_reader :metrics

      # @param config [Config]
      # @param tls [TLS, nil]
      # @param activated [Hash{Integer => String}] descriptor => name of sockets that systemd opened
      # @param handed [Hash{String => Array(Integer, Boolean)}] address as it was asked for => descriptor, and whether the
      #   file of its name is ours
      def initialize(config, tls: nil, activated: {}, handed: {})
        @config = config
        @tls = tls
        @activated = activated.transform_keys { |fd| socket_of(fd) }
        @handed = handed.dup
        @wanted = {}.compare_by_identity # listener => address as it was asked for
        @listeners = []
        open
      rescue Exception # rubocop:disable Lint/RescueException -- nobody else has them
        close
        raise
      end

      # @return [Array<String>] sockets of systemd's or a former process's that nobody has asked for
      def unused
        (@activated.map { |socket, name| "#{name} (#{socket.local_address.inspect_sockaddr})" } + @handed.keys)
      end

      # @return [Hash{String => Array(Integer, Boolean)}] for the next process
      def to_hand_over
        @wanted.to_h { |listener, address| [address, [listener.socket.fileno, listener.own_path?]] }
      end

      # Closes those that are left over.
      def close_unused
        @activated.each_key(&:close)
        @handed.each { |address, (fd, ours)| close_handed(address, fd, ours) }
        @activated = {}
        @handed = {}
      end

      # @return [Array<Listener>]
      def all
        [*@listeners, *@metrics]
      end

      def close
        all.each(&:close)
      end

      # Leaves them to other processes. A socket that stayed open here would be one at which the kernel lets clients wait after
      # all others have closed theirs.
      def leave
        all.each { |listener| listener.socket.close }
      end

      private

      def open
        binds.each do |bind|
          bind.address.start_with?('systemd') ? take_activated(bind) : (@listeners << listen(bind))
        end
        @metrics = listen(Config::Bind.new(address: @config.metrics_address, tls: false, proxy: false)) if @config.metrics_address
      end

      def binds
        return @config.binds unless @config.binds.empty?
        return [Config::Bind.new(address: 'systemd', tls: @config.tls?, proxy: @config.proxy_protocol)] if activated?

        [Config::Bind.new(address: "#{@config.tls? ? 'https' : 'http'}://#{DEFAULT}", tls: @config.tls?,
                          proxy: @config.proxy_protocol)]
      end

      def activated?
        !@activated.empty? || @handed.keys.any? { |address| address.start_with?('systemd') }
      end

      # +systemd+ are all of them, +systemd:NAME+ those with FileDescriptorName=NAME.
      def take_activated(bind)
        name = bind.address[/\Asystemd:(.+)/, 1]
        found = @activated.select { |_, one| name.nil? || one == name }
        again = @handed.keys.select { |address| address.start_with?(name ? "systemd:#{name}:" : 'systemd:') }
        raise ConfigError, none_handed_over(name) if found.empty? && again.empty?

        again.each { |address| add(take_handed(address), bind, address, address.split(':')[1]) }
        found.each do |socket, label|
          @activated.delete(socket)
          add(socket, bind, "systemd:#{label}:#{socket.fileno}", label)
        end
      end

      def none_handed_over(name)
        return 'systemd has handed over no socket: it does so for a .socket unit beside the service; else bind an address' unless name

        others = @activated.values
        "systemd has handed over no socket named #{name} (FileDescriptorName=#{name} in its .socket unit): " \
          "there #{others.empty? ? 'is none at all' : "are #{others.join(', ')}"}"
      end

      # A plain socket among others is named http.
      def add(socket, bind, address, label)
        plain = label.start_with?('http') && !label.start_with?('https')
        @listeners << listener(socket, bind.dup.tap { |one| one.tls = @config.tls? && !plain }, address)
      end

      def listen(bind)
        listener(take_handed(bind.address) || take_same(bind.address) || bind.address, bind, bind.address)
      rescue ::SystemCallError, ::SocketError => e
        raise ConfigError, "cannot listen at #{bind.address}: #{e.message}"
      rescue ::ArgumentError => e
        raise ConfigError, e.message
      end

      def listener(socket, bind, address)
        options = { tls: bind.tls ? @tls : nil, proxy: bind.proxy, backlog: @config.backlog, mode: bind.mode,
                    shared: @config.cluster? }
        one = Listener.new(socket, **options)
        one.own_path if @own_path
        @wanted[one] = address
        one
      ensure
        @own_path = false
      end

      # Left by the process that we were before.
      def take_handed(address)
        fd, @own_path = @handed.delete(address)
        fd && socket_of(fd)
      end

      # Opened by systemd at the address that we were told.
      def take_same(address)
        socket, = @activated.find { |one, _| same?(one.local_address, address) }
        @activated.delete(socket)
        socket
      end

      def same?(local, address)
        return address == "unix:#{local.unix_path}" if local.unix?

        host, port = address.sub(%r{\Ahttps?://}, '').match(/\A\[?(.*?)\]?:(\d+)\/?\z/)&.captures
        host = '0.0.0.0' if ['', '*'].include?(host)
        port == local.ip_port.to_s && host == local.ip_address
      end

      def socket_of(fd)
        socket = ::Socket.for_fd(fd)
        socket.autoclose = false
        unless socket.getsockopt(:SOCKET, :ACCEPTCONN).bool
          raise ConfigError, "descriptor #{fd} is a socket that does not listen"
        end

        (socket.local_address.unix? ? ::UNIXServer : ::TCPServer).for_fd(fd)
      rescue ::SystemCallError => e
        raise ConfigError, "descriptor #{fd} is no socket: #{e.message}"
      end

      def close_handed(address, fd, ours)
        path = address[/\Aunix:(.+)/, 1]
        socket_of(fd).close
        ::File.unlink(path) if ours && path && ::File.socket?(path)
      end
    end
    private_constant :Sockets
  end
end
