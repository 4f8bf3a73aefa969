# frozen_string_literal: true

module Polyphony
  module DNSExtensions
    # Class methods of Addrinfo. What stock Ruby documents for them holds.
    module Addrinfos
      # @param options [Hash] +timeout+: seconds, or nil
      # @return [Array<Addrinfo>]
      # @raise [SocketError]
      def getaddrinfo(nodename, service, family = nil, socktype = nil, protocol = nil, flags = nil, **options)
        return super unless (options.keys - [:timeout]).empty?
        return Lookup.of_numbers { super } unless Lookup.needed?(nodename, service)
        return super unless (hints = Lookup.hints(family, socktype, protocol, flags))

        rows = Lookup.limit(options[:timeout]) { Polyphony.backend_getaddrinfo(nodename, service, *hints) }
        label = Lookup.label(rows.first.first, nodename, service)
        rows.map { |row| Lookup.addrinfo(row, label) }
      end

      # @return [Addrinfo] the first
      def tcp(host, service)
        return super unless Lookup.needed?(host, service)

        getaddrinfo(host, service, nil, :STREAM, ::Socket::IPPROTO_TCP).first
      end

      # @return [Addrinfo] the first
      def udp(host, service)
        return super unless Lookup.needed?(host, service)

        getaddrinfo(host, service, nil, :DGRAM, ::Socket::IPPROTO_UDP).first
      end

      # @return [Addrinfo] the first, for any kind of socket
      def ip(host)
        return super unless Lookup.needed?(host)

        address, family = Polyphony.backend_getaddrinfo(host, nil).first
        Lookup.addrinfo([address, family, 0, 0], Lookup.label(address, host, nil))
      end
    end

    # Class methods of Socket.
    module SocketAddresses
      # @return [Array<Array>] family, port, name, number, and three constants
      # @raise [SocketError]
      def getaddrinfo(host, service, family = nil, socktype = nil, protocol = nil, flags = nil, reverse_lookup = nil)
        reverse = Lookup.reverse?(reverse_lookup, !::BasicSocket.do_not_reverse_lookup)
        return super if reverse.nil?
        return Lookup.of_numbers { super } unless Lookup.needed?(host, service) || (reverse && Lookup.may_wait?)

        infos = ::Addrinfo.getaddrinfo(host, service, family, socktype, protocol, flags)
        infos.map do |info|
          Lookup.describe(info.to_sockaddr, reverse) + [info.pfamily, info.socktype, info.protocol]
        end
      end

      # @return [String] a packed address
      def sockaddr_in(port, host)
        return super unless Lookup.needed?(host, port)

        any = port.nil? || Polyphony.__lookup_needed?(nil, port)
        Polyphony.backend_getaddrinfo(host, port, 0, any ? 0 : ::Socket::SOCK_DGRAM).first.first
      end

      # @see #sockaddr_in
      def pack_sockaddr_in(port, host)
        Lookup.needed?(host, port) ? sockaddr_in(port, host) : super
      end
    end

    # Class method of IPSocket.
    module IPAddress
      # @return [String] the first address, a number
      def getaddress(host)
        return super unless Lookup.needed?(host)

        Polyphony.backend_address_resolve(host).first
      end
    end

    ::Addrinfo.singleton_class.prepend Addrinfos
    ::Socket.singleton_class.prepend SocketAddresses
    ::IPSocket.singleton_class.prepend IPAddress
  end
end
