# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'

# Heads and bodies as the parser sees them: what is taken, what is refused with which status, and that it does
# not matter in which pieces they come.
class TestHTTP1Parser < Polyphony::TestCase
  on_every_driver

  LIMITS = Polyphony::HTTP::Limits.new
  # What a server says in every env.
  TEMPLATE = { 'REQUEST_METHOD' => 'GET', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'QUERY_STRING' => '' }.freeze
  Base = Polyphony::HTTP::RackHandler::Environment::Base
  Template = Polyphony::HTTP::RackHandler::Environment::Template
  BadRequest = Polyphony::HTTP::BadRequest
  Parser = Polyphony::HTTP::HTTP1.const_get(:Parser)

  GOOD = {
    'the least'         => "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    '1.0 without Host'  => "GET / HTTP/1.0\r\n\r\n",
    'a line in front'   => "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    'fields'            => "GET /a?b=c HTTP/1.1\r\nHost: a.b:80\r\nX-One:1\r\nX-Empty:\r\nx-two: \t2 2 \t\r\nCOOKIE: a\r\ncookie: b\r\n\r\n",
    'bytes above 127'   => "GET / HTTP/1.1\r\nHost: a\r\nX: caf\xC3\xA9 \xFF\r\n\r\n".b,
    'a length'          => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    'a length of zeros' => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 000\r\n\r\n",
    'chunks'            => "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
    'trailers'          => "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n00\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n",
    'an IPv6 host'      => "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    'a URL'             => "GET http://Example.org:81/x?y HTTP/1.1\r\nHost: other\r\n\r\n",
    'a URL and no path' => "GET HTTPS://example.org?y HTTP/1.1\r\nHost: other\r\n\r\n",
    'everybody'         => "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    'expectations'      => "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
    'an upgrade'        => "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
    'a later 1.x'       => "GET / HTTP/1.9\r\nHost: a\r\n\r\n"
  }.freeze

  def self.with(*lines, line: 'POST / HTTP/1.1')
    "#{line}\r\n#{['Host: a', *lines].map { |field| "#{field}\r\n" }.join}\r\n".b
  end

  def self.line(line)
    "#{line}\r\nHost: a\r\n\r\n".b
  end

  def self.chunked(body)
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n#{body}".b
  end

  BAD = {
    400 => [
      # hosts
      "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", with('Host: a'), with('Host: b'),
      *['a, b', 'a,b', 'user@host', 'host/path', 'a b', '[::1', '[]', '::1', 'a:b', 'a:123456', 'a:80:80', "a\x80", ':80'].map do |host|
        "GET / HTTP/1.1\r\nHost: #{host}\r\n\r\n".b
      end,
      # names
      with('Name : value'), with(' Name: value'), with("\tName: value"), with('A: b', ' folded'), with('A: b', "\tfolded"),
      with('no colon'), with('nocolon'), with(': value'), with('[: a'), with("n\xC3: a".b), with("a\tb: c"), with("a\0b: c"), with('a"b: c'),
      "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
      # values and targets
      *[0, 1, 8, 10, 11, 12, 13, 14, 27, 31, 127].map { |byte| with("X: a#{byte.chr}b") },
      *[0, 1, 9, 10, 11, 12, 13, 27, 31, 127, 128, 255].map { |byte| line("GET /a#{byte.chr}b HTTP/1.1".b) },
      line('GET /a#b HTTP/1.1'),
      # ends of lines
      "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\rHost: a\r\r", "GET / HTTP/1.1\r\nHost: a\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\n",
      "GET / HTTP/1.1\r\nHost: a\r\n\rX", "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "\n\nGET / HTTP/1.1\r\n", "\r\n\r\nGET / HTTP/1.1\r\n", "\rGET / HTTP/1.1\r\n",
      # versions
      *['HTTP/1', 'HTTP/01.1', 'http/1.1', 'HTTP/1.1x', 'HTTP/1.10', 'HTTP/1.', 'HTTP/.1', 'HTTP/a.1', 'HTTP/1,1', 'HTP/1.1', 'HTTP/1.1 ', ' HTTP/1.1'].map do |version|
        line("GET / #{version}")
      end,
      line('GET /'), line('GET / '), line('GET'), line('GET  HTTP/1.1'), line(' GET / HTTP/1.1'), line('GE T / HTTP/1.1'), line("G\0T / HTTP/1.1"),
      # lengths and encodings
      with('Content-Length: 5', 'Transfer-Encoding: chunked'), with('Transfer-Encoding: chunked', 'Content-Length: 5'),
      with('Content-Length: 5', 'Content-Length: 6'), with('Content-Length: 5', 'Content-Length: 5'),
      *['5, 6', '5, 5', '+5', '-0', '-5', '0x5', '1_0', '5 5', '', '5.0', '1e3', '５', '1' * 20, '5;', 'a'].map { |value| with("Content-Length: #{value}") },
      *['xchunked', "\vchunked", "chunked\f", "chunked\0", '', 'identity', 'chunked, chunked', 'chunked, gzip', 'gzip', 'chunked;q=1', '"chunked"', 'chunked,identity', 'chun ked'].map do |value|
        with("Transfer-Encoding: #{value}")
      end,
      with('Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'), with('Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'),
      with('Transfer-Encoding: chunked', line: 'POST / HTTP/1.0'),
      # chunks
      *["0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello", "-1\r\n", "1_0\r\n", " 5\r\nhello", "5 \r\nhello", "\r\n", "#{'0' * 16}5\r\nhello\r\n", "5\r\nhello!\r\n0\r\n\r\n", "5\r\nhell\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\rhello", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n", "0\n\r\n", "0\r\n\n", "5;\0\r\n", "5;a\nb\r\n", "5;a\rb\r\n",
        "5;#{';' * 65_536}", "5;#{'a' * 4_097}\r\n", "g\r\n", "\u0665\r\n", "0\r\nno colon\r\n\r\n", "0\r\nX : y\r\n\r\n"].map { |body| chunked(body) },
      chunked("1;#{'x' * 1000}\r\na\r\n" * 17),
      # targets
      line('GET * HTTP/1.1'), line('OPTIONS ** HTTP/1.1'), line('GET a HTTP/1.1'), line('GET ftp://a/ HTTP/1.1'), line('GET http:// HTTP/1.1'), line('GET http://u@h/ HTTP/1.1'),
      line('GET http:///a HTTP/1.1'), line('GET ?a HTTP/1.1'),
      # something else
      "\x16\x03\x01\x02\x00\x01\x00".b, "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "\0\0\0\0", "\x80".b, 'M' * 10_000
    ],
    405 => [line('TRACE / HTTP/1.1')],
    413 => [with('Content-Length: 16777217'), with("Content-Length: #{'9' * 19}"), chunked("1000001\r\n"), chunked("ffffffffffffffff\r\n"),
            chunked("1\r\na\r\nffffffffffffffff\r\n")],
    414 => ["GET /#{'a' * 100_000}", "GET /#{'a' * 8_192} HTTP/1.1\r\n\r\n"],
    417 => [with('Expect: 200-ok', 'Content-Length: 1'), with('Expect: 100-continue, x'), with('Expect: 100-continue', 'Expect: 100-continue')],
    431 => [with("X: #{'a' * 200_000}"), with(*(['X: a'] * 10_000)), with(*(['X: a'] * 100)), with("Cookie: #{'c' * 65_536}"), with("#{'n' * 70_000}: a"),
            chunked("0\r\n#{"X: #{'a' * 1000}\r\n" * 200}\r\n"), chunked("0\r\n#{"X: a\r\n" * 101}\r\n")],
    501 => [line('FROB / HTTP/1.1'), line('get / HTTP/1.1'), line('CONNECT a:443 HTTP/1.1'), line("#{'M' * 1000} / HTTP/1.1"), with('Transfer-Encoding: gzip, chunked')],
    505 => [line('GET / HTTP/2.0'), line('GET / HTTP/3.7'), line('GET / HTTP/0.9')]
  }.freeze

  # @return [Array] all that the parser says about a request that comes in these pieces
  def parse(*pieces, parser: Parser.new(LIMITS))
    buffer = String.new(encoding: Encoding::BINARY)
    head = nil
    until head
      return [:more, buffer] if pieces.empty?

      buffer << pieces.shift
      head = parser.head(buffer)
    end
    [*facts(head), parser.keep_alive?, parser.expect?, *body(parser, buffer, pieces), parser.rest(buffer).dup]
  rescue BadRequest => e
    [e.status, e.message]
  end

  def facts(head)
    [head.verb, head.target, head.path, head.query, head.version, head.host, head.upgrade?, head.asterisk?, head.headers,
     head.make_env(base, nil).except('rack.hijack')]
  end

  def body(parser, buffer, pieces)
    text = +''
    until (piece = parser.body(buffer)).nil?
      if piece then text << piece
      elsif pieces.empty? then return [text, :more]
      else buffer << pieces.shift
      end
    end
    buffer << pieces.shift until pieces.empty?
    [text, parser.trailers]
  end

  def test_what_is_good
    GOOD.each do |name, text|
      result = parse(text)
      assert_kind_of String, result.first, "#{name}: #{result.inspect}"
      assert_equal '', result.last, name
    end
  end

  BAD.each do |status, texts|
    define_method("test_what_is_answered_with_#{status}") do
      texts.each { |text| assert_equal status, parse(text).first, text[0, 200].inspect }
    end
  end

  def test_every_split_into_two_gives_the_same
    heavy
    short = (GOOD.values + BAD.values.flatten).select { |text| text.bytesize < 400 }
    assert_operator short.size, :>, 150
    short.each do |text|
      text = text.b
      whole = parse(text)
      (1...text.bytesize).each do |at|
        assert_equal whole, parse(text.byteslice(0, at), text.byteslice(at..)), "#{text.inspect} split at #{at}"
      end
    end
  end

  def test_byte_by_byte_gives_the_same
    heavy
    (GOOD.values + BAD.values.flatten).each do |text|
      next if text.bytesize > 5_000

      assert_equal parse(text.b), parse(*text.b.each_char), text[0, 200].inspect
    end
  end

  # Twenty times the bytes must not take four hundred times the time.
  def test_the_time_grows_with_the_bytes
    heavy
    text = self.class.with(*Array.new(99) { |i| "X-#{i}: #{'v' * 600}" })
    best = ->(*pieces) { Array.new(3) { seconds { parse(*pieces) } }.min }
    whole = best.call(text)
    assert_operator best.call(*text.each_char), :<, [whole * 2_000, 0.5].max
  end

  def seconds
    began = clock
    yield
    clock - began
  end

  # --- what it tells ------------------------------------------------------------------------------

  def base(more = {})
    Base.new(Template.new(TEMPLATE.merge(more), '80'), '127.0.0.1', '1234')
  end

  def head(text)
    Parser.new(LIMITS).head(text.b)
  end

  def test_headers
    headers = head(GOOD['fields']).headers
    assert_equal({ 'host' => 'a.b:80', 'x-one' => '1', 'x-empty' => '', 'x-two' => '2 2', 'cookie' => 'a; b' }, headers)
    assert(headers.keys.all?(&:frozen?))
    assert(headers.values.none?(&:frozen?))
    assert_equal "caf\xC3\xA9 \xFF".b, head(GOOD['bytes above 127']).headers['x']
  end

  def test_one_field_in_any_case
    one = head(GOOD['fields'])
    assert_equal ['1', '2 2', 'a; b', 'a.b:80', '', nil], %w[X-ONE x-Two Cookie HOST X-Empty X-None].map { |name| one[name] }
  end

  def test_targets
    url = head(GOOD['a URL'])
    assert_equal ['/x?y', '/x', 'y', 'Example.org:81', 'Example.org:81'], [url.target, url.path, url.query, url.host, url.headers['host']]
    bare = head(GOOD['a URL and no path'])
    assert_equal ['/?y', '/', 'y', 'example.org'], [bare.target, bare.path, bare.query, bare.host]
    assert_nil head(GOOD['the least']).query
    assert_equal '', head("GET /? HTTP/1.1\r\nHost: a\r\n\r\n").query
    assert_nil head(GOOD['1.0 without Host']).host
  end

  def test_each_request_of_a_connection_has_the_host_that_it_names
    same = base
    names = ["GET / HTTP/1.1\r\nHost: a:81\r\n\r\n", "GET / HTTP/1.1\r\nHost: a:81\r\n\r\n", "GET / HTTP/1.1\r\nHost: b\r\n\r\n",
             GOOD['1.0 without Host'], "GET / HTTP/1.1\r\nHost: a:81\r\n\r\n"].map do |text|
      head(text).make_env(same, nil).values_at('HTTP_HOST', 'SERVER_NAME', 'SERVER_PORT')
    end
    assert_equal [%w[a:81 a 81], %w[a:81 a 81], %w[b b 80], [nil, 'localhost', '80'], %w[a:81 a 81]], names
  end

  def test_env
    env = head("POST /a%20b?c=d HTTP/1.1\r\nHost: [::1]:81\r\nContent-Type: t\r\nContent-Length: 1\r\nX-My-Own: x\r\nA: 1\r\na: 2\r\n\r\n").make_env(base('x' => 1), nil)
    assert_equal({ 'x' => 1, 'REQUEST_METHOD' => 'POST', 'PATH_INFO' => '/a%20b', 'REQUEST_URI' => '/a%20b?c=d', 'QUERY_STRING' => 'c=d', 'SERVER_PROTOCOL' => 'HTTP/1.1',
                   'SERVER_NAME' => '[::1]', 'SERVER_PORT' => '81', 'HTTP_HOST' => '[::1]:81', 'CONTENT_TYPE' => 't', 'CONTENT_LENGTH' => '1',
                   'HTTP_X_MY_OWN' => 'x', 'HTTP_A' => '1, 2', 'rack.response_finished' => [], 'polyphony.request' => nil,
                   'REMOTE_ADDR' => '127.0.0.1', 'REMOTE_PORT' => '1234' }, env.except('rack.hijack'))
    assert_respond_to env['rack.hijack'], :call
    ipv6 = head("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n").make_env(base, nil)
    assert_equal ['[::1]', '80'], ipv6.values_at('SERVER_NAME', 'SERVER_PORT')
    assert_equal %w[localhost 80], head(GOOD['1.0 without Host']).make_env(base, nil).values_at('SERVER_NAME', 'SERVER_PORT')
    refute head("GET / HTTP/1.1\r\nHost: a\r\nProxy: http://b\r\n\r\n").make_env(base, nil).key?('HTTP_PROXY')
    { 'a:1' => %w[a 1], 'a:' => %w[a 80], 'a1' => %w[a1 80], '1' => %w[1 80], '1:2' => %w[1 2], '127.0.0.1:8080' => %w[127.0.0.1 8080],
      '[::1]:' => %w[[::1] 80] }.each do |host, expected|
      assert_equal expected, head("GET / HTTP/1.1\r\nHost: #{host}\r\n\r\n").make_env(base, nil).values_at('SERVER_NAME', 'SERVER_PORT'), host
    end
  end

  def test_what_an_env_had_before_is_replaced
    before = { 'HTTP_A' => 'ours', 'HTTP_HOST' => 'ours', 'HTTP_B' => 'ours' }.freeze
    env = head("GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nX: y\r\na: 2\r\nX: z\r\nA: 3\r\n\r\n").make_env(base(before), nil)
    assert_equal ['1, 2, 3', 'a', 'ours', 'y, z'], env.values_at('HTTP_A', 'HTTP_HOST', 'HTTP_B', 'HTTP_X')
    assert_equal %w[ours] * 3, before.values
  end

  def test_what_is_spelled_with_dashes_wins
    ["X-Mine: dash\r\nX_Mine: underscore", "X_Mine: underscore\r\nX-Mine: dash"].each do |fields|
      assert_equal 'dash', head("GET / HTTP/1.1\r\nHost: a\r\n#{fields}\r\n\r\n").make_env(base, nil)['HTTP_X_MINE']
    end
    env = head("GET / HTTP/1.1\r\nHost: a\r\nX_Mine: 1\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\nX_Forwarded_For: me\r\n\r\n").make_env(base, nil)
    assert_equal '1', env['HTTP_X_MINE']
    assert_empty env.keys & %w[CONTENT_LENGTH HTTP_CONTENT_LENGTH HTTP_TRANSFER_ENCODING HTTP_X_FORWARDED_FOR]
  end

  def test_underscores_never_frame
    parser = Parser.new(LIMITS)
    assert parser.head("POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\nContent_Length: 3\r\n\r\n".b)
    refute parser.body?
  end

  def test_trailers_without_what_must_not_be_there
    body = "0\r\nX-Sum: 1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: evil\r\nAuthorization: evil\r\nX-Forwarded-For: evil\r\nETag: \"a\"\r\n\r\n"
    assert_equal({ 'x-sum' => '1', 'etag' => '"a"' }, parse(self.class.chunked(body))[-2])
  end

  def test_what_belongs_to_the_next_request_stays
    pipelined = GOOD.values.map(&:b)
    parser = Parser.new(LIMITS)
    buffer = pipelined.join
    pipelined.each do |text|
      expected = parse(text)
      head = parser.head(buffer)
      assert_equal expected, [*facts(head), parser.keep_alive?, parser.expect?, *body(parser, buffer, []), '']
    end
    assert_equal '', buffer
  end

  def test_a_million_chunks_of_one_byte_are_cheap
    heavy
    text = self.class.chunked("#{"1\r\na\r\n" * 1_000_000}0\r\n\r\n")
    spent = ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID)
    pieces = (0...text.bytesize).step(16_384).map { |at| text.byteslice(at, 16_384) }
    assert_equal 1_000_000, parse(*pieces)[-3].bytesize
    assert_operator ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID) - spent, :<, patient(1)
  end

  def test_limits_of_ones_own
    limits = Polyphony::HTTP::Limits.new(request_line: 20, header_block: 60, header_fields: 2, body: nil)
    parser = ->(text) { parse(text, parser: Parser.new(limits)).first }
    assert_equal 414, parser.call("GET /#{'a' * 20} HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_equal 431, parser.call("GET / HTTP/1.1\r\nHost: a\r\nB: c\r\nD: e\r\n\r\n")
    assert_equal 431, parser.call("GET / HTTP/1.1\r\nHost: a\r\nB: #{'c' * 60}\r\n\r\n")
    assert_equal 'POST', parser.call("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{'9' * 19}\r\n\r\n")
  end

  def test_a_buffer_that_had_to_grow_is_not_kept
    parser = Parser.new(LIMITS)
    buffer = self.class.with("X: #{'a' * 60_000}")
    assert parser.head(buffer)
    require 'objspace'
    assert_operator ObjectSpace.memsize_of(buffer), :<, 1000
    buffer << GOOD['the least']
    assert parser.head(buffer)
  end

  def test_a_parser_that_was_not_set_up
    assert_raises(TypeError) { Parser.allocate.head(+'GET') }
    assert_raises(TypeError) { Parser.new(LIMITS).head(:no) }
    assert_raises(TypeError) { Parser.new(LIMITS).send(:initialize, LIMITS) }
  end
end
