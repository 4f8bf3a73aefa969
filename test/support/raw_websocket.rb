# frozen_string_literal: true

require 'json'
require 'openssl'
require 'socket'
require 'uri'

module Polyphony
  # A WebSocket client made of nothing but a socket, so that a test does not trust what it tests. Frames are
  # short of everything that a test of our own server does not need: no compression, no fragments.
  class RawWebSocket
    # The handshake was not answered with 101.
    class Refused < StandardError; end

    attr_reader :close_code

    def initialize(url, path = '/', origin: nil)
      uri = URI(url)
      @io = @tcp = ::TCPSocket.new(uri.host, uri.port)
      @io = tls(@tcp) if uri.scheme == 'https'
      @io << "GET #{path} HTTP/1.1\r\nHost: #{uri.host}:#{uri.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" \
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" \
             "#{"Origin: #{origin}\r\n" if origin}\r\n"
      status = @io.gets
      nil until @io.gets == "\r\n"
      raise Refused, status unless status.start_with?('HTTP/1.1 101 ')
    end

    # @param message [String, Hash] a Hash goes as JSON
    def send(message, opcode: 1)
      payload = (message.is_a?(Hash) ? JSON.generate(message) : message).b
      length = payload.bytesize
      head = if length < 126 then [0x80 | opcode, 0x80 | length].pack('CC')
             elsif length < 65_536 then [0x80 | opcode, 0xfe, length].pack('CCn')
             else [0x80 | opcode, 0xff, length].pack('CCQ>')
             end
      @io.write(head, "\0\0\0\0", payload) # a mask that changes nothing is one, too
      self
    end

    # @return [String, nil] the next message; nil after a close, or the end of the connection
    def receive
      loop do
        head = @io.read(2) or return
        opcode, length = head.unpack('CC')
        payload = @io.read(length_of(length))
        case opcode & 15
        when 1 then return payload.force_encoding(Encoding::UTF_8)
        when 8 then return closed(payload)
        when 9 then send(payload, opcode: 10)
        end
      end
    rescue ::SystemCallError, ::OpenSSL::SSL::SSLError
      nil
    end

    # @return [Hash] the next event of that type
    def await(type)
      while (text = receive)
        event = JSON.parse(text)
        return event if event['type'] == type
      end
      raise EOFError, "closed with #{@close_code.inspect} while waiting for #{type}"
    end

    def closed?
      receive until @close_code || @io.closed? || @io.eof?
      true
    end

    def close
      @io.close unless @io.closed?
      @tcp.close unless @tcp.closed?
    end

    private

    def length_of(short)
      case short
      when 126 then @io.read(2).unpack1('n')
      when 127 then @io.read(8).unpack1('Q>')
      else short
      end
    end

    def closed(payload)
      @close_code = payload.bytesize >= 2 ? payload.unpack1('n') : 1005
      send(payload, opcode: 8)
      nil
    end

    def tls(socket)
      ::OpenSSL::SSL::SSLSocket.new(socket, ::OpenSSL::SSL::SSLContext.new).tap(&:connect)
    end
  end
end
