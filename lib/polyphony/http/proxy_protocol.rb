# frozen_string_literal: true

require 'ipaddr'

module Polyphony
  module HTTP
    # What a proxy that only passes bytes on says about its client, before anything else: the PROXY protocol, versions
    # 1 and 2. It is read from the socket without touching what follows, be it TLS or HTTP.
    module ProxyProtocol
      # The longest header there is.
      LONGEST = 536

      class << self
        # @param value [Boolean, String, Array<String>] true: any proxy; else addresses and networks of those we believe
        # @return [Boolean, Array<IPAddr>]
        # @raise [ArgumentError] for what is no address
        def trusted(value)
          return value if [true, false, nil].include?(value)

          Array(value).map { |address| ::IPAddr.new(address) }
        rescue ::IPAddr::Error => e
          raise ArgumentError, "proxy must be true, or addresses as in ['10.0.0.0/8', '::1'], got #{value.inspect}: #{e.message}"
        end

        # Reads the header of a connection.
        # @param socket [BasicSocket]
        # @param connection [Connection] is told who it is
        # @param trusted [true, Array<IPAddr>]
        # @raise [TooSlow, BadRequest, ClientGone]
        # @!visibility private
        def read(socket, connection, trusted)
          check(connection.peer, trusted) unless trusted == true
          limit = connection.limits.header_time
          address, port = Polyphony.backend_timeout(limit, nil, :late) { read_header(socket) }
          raise TooSlow, "no PROXY header within #{limit} s" if address == :late

          connection.__peer(address, port) if address
        rescue *Transport::ERRORS => e
          raise ClientGone, e.message
        end

        private

        # Whoever may open a unix socket may say whom it speaks for.
        def check(peer, trusted)
          return if peer.nil?

          peer = ::IPAddr.new(peer[/\A[^%]*/]).native
          raise BadRequest, 'PROXY: not one of the proxies that are trusted' unless trusted.any? { |net| net.include?(peer) }
        end

        # Looks at what has come, and takes away what belongs to the header.
        def read_header(socket)
          header = String.new(encoding: Encoding::BINARY)
          loop do
            bytes = peek(socket) or raise ClientGone, 'closed before its PROXY header'
            found = parse(header + bytes)
            raise BadRequest, 'PROXY: what came first is no PROXY header' if found == false

            header << take(socket, found ? found.first - header.bytesize : bytes.bytesize)
            return found.drop(1) if found
          end
        end

        def peek(socket)
          while (bytes = socket.recv_nonblock(LONGEST, ::Socket::MSG_PEEK, exception: false)) == :wait_readable
            Polyphony.backend_wait_io(socket, false)
          end
          bytes unless bytes.nil? || bytes.empty?
        end

        # It is there.
        def take(socket, length)
          socket.recv_nonblock(length)
        end
      end

      # @!method self.parse(bytes)
      #   Looks for a header.
      #   @param bytes [String] what came first on a connection
      #   @return [Array(Integer, String, Integer), Array(Integer, nil, nil), nil, false] how long the header is, and the
      #     client's address and port if it tells; nil if its end has not come; false if it is none
    end
  end
end
