# frozen_string_literal: true

require 'polyphony/extensions/socket'

module Polyphony
  # What a TLS socket has besides its stock methods. These mean what they meant: they wait in the fiber
  # that calls them, and others run.
  module SSLSocketExtensions
    # @param socket [IO, #io] what is wrapped around an IO is taken off
    # @param context [OpenSSL::SSL::SSLContext]
    # @raise [IOError] if a read of the IO was cancelled that had got bytes already, and nobody has read
    #   them since: OpenSSL would never see them
    def initialize(socket, *context)
      bare = socket.is_a?(::IO) || socket.is_a?(::OpenSSL::SSL::SSLSocket) || !socket.respond_to?(:io)
      socket = socket.io unless bare
      if socket.is_a?(::IO) && Polyphony.__ahead__?(socket)
        raise IOError, "a cancelled read left bytes of #{socket.inspect}: read them before TLS begins"
      end

      super(socket, *context)
    end

    # @param maxlen [Integer, nil] bytes; nil: until the end
    # @param buf [String, nil] what is filled
    # @param buffer_pos [Integer] where; what stood behind is dropped; -1 appends
    # @return [String, nil] nil at the end, if there was a maxlen
    def read(maxlen = nil, buf = nil, buffer_pos = 0)
      return super(maxlen, buf) if buffer_pos.zero?

      SSLSocketExtensions.fill(buf, buffer_pos) { super(maxlen) }
    end

    # @param maxlen [Integer] at most so many bytes, at least one
    # @param buf [String, nil] what is filled
    # @param buffer_pos [Integer] where; what stood behind is dropped; -1 appends
    # @param raise_on_eof [Boolean]
    # @return [String, nil] nil at the end, unless it is to raise
    # @raise [EOFError] at the end
    def readpartial(maxlen, buf = nil, buffer_pos = 0, raise_on_eof = true) # rubocop:disable Style/OptionalBooleanParameter -- as IO's
      return super(maxlen, buf) if buffer_pos.zero?

      SSLSocketExtensions.fill(buf, buffer_pos) { super(maxlen) }
    rescue EOFError
      raise if raise_on_eof
    end

    # As stock. But what a cancelled write has left does not keep it: a peer that does not read would keep
    # it for ever. (With +sync+ there is nothing else to flush.)
    # @return [nil]
    def close
      @sync && @wbuffer && !@wbuffer.empty? ? sysclose : super
    end

    # Reads until the end.
    # @param maxlen [Integer] at most so many bytes at once
    # @yield [String] each chunk, a new String
    # @return [self]
    def read_loop(maxlen = 8192)
      while (data = readpartial(maxlen, nil, 0, false))
        yield data
      end
      self
    end
    alias recv_loop read_loop

    # Reads until the end and calls +receiver.method(chunk, &block)+ with each chunk.
    # @return [self]
    def feed_loop(receiver, method = :call, &block)
      read_loop { |data| receiver.__send__(method, data, &block) }
    end

    # @!visibility private
    def __read_method__
      :readpartial
    end

    # @!visibility private
    # Looks at the position first: what has been read by then could not be given back.
    def self.fill(buffer, pos)
      buffer ||= String.new
      start = pos.negative? ? buffer.bytesize + 1 + pos : pos
      unless start.between?(0, buffer.bytesize)
        raise IndexError, "position #{pos} is outside of the buffer's #{buffer.bytesize} bytes"
      end

      data = yield or return
      encoding = buffer.encoding
      buffer.replace(buffer.byteslice(0, start).b << data).force_encoding(encoding)
    end

    ::OpenSSL::SSL::SSLSocket.prepend self
    ::OpenSSL::SSL::SSLSocket.include SocketExtensions::Options
  end
end
