# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require_relative '../support/http2_client'
require 'open3'
require 'openssl'
require 'polyphony/http'
require 'stringio'

# HTTP/2 in TLS, agreed upon by ALPN.
class TestHTTP2TLS < Polyphony::TestCase
  include Polyphony::Certificates
  on_every_driver

  def setup
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    super
    @folder = Dir.mktmpdir
    cert, key = write_pair(@folder, 'localhost', certificate('localhost', '127.0.0.1'))
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('https://127.0.0.1:0', tls: { cert: cert, key: key }, log: @log) { |request| answer(request) }.start
  end

  def teardown
    @server&.stop(within: 0)
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  def answer(request)
    case request.path
    when '/large' then request.respond('x' * 3_000_000)
    when '/echo' then request.respond(request.read)
    else request.respond("#{request.scheme} #{request.version}")
    end
  end

  def client(**options)
    context = OpenSSL::SSL::SSLContext.new
    context.alpn_protocols = ['h2']
    socket = OpenSSL::SSL::SSLSocket.new(track(TCPSocket.new('127.0.0.1', @server.port)), context)
    socket.sync_close = true
    socket.connect
    assert_equal 'h2', socket.alpn_protocol
    HTTP2Client.new(track(socket), **options)
  end

  def tool(*command)
    skip "#{command.first} is not installed" unless system("command -v #{command.first} >/dev/null")
    out, err, status = Open3.capture3({ 'LD_PRELOAD' => nil }, *command)
    assert status.success?, "#{command.join(' ')}: #{status.inspect} #{out[-2000..] || out} #{err}"
    out
  end

  def url(path = '/')
    "https://127.0.0.1:#{@server.port}#{path}"
  end

  def test_curl
    assert_equal 'https 2', tool('curl', '-sSk', '--max-time', '20', url)
    assert_equal 3_000_000, tool('curl', '-sSk', '--max-time', '20', url('/large')).bytesize
    assert_equal 'body', tool('curl', '-sSk', '--max-time', '20', '-d', 'body', url('/echo'))
    assert_equal 'https 1.1', tool('curl', '-sSk', '--max-time', '20', '--http1.1', url)
  end

  def test_h2load
    assert_match(/1000 succeeded, 0 failed, 0 errored/, tool('h2load', '-n', '1000', '-c', '10', '-m', '20', url))
    assert_match(/20 succeeded, 0 failed, 0 errored/, tool('h2load', '-n', '20', '-c', '2', '-m', '5', url('/large')))
  end

  def test_a_client_that_agreed_upon_h2_and_speaks_something_else
    http = client(preface: false)
    http.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_equal :PROTOCOL_ERROR, http.goaway
    assert_match(/PROTOCOL_ERROR: bad connection preface/, @log.string)
    assert_equal 1, @log.string.lines.size
  end

  # The rest of a record has to go out before anything else, while other streams answer.
  def test_answers_that_have_to_wait_for_the_client
    http = client(settings: { 4 => 0x7fff_ffff })
    http.write(http.window(0, 0x7f00_0000) + (0..3).map { |i| http.headers(2 * i + 1, http.fields('GET', '/large')) }.join)
    snooze until @server.stats.requests == 4
    http.write(http.headers(9))
    snooze until @server.stats.requests == 5
    assert_equal [200] * 5, [1, 3, 5, 7, 9].map { |id| http.await(id) }
    assert_equal [3_000_000] * 4, [1, 3, 5, 7].map { |id| http.bodies[id].bytesize }
  end
end
