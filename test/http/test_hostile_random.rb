# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Good traffic with some of its bytes changed, left out, doubled or moved. Whatever that makes of it: no error of our own, no
# answer that is none, nothing left behind. POLYPHONY_SEED and POLYPHONY_ROUNDS look further.
class TestHostileRandom < Polyphony::HostileTest
  on_every_driver
  server :random, limits: { header_time: 0.3, body_grace: 0.3, write_stall: 0.5, keep_alive: 0.3, h2_settings_time: 0.5, h2_stall: 0.5,
                            ws_ping: 0.3, ws_pong: 0.3, ws_close: 0.3 }
  time_limit 600

  ROUNDS = Integer(ENV.fetch('POLYPHONY_ROUNDS', '60'))
  Frames = Polyphony::HTTP::Check::H2Client
  Messages = Polyphony::HTTP::Check::WSClient

  HTTP1 = [
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=b\r\nhello\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
    "PUT /sink HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\nCookie: a=b\r\nCookie: c=d\r\n\r\nabc",
    "HEAD /files/a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=0-5,10-20\r\nIf-None-Match: \"a\", W/\"b\"\r\nAccept-Encoding: gzip;q=0.5, br\r\n\r\n",
    "GET /files/a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=-5\r\nIf-Range: \"x\"\r\nIf-Modified-Since: Tue, 17 Nov 2026 07:52:41 GMT\r\n\r\n",
    "GET http://x:80/?a=b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
    "GET /bad/late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
  ].freeze

  FIELDS = [[':method', 'POST'], [':scheme', 'http'], [':path', '/sink'], [':authority', 'x']].freeze
  HTTP2 = [
    Frames.frame(:settings, 0, 0, Frames.settings({ 3 => 100, 4 => 70_000, 5 => 20_000 })), Frames.frame(:settings, 1),
    Frames.frame(:headers, 5, 1, Frames.block([[':method', 'GET'], *FIELDS.drop(1), %w[cookie a=b]])),
    Frames.frame(:headers, 4, 3, Frames.block([*FIELDS, %w[content-length 5]])), Frames.frame(:data, 0, 3, 'hel'), Frames.frame(:data, 1, 3, 'lo'),
    Frames.frame(:headers, 0, 5, Frames.block(FIELDS.first(2))), Frames.frame(:continuation, 4, 5, Frames.block(FIELDS.drop(2))),
    Frames.frame(:data, 8, 5, "\x03abc\0\0\0"), Frames.frame(:headers, 5, 5, Frames.block([%w[x y]])),
    Frames.frame(:headers, 0x25, 7, [0, 15].pack('NC') + "\x82\x86\x84\x41\x01x".b), Frames.frame(:priority, 0, 7, [0, 1].pack('NC')),
    Frames.frame(:ping, 0, 0, '12345678'), Frames.frame(:window_update, 0, 0, [1000].pack('N')), Frames.frame(:window_update, 0, 7, [1000].pack('N')),
    Frames.frame(:rst_stream, 0, 7, [8].pack('N')), Frames.frame(:goaway, 0, 0, [0, 0].pack('NN'))
  ].freeze

  MESSAGES = [
    Messages.frame(:text, 'hello'), Messages.frame(:binary, 'x' * 200), Messages.frame(:text, "h\u00e9", flags: 0), Messages.frame(:ping, 'a'),
    Messages.frame(:continuation, 'llo'), Messages.frame(:pong, ''), Messages.frame(:binary, "\xcaH\xcd\xc9\xc9\x07\x00".b, flags: 0xc0),
    Messages.frame(:close, [1000].pack('n') + 'bye')
  ].freeze

  def setup
    @random = Random.new(Integer(ENV.fetch('POLYPHONY_SEED', '1')))
    File.write(File.join(target.root, 'a.txt'), 'x' * 100_000)
  end

  def test_http1
    attack { |wire| wire.send(spoil(Array.new(1 + @random.rand(3)) { HTTP1.sample(random: @random) })) }
  end

  def test_http2
    attack do |wire|
      preface = @random.rand(20).zero? ? spoil([Frames::PREFACE]) : Frames::PREFACE
      wire.send(preface + spoil(HTTP2.dup))
    end
  end

  def test_websocket
    attack do |wire|
      client = Messages.new(wire, Polyphony::HTTP::Check::Target.new(target.url))
      client.open('/websocket', sec_websocket_extensions: 'permessage-deflate; client_max_window_bits')
      wire.send(spoil(MESSAGES.dup))
    end
  end

  private

  # Several at a time; each is left to itself for a moment, or cut off at once. What the first round makes grow, a second
  # one must not.
  def attack(&block)
    problems = round(&block)
    problems = round(&block) if problems.any? { |problem| problem.start_with?('memory') }
    expected = /error in [A-Z]+ \/bad\/|^ {4}/ # a handler that fails, by the way
    unexpected = (target.log - refusals).grep_v(expected)
    assert_empty unexpected
    assert_empty(problems.grep_v(/\Ain the log/))
    assert_equal 200, Polyphony::HTTP::Check::Target.new(target.url).probe.first
  end

  def round
    conditions do
      ROUNDS.times.each_slice(10) do |some|
        some.map { spin { strike { |wire| yield wire } } }.each(&:await)
      end
    end
  end

  def strike
    wire = Polyphony::HTTP::Check::Target.new(target.url).connect
    yield wire
    wire.half_close if @random.rand(4).zero?
    wire.read(@random.rand(3).zero? ? 0 : 0.3)
    refute_match Polyphony::HTTP::Check::INSIDE, wire.received.b
  rescue SystemCallError
    nil # it was quick to close
  ensure
    wire&.reset
  end

  # Pieces out of order, then bytes.
  def spoil(pieces)
    swap(pieces) while @random.rand(3).zero?
    bytes = pieces.join.b
    @random.rand(5).times { change(bytes) unless bytes.empty? }
    bytes
  end

  def swap(pieces)
    one, two = Array.new(2) { @random.rand(pieces.size) }
    case @random.rand(3)
    when 0 then pieces[one], pieces[two] = pieces[two], pieces[one]
    when 1 then pieces.insert(one, pieces[two])
    else pieces.delete_at(one) if pieces.size > 1
    end
  end

  def change(bytes)
    at = @random.rand(bytes.bytesize)
    case @random.rand(6)
    when 0 then bytes.setbyte(at, @random.rand(256))
    when 1 then bytes.setbyte(at, bytes.getbyte(at) ^ (1 << @random.rand(8)))
    when 2 then bytes.slice!(at, 1 + @random.rand(8))
    when 3 then bytes.insert(at, @random.bytes(1 + @random.rand(8)))
    when 4 then bytes.insert(at, bytes.byteslice(@random.rand(bytes.bytesize), 1 + @random.rand(40)))
    else bytes.replace(bytes.byteslice(0, at))
    end
  end
end
