# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require 'polyphony/http'
require 'stringio'

# What a proxy says about its client: which headers are taken, and that nothing of what follows is.
class TestHTTPProxyProtocol < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP
  SIGNATURE = "\r\n\r\n\0\r\nQUIT\n".b
  LOCAL_V4 = [127, 0, 0, 1].pack('C4')
  GOOD_V1 = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"

  def v2(command, family, data, length: data.bytesize)
    SIGNATURE + [command, family, length].pack('CCn') + data.b
  end

  def v4(tail = '')
    v2(0x21, 0x11, "#{[192, 0, 2, 7].pack('C4')}#{LOCAL_V4}#{[56_324, 443].pack('nn')}#{tail}")
  end

  def v6(tail = '')
    v2(0x21, 0x21, "#{IPAddr.new('2001:db8::7').hton}#{IPAddr.new('::1').hton}#{[1, 443].pack('nn')}#{tail}")
  end

  def parse(bytes)
    HTTP::ProxyProtocol.parse(bytes)
  end

  GOOD = {
    "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n" => ['192.0.2.7', 56_324],
    "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n" => ['255.255.255.255', 65_535],
    "PROXY TCP6 2001:DB8::7 ::1 0 443\r\n" => ['2001:db8::7', 0],
    "PROXY TCP6 #{(['ffff'] * 8).join(':')} #{(['ffff'] * 8).join(':')} 65535 65535\r\n" => [(['ffff'] * 8).join(':'), 65_535],
    "PROXY UNKNOWN\r\n" => [nil, nil],
    "PROXY UNKNOWN ffff:f 1 2 what ever\r\n" => [nil, nil]
  }.freeze

  def good_headers
    GOOD.merge(v4 => ['192.0.2.7', 56_324], v4('x' * 508) => ['192.0.2.7', 56_324], v6 => ['2001:db8::7', 1],
               v2(0x20, 0x00, '') => [nil, nil], v2(0x20, 0x11, 'x' * 12) => [nil, nil], v2(0x21, 0x00, 'tlv') => [nil, nil],
               v2(0x21, 0x31, 'x' * 216) => [nil, nil], v2(0x20, 0x11, '') => [nil, nil])
  end

  def test_good_headers_tell_the_client_whatever_follows
    good_headers.each do |header, found|
      ['', 'G', "GET / HTTP/1.1\r\n", "\x16\x03\x01", "\n" * 600].each do |rest|
        assert_equal [header.bytesize, *found], parse(header.b + rest.b), (header + rest).inspect
      end
    end
  end

  def test_of_a_part_of_a_header_more_is_wanted
    good_headers.each_key do |header|
      (0...header.bytesize).each { |size| assert_nil parse(header.byteslice(0, size)), header.byteslice(0, size).inspect }
    end
  end

  BAD = ["GET / HTTP/1.1\r\n", 'proxy TCP4', 'PROXYTCP4', "PROXY \r\n", "PROXY TCP4\r\n", "PROXY TCP4 \r\n", "PROXY UNKNOWNX\r\n",
         "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\n", "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n",
         "PROXY TCP4  192.0.2.7 198.51.100.1 56324 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
         "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 1\r\n", "PROXY TCP4 192.0.2.07 198.51.100.1 56324 443\r\n",
         "PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
         "PROXY TCP4 192.0.2.7 198.51.100.1 -1 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 056 443\r\n",
         "PROXY TCP4 192.0.2.7 198.51.100.1 0x5 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 100000 443\r\n",
         "PROXY TCP4 2001:db8::7 ::1 1 2\r\n", "PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n", "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
         "PROXY TCP4 192.0.2.7\0 198.51.100.1 1 2\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\r\n", "PROXY UNKNOWN #{'x' * 92}\r\n",
         "PROXY UNKNOWN #{'x' * 200}", "\r\n\r\nX", "\x16\x03\x01", "\n"].freeze

  def test_bad_headers_are_none
    BAD.each { |header| assert_equal false, parse(header), header.inspect }
    [v2(0x22, 0x11, 'x' * 12), v2(0x11, 0x11, 'x' * 12), v2(0x21, 0x13, 'x' * 12), v2(0x21, 0x41, 'x' * 12), v2(0x21, 0x11, 'x' * 11),
     v2(0x21, 0x21, 'x' * 35), v2(0x21, 0x31, 'x' * 215), v2(0x21, 0x00, '', length: 521), v2(0x21, 0x11, '', length: 65_535)].each do |header|
      assert_equal false, parse(header), header.inspect
    end
  end

  def test_any_bytes_get_an_answer
    random = Random.new(1)
    starts = ['', 'PROXY ', 'PROXY TCP4 ', 'PROXY TCP6 ', SIGNATURE, "#{SIGNATURE}\x21"].map(&:b)
    2_000.times { parse(starts.sample(random: random) + random.bytes(random.rand(600))) }
  end

  # --- on a server -----------------------------------------------------------------------------

  def serve(address = 'http://127.0.0.1:0', **options, &handler)
    @log = StringIO.new
    handler ||= ->(request) { request.respond("#{request.peer} #{request.connection.peer_port}") }
    @server = HTTP::Server.new(address, log: @log, **{ proxy: true, **options }, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def connect
    track(TCPSocket.new('127.0.0.1', @server.port))
  end

  REQUEST = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

  def answer(*pieces)
    socket = connect
    pieces.each do |piece|
      socket.write(piece)
      5.times { snooze } # so that the server sees the piece by itself
    end
    read_all(socket)
  end

  def read_all(socket)
    socket.read
  rescue Errno::ECONNRESET
    ''
  end

  def body_of(...)
    answer(...)[/\r\n\r\n(.*)\z/m, 1]
  end

  def test_the_handler_sees_the_client_of_the_proxy
    serve
    assert_equal '192.0.2.7 56324', body_of(GOOD_V1 + REQUEST)
    assert_equal '2001:db8::7 1', body_of(v6 + REQUEST)
    assert_match(/\A127\.0\.0\.1 \d+\z/, body_of(v2(0x20, 0x00, '') + REQUEST))
    assert_match(/\A127\.0\.0\.1 \d+\z/, body_of("PROXY UNKNOWN\r\n#{REQUEST}"))
    assert_empty @log.string
  end

  def test_a_header_may_come_in_pieces
    serve
    assert_equal '192.0.2.7 56324', body_of(*GOOD_V1.chars, REQUEST)
    assert_equal '192.0.2.7 56324', body_of(*v4.chars, REQUEST)
    assert_equal '192.0.2.7 56324', body_of(GOOD_V1[0, 10], GOOD_V1[10..] + REQUEST)
  end

  def test_what_is_no_header_ends_the_connection_with_one_line
    serve
    assert_equal '', answer(REQUEST)
    assert_match(/\A\S+ \[\d+\] refused 127\.0\.0\.1:\d+: PROXY: what came first is no PROXY header\n\z/, @log.string)
    assert_equal 1, @server.stats.refused
    assert_equal '192.0.2.7 56324', body_of(GOOD_V1 + REQUEST)
  end

  def test_a_header_that_does_not_end_is_too_slow
    serve(limits: { header_time: 0.1 })
    assert_equal '', answer('PROXY TC')
    assert_match(/no PROXY header within 0\.1 s/, @log.string)
  end

  def test_a_client_that_goes_before_its_header_is_nobody
    serve
    connect.close
    socket = connect
    socket.write('PROXY ')
    socket.close
    snooze until @server.stats.connections == 2 && @server.stats.open.zero?
    assert_empty @log.string
  end

  def test_a_second_header_is_a_bad_request
    serve
    keep = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert_equal %w[200 400], answer(GOOD_V1 + keep + GOOD_V1 + keep).scan(%r{HTTP/1\.1 (\d+)}).flatten
    assert_equal %w[400], answer(GOOD_V1 + GOOD_V1 + keep).scan(%r{HTTP/1\.1 (\d+)}).flatten
  end

  def test_without_the_option_a_header_is_a_bad_request
    serve(proxy: false)
    assert_equal %w[400], answer(GOOD_V1 + REQUEST).scan(%r{HTTP/1\.1 (\d+)}).flatten
  end

  def test_only_trusted_proxies_are_believed
    serve(proxy: ['192.0.2.0/24', '127.0.0.0/8'])
    assert_equal '192.0.2.7 56324', body_of(GOOD_V1 + REQUEST)
    @server.stop(within: 0)
    serve(proxy: '::1')
    assert_equal '', answer(GOOD_V1 + REQUEST)
    assert_match(/not one of the proxies that are trusted/, @log.string)
    assert_match(/proxy must be true, or addresses/, assert_raises(ArgumentError) { serve(proxy: ['here']) }.message)
  end

  def test_it_comes_before_tls
    cert, key = Polyphony::Certificates.certificate('a.test')
    serve('https://127.0.0.1:0', tls: { cert: cert, key: key })
    [GOOD_V1, v4].each do |header|
      socket = connect
      socket.write(header)
      client = OpenSSL::SSL::SSLSocket.new(socket, OpenSSL::SSL::SSLContext.new)
      client.connect
      client.write(REQUEST)
      assert_match(/192\.0\.2\.7 56324\z/, client.read)
    end
  end
end
