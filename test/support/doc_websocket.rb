# frozen_string_literal: true

require 'socket'

# The least of a WebSocket client, for the blocks in the guide: short texts.
class DocWebSocket
  def initialize(port)
    @socket = TCPSocket.new('127.0.0.1', port)
    @socket.write("GET / HTTP/1.1\r\nHost: localhost:#{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" \
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    nil until @socket.gets == "\r\n"
  end

  def write(text)
    @socket.write([0x81, 0x80 | text.bytesize, 0].pack('CCN'), text) # with a mask of zeros
  end

  def read
    _, length = @socket.read(2).unpack('CC')
    @socket.read(length)
  end

  def say(text)
    write(text)
    read
  end
end
