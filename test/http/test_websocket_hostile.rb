# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/websocket_peer'
require 'polyphony/http'

# What a WebSocket is sent by those who mean no good: the code that it closes with, one line in the log, and no more memory
# than the limits allow.
class TestWebSocketHostile < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP
  Peer = Polyphony::WebSocketPeer
  SHARED = [false, false, 15].freeze

  def setup
    @refused = []
    refused = @refused
    @connection = Object.new.tap { |c| c.define_singleton_method(:refuse) { |e| refused << e.message } }
  end

  def needs_deflate
    skip 'the extension was built without zlib' unless Polyphony::HTTP::WebSocket.deflate?
  end

  def peer_and_server(deflate: nil, **limits)
    limits = HTTP::Limits.new(ws_close: 0.5, **limits)
    io, served = socket_pair
    ws = HTTP::WebSocket.new(HTTP::Transport.new(served, limits), limits: limits, deflate: deflate, connection: @connection)
    [Peer.new(io), ws]
  end

  # @return [Array] what the server received
  def assert_closes(code, bytes, text = nil, **options)
    peer, ws = peer_and_server(**options)
    messages = []
    fiber = spin { ws.each { |message| messages << message } }
    peer.write(bytes)
    assert_equal code, peer.close_code, text
    peer.io.close
    fiber.await
    assert_equal code, ws.close_code, text
    assert_equal 1, @refused.size, @refused.inspect
    @refused.clear
    messages
  end

  F = Peer.method(:frame)
  BAD_FRAMES = {
    'unmasked frame' => F.(1, 'hi', mask: nil), 'unmasked close' => F.(8, '', mask: nil),
    'RSV1 without an extension' => F.(1, 'hi', rsv: 4), 'RSV2' => F.(1, 'hi', rsv: 2), 'RSV3' => F.(2, 'hi', rsv: 1),
    'RSV1 on a ping' => F.(9, 'hi', rsv: 4), 'fragmented ping' => F.(9, 'hi', fin: false),
    'fragmented close' => F.(8, '', fin: false), 'long ping' => F.(9, 'x' * 126), 'long close' => F.(8, 'x' * 126),
    'long pong that only says so' => "\x8a\xff".b, 'continuation of nothing' => F.(0, 'hi'),
    'continuation after the end' => F.(1, 'hi') + F.(0, 'hi'), 'message inside a message' => F.(1, 'a', fin: false) + F.(1, 'b'),
    'binary inside a text' => F.(1, 'a', fin: false) + F.(2, 'b', fin: false),
    'top bit of the length' => F.(2, '', length: [0xff, 1 << 63].pack('CQ>')),
    'all bits of the length' => F.(2, '', length: [0xff, (1 << 64) - 1].pack('CQ>')),
    '16 bits for a short length' => F.(2, 'x' * 125, length: [0xfe, 125].pack('Cn')),
    '64 bits for a short length' => F.(2, 'x' * 200, length: [0xff, 200].pack('CQ>')),
    '64 bits for 65535' => F.(2, '', length: [0xff, 65_535].pack('CQ>')),
    'close of one byte' => F.(8, 'x')
  }.merge([3, 4, 5, 6, 7, 11, 12, 13, 14, 15].to_h { |code| ["opcode #{code}", F.(code, 'hi')] })
    .merge([0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535].to_h do |code|
             ["close code #{code}", F.(8, [code].pack('n'))]
           end).freeze

  def test_what_breaks_the_framing_closes_with_1002
    heavy
    BAD_FRAMES.each { |name, bytes| assert_closes 1002, bytes, name }
  end

  def test_messages_before_bad_frames_are_delivered
    assert_equal ['good'], assert_closes(1002, F.(1, 'good') + F.(3, 'bad') + F.(1, 'never'))
  end

  def test_compressed_frames_have_rules_of_their_own
    needs_deflate
    deflated = Peer.deflate('hello' * 20)
    { 'RSV1 on a continuation' => F.(1, deflated, rsv: 4, fin: false) + F.(0, '', rsv: 4),
      'RSV2 with RSV1' => F.(1, deflated, rsv: 6) }.each { |name, bytes| assert_closes 1002, bytes, name, deflate: SHARED }
    assert_closes 1007, F.(2, "\xff\xff\xff\xff", rsv: 4), deflate: SHARED
    assert_closes 1007, F.(1, Peer.deflate("\xff" * 100), rsv: 4), deflate: SHARED
    # Without a context of its own, a message cannot refer to the one before.
    first, second = Zlib::Deflate.new(9, -15).then do |z|
      Array.new(2) { z.deflate('the same words again' * 3, Zlib::SYNC_FLUSH).byteslice(0..-5) }.tap { z.finish && z.close }
    end
    assert_equal ['the same words again' * 3], assert_closes(1007, F.(1, first, rsv: 4) + F.(1, second, rsv: 4), deflate: SHARED)
  end

  def test_all_close_codes_that_exist_are_taken
    [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999].each do |code|
      peer, ws = peer_and_server
      peer.send(8, [code].pack('n') + 'r')
      assert_nil ws.receive
      assert_equal code, ws.close_code
      peer.io.close
    end
    assert_empty @refused
  end

  def test_bad_utf8_closes_with_1007
    ["\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "abc\x80", "\xe2\x82"].each do |text|
      assert_closes 1007, F.(1, text), text.inspect
      assert_closes 1007, F.(8, [1000].pack('n') + text.b), text.inspect
      assert_closes 1007, F.(1, text.byteslice(0, 1), fin: false) + F.(0, text.byteslice(1..)), text.inspect
    end
  end

  # It need not be whole to be known as bad.
  def test_bad_utf8_is_told_before_the_message_is_whole
    assert_closes 1007, F.(1, "\xf8", fin: false)
    assert_closes 1007, F.(1, 'x' * 1000, length: [0xfe, 60_000].pack('Cn')) + ("\xee" * 100).b
  end

  def test_a_frame_that_says_it_is_too_big_closes_with_1009_before_it_comes
    [(1 << 63) - 1, 1 << 40, 1_048_577].each do |size|
      assert_closes 1009, F.(2, '', length: [0xff, size].pack('CQ>')), size.to_s
    end
  end

  def test_a_length_alone_costs_no_memory
    heavy
    GC.start
    before = large_strings # of other tests
    peers = Array.new(50) do
      peer, ws = peer_and_server
      spin { ws.receive }
      peer.write(F.(2, 'x' * 10, length: [0xff, 1_000_000].pack('CQ>')))
      peer
    end
    5.times { snooze }
    assert_operator large_strings - before, :<, 10
    peers.each { |peer| peer.io.close }
  end

  def test_a_message_that_grows_too_big_closes_with_1009
    heavy
    fragment = F.(0, 'x' * 1000, fin: false)
    assert_closes 1009, F.(2, 'x', fin: false) + fragment * 100, ws_message: 50_000
    assert_closes 1009, F.(2, 'x', fin: false) + fragment * 100, ws_fragments: 10
    assert_closes 1009, F.(2, '', fin: false) + F.(0, '', fin: false) * 2000 # 1,024 at most, empty or not
  end

  def test_a_message_of_exactly_the_limit_is_taken
    needs_deflate
    peer, ws = peer_and_server(ws_message: 1000, ws_fragments: 2, ws_frame: 600, deflate: SHARED)
    peer.send(2, 'x' * 600, fin: false)
    peer.send(0, 'x' * 400)
    assert_equal 1000, ws.receive.bytesize
    peer.send(2, Peer.deflate('y' * 1000), rsv: 4)
    assert_equal 1000, ws.receive.bytesize
  end

  def test_a_bomb_is_stopped_while_it_inflates
    needs_deflate
    heavy
    bomb = Peer.deflate("\0" * 100_000_000)
    assert_operator bomb.bytesize, :<, 200_000
    GC.start
    before = rss
    assert_closes 1009, F.(2, bomb, rsv: 4), deflate: SHARED
    # at most 8 MB and what it takes to grow there
    assert_operator rss - before, :<, 40_000, 'KiB' if size_tells?
    assert_closes 1009, F.(2, Peer.deflate('y' * 1001), rsv: 4), deflate: SHARED, ws_message: 1000
  end

  def test_a_peer_that_floods_after_the_close_is_left
    peer, ws = peer_and_server
    fiber = spin { ws.receive }
    junk = "\xff" * 100_000
    error = nil
    begin
      500.times { peer.write(junk) && snooze }
    rescue Errno::EPIPE, Errno::ECONNRESET => e
      error = e
    end
    assert error, 'all was read'
    fiber.await
    assert_equal 1002, ws.close_code
  end

  def test_a_peer_that_breaks_the_rules_and_stays_is_left_in_time
    peer, ws = peer_and_server
    peer.write(F.(3))
    assert_nil ws.receive # within ws_close
    assert_equal 1002, peer.close_code
    assert_nil peer.receive
  end

  private

  def rss
    Integer(File.read('/proc/self/status')[/VmRSS:\s+(\d+)/, 1], 10)
  end

  def large_strings
    ObjectSpace.each_object(String).count { |string| string.bytesize > 500_000 }
  end
end
