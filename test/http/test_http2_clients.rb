# frozen_string_literal: true

require_relative '../test_helper'
require 'json'
require 'open3'
require 'polyphony/http'
require 'stringio'
require 'tempfile'

# HTTP/2 as clients of others speak it: curl, nghttp, h2load, node and python3-h2.
class TestHTTP2Clients < Polyphony::TestCase
  on_every_driver

  SUPPORT = File.expand_path('../support', __dir__)

  def setup
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    super
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log) { |request| answer(request) }.start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def answer(request)
    case request.path
    when '/echo' then request.respond(request.read, 'x-trailers' => request.trailers.to_a.join(','))
    when '/pieces' then pieces(request)
    when '/large' then request.respond('y' * 1_000_000)
    when '/hints' then request.early_hints({ 'link' => '</a.css>; rel=preload' }).respond('hinted')
    when '/ws' then websocket(request)
    else request.respond("plain #{request.version}", 'content-type' => 'text/plain', 'set-cookie' => %w[a=1 b=2])
    end
  end

  def pieces(request)
    5.times { |i| request.send_chunk("#{i};") }
    request.finish(trailers: { 'x-count' => '5' })
  end

  def websocket(request)
    stream = request.upgrade('websocket')
    buffer = +''.b
    stream << buffer.slice!(0..).upcase while stream.fill(buffer)
  end

  def tool(*command)
    files = ENV.fetch('PATH').split(':').map { |folder| File.join(folder, command.first) } << command.first
    skip "#{command.first} is not installed" unless files.any? { |file| File.executable?(file) }
    out, err, status = Open3.capture3({ 'LD_PRELOAD' => nil }, *command)
    assert status.success?, "#{command.join(' ')}: #{status.inspect} #{out[-2000..] || out} #{err}"
    out
  end

  def url(path = '/plain')
    "#{@server.url}#{path}"
  end

  # --- curl ---------------------------------------------------------------------------------------

  def curl(*options, path: '/plain')
    tool('curl', '-sS', '--max-time', '20', *options, url(path))
  end

  def test_curl_with_prior_knowledge
    head, body = curl('-i', '--http2-prior-knowledge').split("\r\n\r\n")
    assert_equal 'plain 2', body
    assert_match(/\AHTTP\/2 200/, head)
    assert_match(/^set-cookie: a=1\r\nset-cookie: b=2/, head)
    assert_match(/^date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT/, head)
    assert_match(/^content-length: 7\r/, head)
  end

  def test_curl_by_upgrade
    assert_match(/\AHTTP\/1.1 101.*HTTP\/2 200.*plain 2\z/m, curl('-i', '--http2'))
    assert_equal 1_000_000, curl('--http2', path: '/large').bytesize
  end

  def test_curl_without_http2_is_served_as_ever
    assert_equal 'plain 1.1', curl('--http1.1')
  end

  def test_curl_sends_and_gets_large_bodies
    Tempfile.create('body') do |file|
      file.binmode
      file.write(Random.bytes(2_000_000))
      file.flush
      assert_equal File.binread(file.path), curl('--http2-prior-knowledge', '--data-binary', "@#{file.path}", path: '/echo').b
    end
  end

  def test_curl_gets_trailers_and_hints
    assert_match(/0;1;2;3;4;x-count: 5/, curl('-i', '--http2-prior-knowledge', path: '/pieces').delete("\r"))
    assert_match(/\AHTTP\/2 103 .*link: .*HTTP\/2 200 .*hinted\z/m, curl('-i', '--http2-prior-knowledge', path: '/hints'))
  end

  # --- nghttp and h2load --------------------------------------------------------------------------

  def test_nghttp
    out = tool('nghttp', '-v', '--no-dep', url('/pieces'), url('/large'), url('/plain'))
    assert_equal 3, out.scan(':status: 200').size
    assert_match(/x-count: 5/, out)
    assert_match(/SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):100/, out)
    assert_match(/SETTINGS_ENABLE_CONNECT_PROTOCOL\(0x08\):1/, out)
  end

  def test_nghttp_by_upgrade
    assert_match(/HTTP Upgrade success.*:status: 200/m, tool('nghttp', '-uv', url))
  end

  def test_h2load
    out = tool('h2load', '-n', '3000', '-c', '10', '-m', '50', url)
    assert_match(/3000 succeeded, 0 failed, 0 errored, 0 timeout/, out)
    out = tool('h2load', '-n', '100', '-c', '4', '-m', '10', '-d', File.join(SUPPORT, 'http2_client.py'), url('/echo'))
    assert_match(/100 succeeded, 0 failed/, out)
    assert_equal '', @log.string
  end

  # --- python -------------------------------------------------------------------------------------

  def python(scenario)
    JSON.parse(tool('/usr/bin/python3', File.join(SUPPORT, 'http2_client.py'), scenario, @server.port.to_s))
  end

  def test_python
    plain, echo, trailers, pieces, large, hints, head = python('everything')
    assert_equal ['200', 'plain 2', 'text/plain'], [plain['headers'][':status'], plain['body'], plain['headers']['content-type']]
    assert_equal 300_000, echo['body']['size']
    assert_equal ['with trailers', 'x-sum,42'], [trailers['body'], trailers['headers']['x-trailers']]
    assert_equal ['0;1;2;3;4;', { 'x-count' => '5' }], pieces.values_at('body', 'trailers')
    assert_equal 1_000_000, large['body']['size']
    assert_equal [{ ':status' => '103', 'link' => '</a.css>; rel=preload' }], hints['info']
    assert_equal ['', '7'], [head['body'], head['headers']['content-length']]
    assert_equal '', @log.string
  end

  def test_python_with_many_streams
    answers = python('many')
    assert_equal [['plain 2', '200']] * 90, (answers.map { |answer| [answer['body'], answer['headers'][':status']] })
  end

  def test_python_opens_a_websocket_by_extended_connect
    answer, = python('websocket')
    assert_equal ['200', 'HELLO', nil], [answer['headers'][':status'], answer['body'], answer['reset']]
  end

  # --- node ---------------------------------------------------------------------------------------

  def test_node
    out = tool('node', File.join(SUPPORT, 'http2_client.js'), @server.url)
    answers = JSON.parse(out)
    assert_equal [200, 'plain 2', %w[a=1 b=2]], answers['plain'].values_at('status', 'body', 'cookies')
    assert_equal 500_000, answers['echo']['size']
    assert_equal ['0;1;2;3;4;', '5'], [answers['pieces']['body'], answers['pieces']['trailers']['x-count']]
    assert_equal 50, answers['many']
    assert_equal 8, answers['cancelled']
    assert_equal 'PING', answers['ws']
    assert_equal '', @log.string
  end
end
