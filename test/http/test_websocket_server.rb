# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require_relative '../support/node_modules'
require_relative '../support/websocket_peer'
require 'open3'
require 'polyphony/http'
require 'stringio'

# WebSockets of a server: how they begin, with whom, and how they end.
class TestWebSocketServer < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP
  KEY = 'dGhlIHNhbXBsZSBub25jZQ=='
  GOOD = { 'host' => 'example.org', 'upgrade' => 'websocket', 'connection' => 'Upgrade', 'sec-websocket-key' => KEY,
           'sec-websocket-version' => '13' }.freeze
  PYTHON = '/usr/bin/python3'
  # Sanitizers that look at us do not look at other programs.
  OTHERS = { 'LD_PRELOAD' => nil }.freeze

  def serve(limits: {}, **options, &handler)
    @log = StringIO.new
    handler ||= ->(request) { request.upgrade_to_websocket(**options) { |ws| ws.each { |message| ws << message } } }
    @server = HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def needs_deflate
    skip 'the extension was built without zlib' unless Polyphony::HTTP::WebSocket.deflate?
  end

  def url
    "ws://127.0.0.1:#{@server.port}/"
  end

  def ask(headers = {}, verb: 'GET', version: '1.1', target: '/', rest: '')
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    fields = GOOD.merge(headers).compact.flat_map { |name, values| Array(values).map { |value| "#{name}: #{value}\r\n" } }
    io.write("#{verb} #{target} HTTP/#{version}\r\n#{fields.join}\r\n#{rest}")
    head = io.gets("\r\n\r\n")
    [io, Integer(head[/\AHTTP\S+ (\d+)/, 1], 10), head.split("\r\n").drop(1).to_h { |line| line.downcase.split(': ', 2) }]
  end

  def log_lines
    @log.string.lines
  end

  # --- the handshake ----------------------------------------------------------------------------------

  def test_the_example_of_the_rfc
    serve
    io, status, headers = ask
    assert_equal [101, 'websocket', 'upgrade'], [status, headers['upgrade'], headers['connection']]
    assert_equal 's3pPLMBiTxaQ9kYGzzhZRbK+xOo='.downcase, headers['sec-websocket-accept']
    refute headers.key?('sec-websocket-extensions')
    refute headers.key?('content-length')
    peer = Polyphony::WebSocketPeer.new(io)
    peer.send(1, 'hello')
    assert_equal [0x81, 'hello'], peer.receive
    peer.send(8)
    assert_equal [[0x88, ''], nil], [peer.receive, peer.receive]
    assert_empty log_lines
  end

  BAD = {
    { verb: 'POST' } => 405, { verb: 'PUT' } => 405, { version: '1.0' } => 400,
    { 'connection' => nil } => 400, { 'connection' => 'close' } => 400, { 'connection' => 'upgrades' } => 400,
    { 'upgrade' => nil } => 400, { 'upgrade' => 'h3' } => 400, { 'upgrade' => 'websockets' } => 400,
    { 'sec-websocket-version' => '12' } => 426, { 'sec-websocket-version' => '8' } => 426, { 'sec-websocket-version' => nil } => 426,
    { 'sec-websocket-version' => '13, 8' } => 426,
    { 'sec-websocket-key' => nil } => 400, { 'sec-websocket-key' => '' } => 400, { 'sec-websocket-key' => 'short' } => 400,
    { 'sec-websocket-key' => KEY.sub('==', '=A') } => 400, { 'sec-websocket-key' => "#{KEY}, #{KEY}" } => 400,
    { 'sec-websocket-key' => KEY.sub('jZQ', 'jZR') } => 400, { 'content-length' => '5', rest: 'hello' } => 400,
    { 'origin' => 'http://evil.example' } => 403, { 'origin' => 'null' } => 403, { 'origin' => 'http://example.org.evil.example' } => 403,
    { 'origin' => 'http://example.org:81' } => 403, { 'origin' => 'http://user@example.org' } => 403,
    { 'origin' => 'ftp://example.org' } => 403, { 'origin' => 'http://example.org http://evil.example' } => 403
  }.freeze

  def test_what_is_no_request_for_a_websocket_is_told_and_logged
    heavy
    serve
    BAD.each do |change, expected|
      options, headers = change.partition { |name, _| name.is_a?(Symbol) }.map(&:to_h)
      @log.string = +''
      @log.rewind
      io, status, answer = ask(headers, **options)
      assert_equal expected, status, change.inspect
      assert_equal '13', answer['sec-websocket-version'] if expected == 426
      assert_equal 'get', answer['allow'] if expected == 405
      snooze until log_lines.any?
      assert_equal 1, log_lines.size, log_lines.join
      io.close
      @server.log.instance_variable_get(:@kinds).clear # each is to be seen, however often it comes
    end
  end

  def test_good_ones_come_in_many_forms
    serve
    [{ 'connection' => 'keep-alive, Upgrade' }, { 'upgrade' => 'WebSocket' }, { 'origin' => 'http://example.org' },
     { 'origin' => 'https://example.org' }, { 'origin' => 'HTTP://EXAMPLE.ORG:80' },
     { 'host' => 'example.org:8080', 'origin' => 'http://example.org:8080' },
     { 'host' => '[::1]:80', 'origin' => 'http://[::1]' }].each do |change|
      io, status, = ask(change)
      assert_equal 101, status, change.inspect
      io.close
    end
  end

  def test_origins_can_be_named
    serve(origins: ['https://app.example', /\Ahttps:\/\/\w+\.example\.org\z/])
    { 'https://app.example' => 101, 'https://a.example.org' => 101, 'https://example.org' => 403,
      'http://app.example' => 403 }.each do |origin, expected|
      io, status, = ask({ 'origin' => origin })
      assert_equal expected, status, origin
      io.close
    end
    @server.stop
    serve(origins: :any)
    assert_equal 101, ask({ 'origin' => 'null' })[1]
  end

  def test_bad_options_are_told
    serve(origins: 'https://app.example')
    assert_equal 500, ask[1]
    assert_match(/origins must be :same, :any or an Array/, @log.string)
  end

  def test_the_client_chooses_among_the_protocols_that_both_speak
    serve(protocols: %w[chat echo])
    { 'superchat, echo, chat' => 'echo', 'none' => nil, nil => nil, ['superchat', 'chat'] => 'chat' }.each do |asked, expected|
      io, status, headers = ask({ 'sec-websocket-protocol' => asked })
      assert_equal [101, expected], [status, headers['sec-websocket-protocol']]
      io.close
    end
  end

  SHARED = 'permessage-deflate; server_no_context_takeover; client_no_context_takeover'
  OFFERS = {
    'permessage-deflate' => SHARED, 'permessage-deflate; client_max_window_bits' => SHARED,
    'permessage-deflate; client_max_window_bits=10' => SHARED,
    'permessage-deflate; server_max_window_bits=9' => "#{SHARED}; server_max_window_bits=9",
    'permessage-deflate; server_max_window_bits="12"' => "#{SHARED}; server_max_window_bits=12",
    'permessage-deflate; server_max_window_bits=8, permessage-deflate' => SHARED,
    'x-other, permessage-deflate; unknown, permessage-deflate' => SHARED,
    'permessage-deflate; server_max_window_bits=8' => nil, 'permessage-deflate; server_max_window_bits=16' => nil,
    'permessage-deflate; server_max_window_bits' => nil, 'permessage-deflate; server_no_context_takeover=1' => nil,
    'permessage-deflate; client_max_window_bits; client_max_window_bits' => nil, 'permessage-deflate; ;' => nil,
    'x-webkit-deflate-frame' => nil, ';;;,,,' => nil
  }.freeze

  def test_the_first_offer_of_compression_that_can_be_is_taken
    needs_deflate
    heavy
    serve
    OFFERS.each do |offer, expected|
      io, status, headers = ask({ 'sec-websocket-extensions' => offer })
      assert_equal 101, status
      if expected then assert_equal expected, headers['sec-websocket-extensions'], offer
      else assert_nil headers['sec-websocket-extensions'], offer
      end
      io.close
    end
  end

  def test_compression_with_a_context_is_agreed_upon_when_it_is_wanted
    needs_deflate
    serve(compress: :context)
    ['permessage-deflate', 'permessage-deflate; client_no_context_takeover'].each do |offer|
      assert_equal offer, ask({ 'sec-websocket-extensions' => offer })[2]['sec-websocket-extensions']
    end
    HTTP::WebSocket.connect(url) do |ws|
      5.times { ws << ('the same again ' * 10) and assert_equal 'the same again ' * 10, ws.receive }
    end
  end

  def test_frames_sent_before_the_answer_are_no_request
    serve
    frame = Polyphony::WebSocketPeer.frame(1, 'early')
    io, status, = ask(rest: frame)
    assert_equal 101, status
    assert_equal [0x81, 'early'], Polyphony::WebSocketPeer.new(io).receive
    io, status, = ask({ 'origin' => 'http://evil.example' }, rest: "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n")
    assert_equal 403, status
    io.close
  end

  # --- handlers ---------------------------------------------------------------------------------------

  def test_a_handler_that_fails_closes_with_1011_and_one_that_returns_with_1000
    serve do |request|
      ws = request.upgrade_to_websocket
      raise 'no good' if ws.receive == 'fail'
    end
    { 'fail' => 1011, 'end' => 1000 }.each do |message, code|
      ws = HTTP::WebSocket.connect(url)
      ws << message
      assert_nil ws.receive
      assert_equal code, ws.close_code
    end
    assert_equal 1, log_lines.grep(/error in GET/).size
  end

  def test_a_server_that_stops_says_1001
    serve
    ws = HTTP::WebSocket.connect(url)
    reader = spin { ws.receive }
    snooze
    @server.stop(within: 1)
    assert_nil reader.await
    assert_equal 1001, ws.close_code
  end

  def test_a_server_that_stops_at_once_does_not_wait_for_anybody
    ended = false
    serve do |request|
      request.upgrade_to_websocket { |ws| ws.each { nil } }
    ensure
      ended = true
    end
    io, = ask
    snooze until @server.stats.running == 1
    @server.stop(within: 0)
    assert ended
    assert_equal 1001, Polyphony::WebSocketPeer.new(io).close_code
  end

  def test_one_line_is_logged_for_bad_frames_and_others_go_on
    serve
    good = HTTP::WebSocket.connect(url)
    io, = ask
    peer = Polyphony::WebSocketPeer.new(io)
    peer.send(3)
    assert_equal 1002, peer.close_code
    good << 'still here'
    assert_equal 'still here', good.receive
    assert_equal 1, log_lines.size
    assert_match(/refused 127\.0\.0\.1:\d+: WebSocket: reserved opcode/, log_lines.first)
    io.close
    good.close
  end

  def test_a_chat_reaches_everybody
    rooms = []
    serve do |request|
      request.upgrade_to_websocket do |ws|
        rooms << ws
        ws.each { |message| HTTP::WebSocket.broadcast(rooms, message) }
      ensure
        rooms.delete(ws)
      end
    end
    clients = Array.new(20) { HTTP::WebSocket.connect(url) }
    snooze until rooms.size == 20
    clients.first << 'hello all'
    clients.each { |client| assert_equal 'hello all', client.receive }
    clients.each(&:close)
    snooze until rooms.empty?
  end

  # --- the client -------------------------------------------------------------------------------------

  def test_the_client_tells_what_is_wrong_with_an_answer
    answers = {
      "HTTP/1.1 200 OK\r\n\r\n" => /answered "HTTP\/1.1 200 OK" in place of 101/,
      "HTTP/1.1 101 X\r\n\r\n" => /does not upgrade/,
      "HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n" => /not to our key/,
      "HTTP/1.1 101 X\r\nno header\r\n\r\n" => /header that is none/, 'HTTP/1.1 1' => /hung up/
    }
    port = track(listener = TCPServer.new('127.0.0.1', 0)).local_address.ip_port
    spin { answers.each_key { |answer| listener.accept.then { |io| io.gets("\r\n\r\n") && io.write(answer) && io.close } } }
    answers.each_value do |message|
      error = assert_raises(HTTP::Error) { HTTP::WebSocket.connect("ws://127.0.0.1:#{port}/") }
      assert_match message, error.message
    end
    assert_raises(ArgumentError) { HTTP::WebSocket.connect('http://127.0.0.1/') }
    assert_raises(Errno::ECONNREFUSED) { HTTP::WebSocket.connect('ws://127.0.0.1:1/') }
  end

  def test_the_client_sends_headers_but_no_line_breaks
    serve { |request| request.upgrade_to_websocket { |ws| ws << request['x-token'].to_s } }
    assert_equal 'secret', HTTP::WebSocket.connect(url, headers: { 'x-token' => 'secret' }, &:receive)
    assert_raises(ArgumentError) { HTTP::WebSocket.connect(url, headers: { 'x-token' => "a\r\nb: c" }) }
  end

  def test_the_client_speaks_tls_and_verifies
    cert, key = Polyphony::Certificates.certificate('127.0.0.1')
    @log = StringIO.new
    @server = HTTP::Server.new('https://127.0.0.1:0', tls: HTTP::TLS.new(cert: cert, key: key), log: @log) do |request|
      request.upgrade_to_websocket { |ws| ws.each { |message| ws << message } }
    end.start
    secure = "wss://127.0.0.1:#{@server.port}/"
    context = OpenSSL::SSL::SSLContext.new
    context.set_params(cert_store: OpenSSL::X509::Store.new.tap { |store| store.add_cert(cert) })
    HTTP::WebSocket.connect(secure, ssl_context: context, headers: { 'origin' => "https://127.0.0.1:#{@server.port}" }) do |ws|
      [20, 300_000].each do |size|
        spin { ws << 'x' * size }
        assert_equal size, ws.receive.bytesize
      end
      ws.close
      assert_equal 1000, ws.close_code
    end
    assert_raises(HTTP::BadRequest) do # a page that came without TLS
      HTTP::WebSocket.connect(secure, ssl_context: context, headers: { 'origin' => "http://127.0.0.1:#{@server.port}" })
    end
    assert_raises(OpenSSL::SSL::SSLError) { HTTP::WebSocket.connect(secure) }
  end

  # A record that the kernel did not take has to be written again, before any other.
  def test_small_messages_in_tls_that_find_no_room_come_whole_and_in_order
    heavy
    cert, key = Polyphony::Certificates.certificate('127.0.0.1')
    sent = 0
    @server = HTTP::Server.new('https://127.0.0.1:0', tls: HTTP::TLS.new(cert: cert, key: key), log: nil) do |request|
      request.upgrade_to_websocket do |ws|
        Fiber.map([0, 1, 2]) { |i| 2_000.times { |n| (ws << "#{i}:#{n}:".ljust(3_999, 'x')) && sent += 1 } }
      end
    end.start
    context = OpenSSL::SSL::SSLContext.new.tap { |one| one.verify_mode = OpenSSL::SSL::VERIFY_NONE }
    HTTP::WebSocket.connect("wss://127.0.0.1:#{@server.port}/", ssl_context: context) do |ws|
      got = [ws.receive]
      assert_operator sent, :<, 6_000, 'there was room for all'
      got << ws.receive until got.size == 6_000
      assert_equal [3_999], got.map(&:bytesize).uniq
      3.times { |i| assert_equal [*0...2_000], got.select { |text| text.start_with?("#{i}:") }.map { |text| Integer(text.split(':')[1]) } }
    end
  end

  # --- with others ------------------------------------------------------------------------------------

  PYTHON_CLIENT = <<~'PYTHON'
    import asyncio, sys, websockets
    async def main(url, compression):
        async with websockets.connect(url, compression=compression, max_size=None, subprotocols=["chat"]) as ws:
            assert ws.subprotocol == "chat", ws.subprotocol
            headers = ws.response.headers if hasattr(ws, "response") else ws.response_headers # before its version 14
            assert ("Sec-WebSocket-Extensions" in headers) == (compression is not None)
            for message in ["", "hello", "grüße €😀" * 100, b"", b"\x00\xff" * 5000, "x" * 900000, b"y" * 900000]:
                await ws.send(message)
                assert await ws.recv() == message, message[:20]
            await ws.send(["frag", "mented", " text"])
            assert await ws.recv() == "fragmented text"
            await asyncio.wait_for(await ws.ping(b"there?"), 5)
            for i in range(500): await ws.send("message %d " % i * 10)
            for i in range(500): assert await ws.recv() == "message %d " % i * 10
            await ws.close(4001, "enough")
        assert ws.close_code == 4001, ws.close_code
        print("fine")
    asyncio.run(main(sys.argv[1], None if sys.argv[2] == "none" else "deflate"))
  PYTHON

  { true => 'deflate', :context => 'deflate', false => 'none' }.each do |compress, name|
    define_method("test_python_websockets_talk_to_us_with_compress_#{compress}") do
      needs_deflate if compress
      unless system(OTHERS, PYTHON, '-c', 'import websockets', out: File::NULL, err: File::NULL)
        skip 'python3-websockets is not installed'
      end

      serve(protocols: %w[chat], compress: compress)
      output, status = Open3.capture2e(OTHERS, PYTHON, '-c', PYTHON_CLIENT, url, name)
      assert_equal ["fine\n", true], [output, status.success?]
      assert_empty log_lines
    end
  end

  NODE_CLIENT = <<~'JS'
    const WebSocket = require('ws'), assert = require('assert');
    const [url, compress] = process.argv.slice(1);
    const ws = new WebSocket(url, ['chat'], { perMessageDeflate: compress === 'none' ? false : { threshold: 0 } });
    const messages = ['', 'hello', 'grüße €😀'.repeat(100), Buffer.alloc(0), Buffer.alloc(900000, 7), 'x'.repeat(900000)];
    for (let i = 0; i < 500; i++) messages.push(`message ${i} `.repeat(10));
    let got = 0, ponged = false;
    ws.on('open', () => {
      assert.equal(ws.protocol, 'chat');
      assert.equal(ws.extensions !== '', compress !== 'none');
      ws.ping('there?');
      messages.forEach(message => ws.send(message));
      ws.send('fragmented ', { fin: false });
      ws.send('text', { fin: true });
    });
    ws.on('pong', data => { assert.equal(String(data), 'there?'); ponged = true; });
    ws.on('message', (data, binary) => {
      const expected = got === messages.length ? 'fragmented text' : messages[got];
      assert.equal(binary, typeof expected !== 'string');
      assert(data.equals(Buffer.from(expected)));
      if (got++ === messages.length) ws.close(4001, 'enough');
    });
    ws.on('close', code => { assert.equal(code, 4001); assert(ponged); console.log('fine'); });
  JS

  { true => 'deflate', :context => 'deflate', false => 'none' }.each do |compress, name|
    define_method("test_node_ws_talks_to_us_with_compress_#{compress}") do
      needs_deflate if compress
      modules = Polyphony::NodeModules.path or skip Polyphony::NodeModules.why_not
      serve(protocols: %w[chat], compress: compress)
      output, status = Open3.capture2e({ 'NODE_PATH' => modules, **OTHERS }, 'node', '-e', NODE_CLIENT, url, name)
      assert_equal ["fine\n", true], [output, status.success?]
      assert_empty log_lines
    end
  end

  # RFC 8441, by hand: node has the streams, but no WebSocket on them.
  HTTP2_CLIENT = <<~'JS'
    const http2 = require('http2'), assert = require('assert');
    const session = http2.connect(process.argv[1]);
    const frame = (opcode, text) => Buffer.concat([Buffer.from([0x80 | opcode, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
    session.on('remoteSettings', settings => {
      assert(settings.enableConnectProtocol);
      const stream = session.request({ ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/', ':scheme': 'http',
        ':authority': 'example.org', 'sec-websocket-version': process.argv[2], 'sec-websocket-protocol': 'chat',
        'origin': 'http://example.org' });
      let status, got = Buffer.alloc(0);
      stream.on('response', headers => {
        status = headers[':status'];
        if (status !== 200) return;
        assert.equal(headers['sec-websocket-protocol'], 'chat');
        assert.equal(headers['sec-websocket-accept'], undefined);
        stream.write(frame(1, 'hello'));
        stream.write(frame(9, 'ping'));
        stream.write(frame(8, ''));
      });
      stream.on('data', data => { got = Buffer.concat([got, data]); });
      stream.on('end', () => { console.log(status, got.toString('hex')); session.close(); });
    });
  JS

  def test_websockets_go_over_http2
    skip 'HTTP/2 was not compiled in' unless HTTP.http2?
    skip 'node is not there' unless system(OTHERS, 'node --version', out: File::NULL)

    serve(protocols: %w[chat])
    run = ->(version) { Open3.capture2e(OTHERS, 'node', '-e', HTTP2_CLIENT, "http://127.0.0.1:#{@server.port}", version).first }
    assert_equal "200 #{"\x81\x05hello\x8a\x04ping\x88\x00".b.unpack1('H*')}\n", run.call('13')
    assert_empty log_lines
    assert_match(/\A426 /, run.call('12'))
    assert_equal 1, log_lines.size
  end

  PYTHON_SERVER = <<~'PYTHON'
    import asyncio, sys, websockets
    async def echo(ws):
        try:
            async for message in ws: await ws.send(message)
        except websockets.ConnectionClosed: pass
    async def main():
        async with websockets.serve(echo, "127.0.0.1", 0, compression=None if sys.argv[1] == "none" else "deflate") as server:
            print(server.sockets[0].getsockname()[1], flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    asyncio.run(main())
  PYTHON

  def test_our_client_talks_to_python_websockets
    needs_deflate
    unless system(OTHERS, PYTHON, '-c', 'import websockets', out: File::NULL, err: File::NULL)
      skip 'python3-websockets is not installed'
    end

    %w[deflate none].each do |name|
      IO.popen([OTHERS, PYTHON, '-c', PYTHON_SERVER, name], 'r+') do |server|
        HTTP::WebSocket.connect("ws://127.0.0.1:#{Integer(server.gets, 10)}/") do |ws|
          assert_equal name == 'deflate', ws.compressed?
          ['', 'hello ' * 50, 'hello ' * 50, "\xff".b * 100_000].each do |message|
            ws << message
            assert_equal message, ws.receive
          end
          ws.close(4002)
          assert_equal 4002, ws.close_code
        end
        server.close_write
      end
    end
  end
end
