# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/websocket_peer'
require 'polyphony/http'
require 'stringio'

# A server under attack: others are served meanwhile, memory stays bounded, fibers and descriptors come back, and
# there is one line in the log.
class TestWebSocketAttacks < Polyphony::TestCase
  on_every_driver

  Peer = Polyphony::WebSocketPeer
  HANDSHAKE = "GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n" \
              "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n"

  def setup
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: { ws_close: 0.3 }) do |request|
      if request.websocket? then request.upgrade_to_websocket { |ws| ws.each { |message| ws << message } }
      else request.respond('fine')
      end
    end.start
  end

  def teardown
    @server.stop(within: 0)
    super
  end

  def needs_deflate
    skip 'the extension was built without zlib' unless Polyphony::HTTP::WebSocket.deflate?
  end

  def attack
    heavy
    ask_for_page
    GC.start
    before = rss
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    io.write(HANDSHAKE)
    io.gets("\r\n\r\n")
    attacker = spin { outcome { yield io } }
    slowest = 0
    until attacker.dead?
      slowest = [slowest, ask_for_page].max
      sleep 0.005
    end
    attacker.await
    peer = Peer.new(io)
    code = outcome { peer.close_code }
    io.close
    snooze until @server.stats.open.zero?
    assert_operator slowest, :<, patient(1) # 100 ms on a machine that has nothing else to do
    assert_operator rss - before, :<, 30_000, 'KiB' if size_tells?
    code
  end

  def ask_for_page
    began = clock
    io = TCPSocket.new('127.0.0.1', @server.port)
    io.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert_match(/fine\z/, io.read)
    clock - began
  ensure
    io&.close
  end

  def rss
    Integer(File.read('/proc/self/status')[/VmRSS:\s+(\d+)/, 1], 10)
  end

  def assert_logged(*lines)
    assert_equal(lines, @log.string.lines.map { |line| line[/refused 127\.0\.0\.1:\d+: (.*)/, 1] })
  end

  def test_a_million_fragments_of_one_byte
    fragments = Peer.frame(0, 'x', fin: false) * 10_000
    code = attack do |io|
      io.write(Peer.frame(2, 'x', fin: false))
      100.times { io.write(fragments) }
    end
    assert_includes [1009, Errno::ECONNRESET, Errno::EPIPE], code.is_a?(Integer) ? code : code.class
    assert_logged 'WebSocket: message in too many fragments'
  end

  def test_ten_gigabytes_in_fragments
    fragment = Peer.frame(0, 'x' * 500_000, fin: false)
    code = attack do |io|
      io.write(Peer.frame(2, 'x', fin: false))
      20_000.times { io.write(fragment) }
    end
    assert_includes [1009, Errno::ECONNRESET, Errno::EPIPE], code.is_a?(Integer) ? code : code.class
    assert_logged 'WebSocket: message too big'
  end

  def test_bombs
    needs_deflate
    bomb = Peer.frame(2, Peer.deflate("\0" * 50_000_000), rsv: 4)
    assert_equal 1009, attack { |io| io.write(bomb) }
    assert_logged 'WebSocket: message too big when inflated'
  end

  def test_pings_whose_answers_are_not_read
    pings = Peer.frame(9, 'x' * 125, mask: "\0\0\0\0") * 1_000
    code = attack do |io|
      100.times { io.write(pings) }
      io.write(Peer.frame(8, [1000].pack('n')))
    end
    assert_equal 1000, code
    assert_logged
  end

  def test_messages_whose_echo_is_not_read
    @server.stop(within: 0)
    limits = { ws_close: 0.3, write_stall: 0.2 }
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits) do |request|
      if request.websocket? then request.upgrade_to_websocket(compress: false) { |ws| ws.each { |message| ws << message } }
      else request.respond('fine')
      end
    end.start
    message = Peer.frame(2, 'x' * 100_000)
    attack { |io| 1_000.times { io.write(message) } }
    assert_logged 'took nothing of the answer for 0.2 s'
  end
end
