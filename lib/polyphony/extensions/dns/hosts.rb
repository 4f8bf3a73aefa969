# frozen_string_literal: true

module Polyphony
  module DNSExtensions
    # Class methods of Socket that Ruby advises against, or that read tables of the system. They come
    # with stock Ruby's answers and warnings.
    module SocketHosts
      # @return [Array] name, aliases, family, packed addresses
      # @raise [SocketError]
      def gethostbyname(name)
        return super unless Lookup.needed?(name)

        Hosts.advise('Socket.gethostbyname is deprecated; use Addrinfo.getaddrinfo instead.')
        Hosts.find(name) { |info| Hosts.bytes(info) }
      end

      # @return [Array] name, aliases, family, packed addresses
      # @raise [SocketError]
      def gethostbyaddr(address, family = ::Socket::AF_INET)
        return super unless (hints = Lookup.hints(family, nil, nil, nil)) && Lookup.may_wait?

        host = Polyphony.__gethostbyaddr__(address, hints.first)
        return super if host == false

        Hosts.advise('Socket.gethostbyaddr is deprecated; use Addrinfo#getnameinfo instead.')
        host || raise(::SocketError, 'host not found')
      end

      # @return [Integer] port
      # @raise [SocketError]
      def getservbyname(service, protocol = 'tcp')
        return super unless Lookup.may_wait?

        port = Polyphony.__getservbyname__(service, protocol)
        return super if port == false || (port.nil? && service.match?(/\A\s*[-+]?\d/)) # numbers pass

        port || raise(::SocketError, "no such service #{service}/#{protocol}")
      end

      # @return [String] service
      # @raise [SocketError]
      def getservbyport(port, protocol = 'tcp')
        return super unless port.is_a?(Integer) && Lookup.may_wait?

        name = Polyphony.__getservbyport__(port, protocol)
        return super if name == false

        name || raise(::SocketError, "no such service for port #{port}/#{protocol}")
      end
    end

    # Class method of TCPSocket.
    module TCPHosts
      # @return [Array] name, aliases, family, addresses as numbers
      # @raise [SocketError]
      def gethostbyname(name)
        return super unless Lookup.needed?(name)

        Hosts.advise('TCPSocket.gethostbyname is deprecated; use Addrinfo.getaddrinfo instead.')
        Hosts.find(name, &:ip_address)
      end
    end

    # What these share.
    module Hosts
      class << self
        # @!visibility private
        def advise(text)
          warn(text, uplevel: 2)
        end

        # @!visibility private
        # @yield [Addrinfo] what to show of it
        def find(name, &block)
          infos = ::Addrinfo.getaddrinfo(name, nil, nil, :STREAM, nil, ::Socket::AI_CANONNAME)
          canonical = infos.first.canonname
          _, aliases = Polyphony.__gethostbyname__(canonical) if canonical
          [canonical.dup || name, aliases || [], infos.first.afamily, *infos.map(&block)]
        end

        # @!visibility private
        def bytes(info)
          info.ipv6? ? info.to_sockaddr.byteslice(8, 16) : info.to_sockaddr.byteslice(4, 4)
        end
      end
    end
    private_constant :Hosts

    ::Socket.singleton_class.prepend SocketHosts
    ::TCPSocket.singleton_class.prepend TCPHosts
  end
end
