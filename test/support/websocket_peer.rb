# frozen_string_literal: true

require 'socket'
require 'timeout'
require 'zlib'

module Polyphony
  # The other end of a WebSocket, byte by byte and without our C code: to send what no client would.
  class WebSocketPeer
    attr_reader :io

    def self.frame(opcode, payload = '', fin: true, rsv: 0, mask: "\x11\x22\x33\x44".b, length: nil)
      payload = payload.b
      head = [(fin ? 0x80 : 0) | rsv << 4 | opcode].pack('C')
      head << (length || length_bytes(payload.bytesize, mask))
      return head << payload unless mask

      head << mask << payload.bytes.each_with_index.map { |byte, i| byte ^ mask.getbyte(i & 3) }.pack('C*')
    end

    def self.length_bytes(size, mask)
      bit = mask ? 0x80 : 0
      if size < 126 then [bit | size].pack('C')
      elsif size < 65_536 then [bit | 126, size].pack('Cn')
      else [bit | 127, size].pack('CQ>')
      end
    end

    # As RFC 7692 has it: the end of the flush is left out.
    def self.deflate(text)
      z = Zlib::Deflate.new(Zlib::DEFAULT_COMPRESSION, -15)
      z.deflate(text, Zlib::SYNC_FLUSH).byteslice(0..-5)
    ensure
      z.finish
      z.close
    end

    def initialize(io)
      @io = io
    end

    def send(*args, **options)
      @io.write(self.class.frame(*args, **options))
    end

    def write(bytes)
      @io.write(bytes)
    end

    # @return [Array(Integer, String), nil] first byte and payload of the next frame; nil at the end
    def receive
      head = @io.read(2) or return
      size = head.getbyte(1)
      raise 'a server must not mask' if size >= 128

      size = @io.read(2).unpack1('n') if size == 126
      size = @io.read(8).unpack1('Q>') if size == 127
      [head.getbyte(0), @io.read(size) || '']
    rescue Errno::ECONNRESET
      nil
    end

    # @return [Integer, nil] the code of the close frame that comes, whatever comes before
    def close_code
      while (first, payload = receive)
        return payload.unpack1('n') || 1005 if first == 0x88
      end
    end
  end
end
