# frozen_string_literal: true

module Polyphony
  module DNSExtensions
    # Class method of Socket.
    module SocketNames
      # @param address [String, Array] packed, or as of IPSocket#addr
      # @return [Array(String, String)] host and service
      # @raise [SocketError]
      def getnameinfo(address, flags = 0)
        return super unless Names.lookup?(flags) && (packed = Names.packed(address, flags))

        found = packed.map { |each| Polyphony.backend_getnameinfo(each, flags) }.uniq
        raise ::SocketError, 'sockaddr resolved to multiple nodename' if found.size > 1

        found.first
      end
    end

    # Method of Addrinfo.
    module AddrinfoNames
      # @return [Array(String, String)] host and service
      # @raise [SocketError]
      def getnameinfo(flags = 0)
        return super unless ip? && Names.lookup?(flags)

        flags |= ::Socket::NI_DGRAM if socktype == ::Socket::SOCK_DGRAM
        Polyphony.backend_getnameinfo(to_sockaddr, flags)
      end
    end

    # Methods of IPSocket.
    module SocketEnds
      # @param reverse_lookup [Boolean, Symbol, nil]
      # @return [Array] family, port, name, number
      def addr(*reverse_lookup)
        return super unless Names.reverse?(self, reverse_lookup)

        Lookup.describe(local_address.to_sockaddr, true)
      end

      # @param reverse_lookup [Boolean, Symbol, nil]
      # @return [Array] family, port, name, number
      def peeraddr(*reverse_lookup)
        return super unless Names.reverse?(self, reverse_lookup)

        Lookup.describe(remote_address.to_sockaddr, true)
      end
    end

    # Methods of UDPSocket, for sockets that are to find the names of those who send.
    module Senders
      # @return [Array(String, Array)] what was received, and from whom
      def recvfrom(*args)
        return super unless Names.reverse?(self, [])

        while (received = Names.receive(self, args, exception: false)) == :wait_readable
          Polyphony.backend_wait_io(self, false)
        end
        Names.named(received)
      end

      # @see #recvfrom
      def recvfrom_nonblock(*args, **options)
        return super unless Names.reverse?(self, [])

        Names.named(Names.receive(self, args, **options))
      end
    end

    # What these share.
    module Names
      class << self
        # @!visibility private
        def lookup?(flags)
          flags.is_a?(Integer) && flags & NUMBERS != NUMBERS && Lookup.may_wait?
        end

        # @!visibility private
        def reverse?(socket, arguments)
          return false if arguments.size > 1

          Lookup.reverse?(arguments.first, !socket.do_not_reverse_lookup) && Lookup.may_wait?
        end

        # @!visibility private
        # @return [Array<String>, nil] nil for what is left to stock Ruby
        def packed(address, flags)
          case address
          when String then [address] if address.bytesize <= 128 && ::Addrinfo.new(address).ip?
          when Array then resolved(address, flags) if address.size > 2
          end
        end

        # @!visibility private
        # Neither waits nor lets another fiber run, so nobody sees the changed flag.
        def receive(socket, args, **options)
          socket.do_not_reverse_lookup = true
          socket.recvfrom_nonblock(*args, **options)
        ensure
          socket.do_not_reverse_lookup = false
        end

        # @!visibility private
        def named(received)
          return received unless received.is_a?(Array) && (sender = received[1])

          info = ::Addrinfo.getaddrinfo(sender[3], sender[1], sender[0], :DGRAM).first
          sender[2] = Lookup.name_of(info.to_sockaddr) || sender[3]
          received
        end

        private

        # The fourth is a number, if it is there.
        def resolved(address, flags)
          family, port, name, number = address
          type = (flags & ::Socket::NI_DGRAM).zero? ? :STREAM : :DGRAM
          only = number ? ::Socket::AI_NUMERICHOST : nil
          ::Addrinfo.getaddrinfo(number || name, port, family, type, nil, only).map(&:to_sockaddr)
        end
      end
    end
    private_constant :Names

    ::Socket.singleton_class.prepend SocketNames
    ::Addrinfo.prepend AddrinfoNames
    ::IPSocket.prepend SocketEnds
    ::UDPSocket.prepend Senders
  end
end
