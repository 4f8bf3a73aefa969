# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require_relative '../support/http2_client'
require_relative '../support/rack_client'
require 'open3'
require 'polyphony/http'
require 'rack'
require 'rack/lint'
require 'stringio'

# Rack applications whose clients speak HTTP/2, or TLS.
class TestRackHTTP2 < Polyphony::TestCase
  on_every_driver

  TEXT = { 'content-type' => 'text/plain' }.freeze
  TLS = Polyphony::HTTP::TLS.new(**%i[cert key].zip(Polyphony::Certificates.certificate('a.test')).to_h)

  def setup
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    super
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def serve(address = 'http://127.0.0.1:0', lint: true, **options, &app)
    app = Rack::Lint.new(app) if lint
    @log = StringIO.new
    handler = Polyphony::HTTP::RackHandler.new(app, errors: @log)
    @server = Polyphony::HTTP::Server.new(address, app: handler, log: @log, **options).start
  end

  def client
    HTTP2Client.new(track(TCPSocket.new('127.0.0.1', @server.port)))
  end

  def body_of(id = 1, path = '/', http: client)
    assert_equal 200, http.get(id, path), @log.string
    http.bodies[id]
  end

  # @return [Array(Hash, String)] headers and body
  def curl(*options)
    out, err, status = Open3.capture3('curl', '-sSi', '--max-time', '10', '--http2-prior-knowledge', *options, "http://127.0.0.1:#{@server.port}/")
    assert_predicate status, :success?, err
    head, body = out.split("\r\n\r\n", 2)
    [head.lines(chomp: true).drop(1).group_by { |line| line[/\A[^:]*/] }.transform_values { |lines| lines.map { |line| line.split(': ', 2).last.strip } }, body]
  end

  def assert_no_complaint
    assert_equal '', @log.string
  end

  def test_the_environment
    env = nil
    serve { |e| env = e; [200, TEXT.dup, ['ok']] }
    http = client
    http.write(http.headers(1, http.fields('GET', '/a%20b?c=d', authority: 'h2.example:81', cookie: 'a=1', 'x-thing': '1')))
    assert_equal 200, http.await(1), @log.string
    expected = {
      'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/a%20b', 'QUERY_STRING' => 'c=d', 'REQUEST_URI' => '/a%20b?c=d', 'SCRIPT_NAME' => '',
      'SERVER_PROTOCOL' => 'HTTP/2', 'SERVER_NAME' => 'h2.example', 'SERVER_PORT' => '81', 'HTTP_HOST' => 'h2.example:81',
      'HTTP_COOKIE' => 'a=1', 'HTTP_X_THING' => '1', 'rack.url_scheme' => 'http', 'rack.hijack' => nil, 'REMOTE_ADDR' => '127.0.0.1'
    }
    assert_equal expected, expected.keys.to_h { |key| [key, env[key]] }
    assert_no_complaint
  end

  # As with HTTP/1: a proxy in front of us may have set or removed what is spelled with a dash.
  def test_a_header_with_underscores_never_takes_the_place_of_another
    env = nil
    serve { |e| env = e; [200, TEXT.dup, ['ok']] }
    http = client
    fields = http.fields('GET', '/?', authority: '[::1]') +
             [%w[x_forwarded_for evil], %w[content_length 5], %w[x_own second], %w[x-own first], %w[x_other 1], %w[proxy http://evil]]
    http.write(http.headers(1, fields))
    assert_equal 200, http.await(1), @log.string
    expected = { 'HTTP_X_FORWARDED_FOR' => nil, 'HTTP_CONTENT_LENGTH' => nil, 'CONTENT_LENGTH' => nil, 'HTTP_X_OWN' => 'first', 'HTTP_X_OTHER' => '1',
                 'HTTP_PROXY' => nil, 'PATH_INFO' => '/', 'QUERY_STRING' => '', 'SERVER_NAME' => '[::1]', 'SERVER_PORT' => '80' }
    assert_equal expected, expected.keys.to_h { |key| [key, env[key]] }
  end

  # What those of HTTP/1 have asked for is remembered for the next of them.
  def test_a_host_without_a_port_has_the_port_of_the_scheme_whatever_others_have_said
    seen = []
    serve { |env| seen << env.values_at('SERVER_NAME', 'SERVER_PORT'); [200, TEXT.dup, ['ok']] }
    other = track(TCPSocket.new('127.0.0.1', @server.port))
    other << "GET / HTTP/1.1\r\nHost: other.example:8123\r\n\r\n"
    other.gets
    body_of
    other << "GET / HTTP/1.1\r\nHost: other.example:8123\r\n\r\n"
    nil until other.gets == "\r\n"
    other.read(2)
    other.gets
    assert_equal [%w[other.example 8123], %w[test 80], %w[other.example 8123]], seen
  end

  def test_a_client_cannot_make_the_connection_a_secure_one_by_saying_so
    seen = []
    serve { |env| seen << env.values_at('rack.url_scheme', 'HTTPS', 'SERVER_PORT'); [200, TEXT.dup, ['ok']] }
    http = client
    %w[https http].each_with_index do |scheme, i|
      http.write(http.headers((2 * i) + 1, http.fields.map { |name, value| [name, name == ':scheme' ? scheme : value] }))
      http.await((2 * i) + 1)
    end
    assert_includes [[['http', nil, '80']] * 2, [['http', nil, '80']]], seen # it may have been refused
  end

  def test_bodies_of_every_kind
    bodies = {
      'array' => %w[one two], 'each' => %w[one two].each, 'call' => ->(stream) { stream.write('one'); stream << 'two'; stream.close },
      'proxy' => Rack::BodyProxy.new(%w[one two]) {}
    }
    serve { |env| [200, TEXT.dup, bodies.fetch(env['PATH_INFO'].delete('/'))] }
    http = client
    bodies.each_key.with_index { |name, i| assert_equal 'onetwo', body_of((2 * i) + 1, "/#{name}", http: http), name }
    assert_no_complaint
  end

  def test_a_file_is_sent
    body = Object.new
    def body.to_path = __FILE__
    def body.each = raise
    serve(lint: false) { [200, TEXT.dup, body] }
    assert_equal File.binread(__FILE__), body_of
  end

  def test_headers_are_made_fit
    serve(lint: false) do
      [200, { 'Content-Type' => 'text/plain', 'Connection' => 'close', 'Keep-Alive' => '5', 'Set-Cookie' => %w[a=1 b=2],
              'Transfer-Encoding' => 'chunked', 'rack.thing' => 1, 'X-Nil' => nil, 'X-Number' => 5 },
       ["5\r\nhello\r\n", "0\r\n\r\n"]]
    end
    headers, body = curl
    assert_equal 'hello', body
    assert_equal [['text/plain'], %w[a=1 b=2], ['5']], headers.values_at('content-type', 'set-cookie', 'x-number')
    assert_empty headers.keys & %w[connection keep-alive transfer-encoding x-nil rack.thing]
    assert_no_complaint
  end

  def test_an_upload_is_read_as_it_comes
    serve { |env| [200, TEXT.dup, [env['rack.input'].read(5), '|', env['rack.input'].gets.to_s, '|', env['rack.input'].read]] }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4) + http.data(1, 'first') + http.data(1, "li\n") + http.data(1, 'rest', last: true))
    assert_equal [200, "first|li\n|rest"], [http.await(1), http.bodies[1]]
    assert_no_complaint
  end

  def test_both_directions_at_once
    serve { [200, TEXT.dup, ->(stream) { while (data = stream.read(3)) do stream.write(data.upcase) end }] }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4) + http.data(1, 'abc'))
    http.until_frame { http.bodies[1] == 'ABC' }
    http.write(http.data(1, 'def', last: true))
    assert_equal [200, 'ABCDEF'], [http.await(1), http.bodies[1]]
    assert_no_complaint
  end

  def test_half_a_hijack_is_a_socket_that_may_be_kept
    serve do
      [200, TEXT.merge('rack.hijack' => lambda do |stream|
        Thread.new { stream.write("got #{stream.read(4)}"); stream.close }
      end), []]
    end
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4) + http.data(1, 'abcd', last: true))
    assert_equal [200, 'got abcd'], [http.await(1), http.bodies[1]]
    assert_no_complaint
  end

  def test_a_stream_may_be_taken_for_another_protocol
    offered = nil
    serve(lint: false) do |env|
      offered = env.values_at('rack.protocol', 'REQUEST_METHOD')
      [200, { 'rack.protocol' => 'echo' }, ->(stream) { while (data = stream.read(2)) do stream.write(data.upcase) end }]
    end
    http = client
    http.until_frame { |frame| frame.type == :settings }
    http.write(http.headers(1, http.fields('CONNECT', '/x', ':protocol': 'echo').sort_by { |name, _| name.start_with?(':') ? 0 : 1 }, flags: 4))
    http.write(http.data(1, 'ab'))
    http.until_frame { http.bodies[1] == 'AB' }
    http.write(http.data(1, 'cd', last: true))
    assert_equal [200, 'ABCD'], [http.await(1), http.bodies[1]]
    assert_equal [['echo'], 'CONNECT'], offered
    assert_no_complaint
  end

  def test_early_hints_and_callbacks
    told = Queue.new
    serve do |env|
      env['rack.early_hints'].call('link' => '</x>; rel=preload')
      env['rack.response_finished'] << ->(_env, status, _headers, error) { told << [status, error] }
      [200, TEXT.dup, ['ok']]
    end
    assert_equal 'ok', body_of
    assert_equal [200, nil], told.pop
    assert_no_complaint
  end

  def test_a_body_is_closed_when_the_stream_is_reset
    closed = Queue.new
    body = Object.new
    body.define_singleton_method(:each) { |&block| loop { block.call('x' * 10_000) } }
    body.define_singleton_method(:close) { closed << true }
    serve { [200, TEXT.dup, body] }
    http = client
    http.write(http.headers(1))
    http.until_frame { |frame| frame.type == :data }
    http.write(http.reset(1))
    assert closed.pop
    assert_equal 500, get_broken(http)
  end

  # The connection goes on.
  def get_broken(http)
    @server.instance_variable_set(:@handler, ->(_request) { raise 'on purpose' })
    http.get(3)
  end

  def test_a_bad_answer_is_an_error
    answers = { '/short' => [200, { 'content-length' => '9' }, ['short']], '/name' => [200, { 'a b' => 'c' }, ['x']],
                '/line' => [200, { 'x' => "a\r\nb" }, ['x']], '/string' => [200, {}, 'x'] }
    serve(lint: false) { |env| answers[env['PATH_INFO']] }
    http = client
    answers.each_key.with_index { |path, i| assert_equal 500, http.get((2 * i) + 1, path), path }
  end

  # --- TLS --------------------------------------------------------------------------------------

  def secure_client
    socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new('127.0.0.1', @server.port))
    socket.sync_close = true
    Polyphony::RackClient.new(track(socket.connect))
  end

  def test_the_scheme_of_tls
    env = nil
    serve('https://127.0.0.1:0', tls: TLS) { |e| env = e; [200, TEXT.dup, ['ok']] }
    assert_equal 'ok', secure_client.request("GET / HTTP/1.1\nHost: a.test\n\n").body
    assert_equal %w[https on 443 HTTP/1.1], env.values_at('rack.url_scheme', 'HTTPS', 'SERVER_PORT', 'SERVER_PROTOCOL')
    assert_no_complaint
  end

  def test_what_is_hijacked_behind_tls_is_a_socket
    kind = nil
    serve('https://127.0.0.1:0', tls: TLS, lint: false) do |env|
      io = env['rack.hijack'].call
      kind = io.class
      Thread.new do
        io.write("HTTP/1.1 200 OK\r\n\r\n#{io.read(5).upcase}")
        io.close
      end
      [-1, {}, []]
    end
    here = secure_client
    here.send("GET / HTTP/1.1\nHost: a.test\n\n")
    here.socket.write('hello')
    assert_equal 'HELLO', here.answer.body
    assert_equal UNIXSocket, kind
    assert_no_complaint
  end
end
