# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/websocket_peer'
require 'polyphony/http'

# Messages, over pairs of sockets.
class TestWebSocket < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP
  WebSocket = HTTP::WebSocket
  SHARED = [false, false, 15].freeze

  # @return [Array(WebSocket, WebSocket)] client and server
  def websockets(deflate: nil, pair: socket_pair, **limits)
    limits = HTTP::Limits.new(**limits)
    pair.zip([true, false]).map do |io, client|
      WebSocket.new(HTTP::Transport.new(io, limits), limits: limits, client: client, deflate: deflate)
    end
  end

  # @return [Array(WebSocketPeer, WebSocket)]
  def peer_and_server(deflate: nil, connection: nil, **limits)
    limits = HTTP::Limits.new(**limits)
    io, served = socket_pair
    ws = WebSocket.new(HTTP::Transport.new(served, limits), limits: limits, deflate: deflate, connection: connection)
    [Polyphony::WebSocketPeer.new(io), ws]
  end

  def needs_deflate
    skip 'the extension was built without zlib' unless Polyphony::HTTP::WebSocket.deflate?
  end

  def echo(server)
    spin { server.each { |message| server << message } }
  end

  COMPRESSIONS = { plain: nil, shared: SHARED, context: [true, true, 15], small_window: [true, true, 9] }.freeze

  COMPRESSIONS.each do |name, deflate|
    define_method("test_messages_of_every_size_and_kind_come_back_#{name}") do
      heavy
      client, server = websockets(deflate: deflate)
      echo(server)
      [0, 1, 63, 64, 125, 126, 127, 65_535, 65_536, 300_000].each do |size|
        text = ('grüße ' * (size / 6 + 1)).byteslice(0, size).scrub('?')
        spin { client << text }
        got = client.receive
        assert_equal text, got
        assert_equal Encoding::UTF_8, got.encoding
        assert_predicate got, :valid_encoding?
        bytes = Random.bytes(size)
        spin { client << bytes }
        assert_equal bytes, (got = client.receive)
        assert_equal Encoding::BINARY, got.encoding
      end
      client.close(4000, 'enough')
      snooze until server.closed?
      assert_equal [4000, 'enough'], [server.close_code, server.close_reason]
      assert_equal 4000, client.close_code
    end
  end

  def test_the_encoding_says_whether_it_is_a_text
    client, server = websockets
    client << 'ascii'.encode('US-ASCII') << 'bytes'.b << "\xe9".dup.force_encoding('ISO-8859-1')
    client.text('as text'.b).binary('as bytes')
    got = Array.new(5) { server.receive }
    assert_equal ['ascii', 'bytes', 'é', 'as text', 'as bytes'], got
    utf8 = Encoding::UTF_8
    assert_equal [utf8, Encoding::BINARY, utf8, utf8, Encoding::BINARY], got.map(&:encoding)
  end

  def test_what_cannot_be_sent_is_said_before_anything_is_sent
    client, server = websockets
    assert_raises(ArgumentError) { client << "\xff" }
    assert_raises(ArgumentError) { client.text("\xff".b) }
    assert_raises(ArgumentError) { client.send('a', :image) }
    assert_raises(TypeError) { client << 5 }
    assert_raises(ArgumentError) { client.ping('x' * 126) }
    assert_raises(ArgumentError) { client.close(1006) }
    assert_raises(ArgumentError) { client.close(999) }
    assert_raises(ArgumentError) { client.close(1000, 'x' * 124) }
    assert_raises(ArgumentError) { client.close(1000, "\xff") }
    client << 'fine'
    assert_equal 'fine', server.receive
  end

  def test_fragments_become_one_message_and_pings_among_them_are_answered
    peer, ws = peer_and_server
    peer.send(1, 'Hel', fin: false)
    peer.send(9, 'still there?')
    peer.send(0, '', fin: false)
    peer.send(0, 'lo')
    assert_equal 'Hello', ws.receive
    assert_equal [0x8a, 'still there?'], peer.receive
  end

  # Characters cut by fragments, frames cut by the network: nobody above must notice.
  def test_every_split_into_two_writes_gives_the_same
    needs_deflate
    heavy
    frame = Polyphony::WebSocketPeer.method(:frame)
    bytes = frame.(1, "gr\xc3", fin: false) + frame.(9, 'ping') + frame.(0, "\xbc\xc3\x9fe") +
            frame.(2, "\x00" * 130) + frame.(1, '') +
            frame.(1, Polyphony::WebSocketPeer.deflate('abc' * 50), rsv: 4) + frame.(8, [1000].pack('n') + 'bye')
    (1...bytes.bytesize).each do |cut|
      peer, ws = peer_and_server(deflate: SHARED)
      messages = []
      fiber = spin { ws.each { |message| messages << message } }
      peer.write(bytes.byteslice(0, cut))
      2.times { snooze }
      peer.write(bytes.byteslice(cut..))
      fiber.await
      assert_equal ['grüße', "\x00" * 130, '', 'abc' * 50], messages, "cut at #{cut}"
      assert_equal [[0x8a, 'ping'], [0x88, [1000].pack('n')], nil], Array.new(3) { peer.receive }
      assert_equal [1000, 'bye'], [ws.close_code, ws.close_reason]
      peer.io.close
    end
  end

  def test_texts_are_checked_as_ruby_checks_them
    heavy
    random = Random.new(7)
    pieces = ["\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80",
              "\xf5", "\x80", 'ascii', 'sixteen bytes ok', "\xf0\x80\x80\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"]
    300.times do
      text = Array.new(random.rand(1..6)) { pieces.sample(random: random) }.join.force_encoding('UTF-8')
      peer, ws = peer_and_server
      cut = random.rand(0..text.bytesize)
      peer.write(Polyphony::WebSocketPeer.frame(1, text.byteslice(0, cut).b, fin: false) +
                 Polyphony::WebSocketPeer.frame(0, text.byteslice(cut..).b))
      peer.io.close_write
      if text.valid_encoding? then assert_equal text, ws.receive
      else
        assert_nil ws.receive, text.inspect
        assert_equal 1007, ws.close_code
      end
      ws.close
      peer.io.close
    end
  end

  def test_many_fibers_may_send_at_once
    heavy
    client, server = websockets
    senders = Array.new(20) { |i| spin { 10.times { client << (i.to_s * 20_000) } } }
    counts = Hash.new(0)
    200.times do
      message = server.receive
      assert_operator message, :match?, /\A(..?)\1*\z/, 'two messages got mixed'
      counts[message.bytesize] += 1
    end
    assert_equal({ 20_000 => 100, 40_000 => 100 }, counts)
    senders.each(&:await)
  end

  def test_a_sender_waits_for_a_peer_that_does_not_read
    client, server = websockets
    sent = 0
    sender = spin { 100.times { (client << ('x' * 50_000)) && sent += 1 } }
    10.times { snooze }
    assert_operator sent, :<, 50
    100.times { server.receive }
    sender.await
    assert_equal 100, sent
  end

  # The kernel takes a part of the frame that finds its buffer nearly full.
  def test_small_messages_that_find_no_room_come_whole_and_in_order
    heavy
    client, server = websockets(pair: tcp_pair)
    sent = 0
    senders = Array.new(3) { |i| spin { 2_000.times { |n| (server << "#{i}:#{n}:".ljust(3_999, 'x')) && sent += 1 } } }
    snooze
    assert_operator sent, :<, 6_000, 'there was room for all'
    got = Array.new(6_000) { client.receive }
    assert_equal [3_999], got.map(&:bytesize).uniq
    3.times { |i| assert_equal [*0...2_000], got.select { |text| text.start_with?("#{i}:") }.map { |text| Integer(text.split(':')[1]) } }
    senders.each(&:await)
  end

  def test_a_peer_that_never_reads_is_given_up
    client, = websockets(write_stall: 0.1)
    assert_raises(HTTP::TooSlow) { loop { client << ('x' * 100_000) } }
    assert_predicate client, :closed?
    assert_raises(HTTP::ClientGone) { client << 'more' }
  end

  def test_a_send_that_is_cancelled_halfway_ends_the_connection
    client, server = websockets(ws_frame: 10_000_000)
    move_on_after(0.05) { client << ('x' * 5_000_000) }
    assert_predicate client, :closed?
    assert_nil server.receive
    assert_equal 1006, server.close_code
  end

  def test_a_receive_that_is_cancelled_loses_nothing
    peer, ws = peer_and_server
    bytes = Polyphony::WebSocketPeer.frame(1, 'hello')
    bytes.each_char do |char|
      assert_nil(move_on_after(0.001) { ws.receive }) # nothing whole is there yet
      peer.write(char)
    end
    assert_equal 'hello', ws.receive
  end

  def test_one_fiber_receives_at_a_time
    client, server = websockets
    fiber = spin { server.receive }
    snooze
    error = assert_raises(RuntimeError) { server.receive }
    assert_match(/another fiber receives/, error.message)
    client << 'x'
    assert_equal 'x', fiber.await
  end

  # --- the end --------------------------------------------------------------------------------------

  def test_a_close_is_answered_with_its_code
    { [3001].pack('n') + 'why' => [3001, 'why'], '' => [1005, ''] }.each do |payload, expected|
      peer, ws = peer_and_server
      peer.send(8, payload)
      assert_nil ws.receive
      assert_equal expected, [ws.close_code, ws.close_reason]
      assert_equal [0x88, payload.byteslice(0, 2)], peer.receive
      assert_nil peer.receive
      assert_raises(HTTP::ClientGone) { ws << 'late' }
      assert_nil ws.close
    end
  end

  def test_a_peer_that_just_goes_is_noticed
    peer, ws = peer_and_server
    peer.write(Polyphony::WebSocketPeer.frame(1, 'half')[0..-2])
    peer.io.close
    assert_nil ws.receive
    assert_equal 1006, ws.close_code
  end

  def test_a_close_drops_what_still_comes_and_waits_for_the_answer
    peer, ws = peer_and_server
    closer = spin { ws.close(1000, 'bye') }
    assert_equal [0x88, [1000].pack('n') + 'bye'], peer.receive
    peer.send(1, 'crossed')
    assert_predicate closer, :alive?
    peer.send(8, [1000].pack('n'))
    closer.await
    assert_nil ws.receive
    assert_nil peer.receive
  end

  def test_a_close_that_is_never_answered_ends_in_time
    peer, ws = peer_and_server(ws_close: 0.05)
    ws.close
    assert_predicate ws, :closed?
    assert_equal 1000, peer.close_code
    assert_nil peer.receive
    assert_equal 1006, ws.close_code
  end

  def test_a_close_that_is_cancelled_leaves_nothing_open
    peer, ws = peer_and_server
    assert_nil(move_on_after(0.02) { ws.close })
    assert_equal 1000, peer.close_code
    assert_nil peer.receive
    assert_equal 1006, ws.close_code
  end

  def test_a_close_ends_the_fiber_that_receives
    peer, ws = peer_and_server(ws_close: 0.05)
    fiber = spin { ws.receive }
    snooze
    ws.close
    assert_nil fiber.await
    assert_equal 1000, peer.close_code
  end

  def test_both_may_close_at_once
    client, server = websockets
    [spin { client.close(4001) }, spin { server.close(4002) }].each(&:await)
    assert_equal [4002, 4001], [client.close_code, server.close_code]
  end

  def test_enumerable_works_on_messages
    client, server = websockets
    spin { 3.times { |i| client << i.to_s } && client.close }
    assert_equal %w[0 1 2], server.to_a
  end

  # --- who is still there ---------------------------------------------------------------------------

  def test_silence_is_broken_by_a_ping_and_a_pong_keeps_the_connection
    peer, ws = peer_and_server(ws_ping: 0.05, ws_pong: 0.5)
    fiber = spin { ws.receive }
    3.times do
      assert_equal [0x89, ''], peer.receive
      peer.send(10)
    end
    peer.send(1, 'here')
    assert_equal 'here', fiber.await
  end

  def test_a_peer_without_pong_is_closed_and_logged
    refused = []
    connection = Object.new.tap { |c| c.define_singleton_method(:refuse) { |e| refused << e.message } }
    peer, ws = peer_and_server(ws_ping: 0.03, ws_pong: 0.05, connection: connection)
    fiber = spin { ws.receive }
    assert_equal [0x89, ''], peer.receive
    assert_nil fiber.await
    assert_nil peer.receive
    assert_equal ['WebSocket: no pong within 0.05 s'], refused
  end

  # Whatever it says instead.
  def test_messages_are_no_pong
    peer, ws = peer_and_server(ws_ping: 0.03, ws_pong: 0.1)
    talker = spin do
      loop { peer.send(1, 'I am here') && sleep(0.04) }
    rescue SystemCallError
      nil
    end
    ws.receive until ws.closed?
    assert_equal 1006, ws.close_code
    talker.await
  end

  def test_a_flood_of_pings_leaves_one_pong_pending
    heavy
    peer, ws = peer_and_server
    fiber = spin { ws.receive }
    flood = (0...100_000).map { |i| Polyphony::WebSocketPeer.frame(9, i.to_s, mask: "\0\0\0\0") }.join
    peer.write(flood + Polyphony::WebSocketPeer.frame(1, 'done'))
    assert_equal 'done', fiber.await
    spin { ws.close }
    pongs = []
    while (first, payload = peer.receive) && first == 0x8a
      pongs << Integer(payload)
    end
    assert_equal 99_999, pongs.last
    assert_operator pongs.size, :<, 2_000
    peer.send(8)
  end

  def test_while_somebody_sends_pings_wait_and_only_the_last_is_answered
    peer, ws = peer_and_server
    sender = spin { ws << ('x' * 2_000_000) }
    2.times { snooze }
    fiber = spin { ws.receive }
    5.times { |i| peer.send(9, i.to_s) && snooze }
    peer.send(1, 'x')
    assert_equal 'x', fiber.await
    assert_equal 2_000_000, peer.receive.last.bytesize
    assert_equal [0x8a, '4'], peer.receive
    sender.await
  end

  # No ping can be sent meanwhile, so none can be answered.
  def test_a_slow_reader_of_a_big_message_is_not_taken_for_dead
    peer, ws = peer_and_server(ws_ping: 0.02, ws_pong: 0.02)
    receiver = spin { ws.receive }
    sender = spin { ws << ('x' * 1_000_000) }
    15.times { sleep 0.01 and peer.io.readpartial(20_000) }
    refute_predicate ws, :closed?
    peer.io.read(300_000)
    [receiver, sender].each(&:stop)
  end

  # --- to many --------------------------------------------------------------------------------------

  def test_a_broadcast_reaches_all_and_waits_for_none
    pairs = [nil, SHARED, [true, true, 15]].map { |deflate| websockets(deflate: deflate) }
    clients, servers = pairs.transpose
    assert_equal 3, WebSocket.broadcast(servers, 'to all of you ' * 10)
    servers.each { |server| server << 'and then' }
    clients.each { |client| assert_equal ['to all of you ' * 10, 'and then'], [client.receive, client.receive] }
    servers.each { |server| spin { server.receive } }
    clients.first.close
    assert_equal 2, WebSocket.broadcast(servers, WebSocket.frame("\xff".b))
    assert_equal "\xff".b, clients.last.receive
  end

  def test_posts_keep_their_order_among_sends
    client, server = websockets(deflate: [true, true, 15])
    spin { 50.times { |i| i.even? ? client.post(i.to_s * 100) : client << (i.to_s * 100) } }
    assert_equal((0...50).map { |i| i.to_s * 100 }, Array.new(50) { server.receive })
  end

  # Its fiber writes, and not one that ends with the thread.
  def test_posts_of_another_thread
    client, server = websockets
    text = 'x' * 200_000
    receiving = spin { server.receive }
    Thread.new { 5.times { |i| server.post("#{i}#{text}") } }.join
    assert_equal(Array.new(5) { |i| "#{i}#{text}" }, Array.new(5) { client.receive })
    client << 'done'
    assert_equal 'done', receiving.await
  end

  def test_a_slow_reader_of_posts_is_cut_off_and_others_are_not
    refused = []
    connection = Object.new.tap { |c| c.define_singleton_method(:refuse) { |e| refused << e.message } }
    _slow_peer, slow = peer_and_server(ws_queue: 500_000, connection: connection)
    client, server = websockets
    frame = WebSocket.frame('x' * 100_000)
    reader = spin { client.receive.bytesize }
    server.post(frame)
    30.times { slow.post(frame) && snooze }
    assert_predicate slow, :closed?
    assert_equal ['WebSocket: more than 500000 bytes wait for it'], refused
    assert_equal 100_000, reader.await
    refute slow.post(frame)
  end
end
