# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http1_case'
require 'tmpdir'

# HTTP/1 with a client that everybody has.
class TestHTTP1Curl < Polyphony::HTTP1Case
  on_every_driver

  def setup
    skip 'curl is not installed' unless system('curl --version', out: File::NULL, err: File::NULL)
    serve do |request|
      case request.path
      when '/echo' then request.respond(request.read, 'x-verb' => request.verb, 'x-version' => request.version, 'x-trailers' => request.trailers.to_a.join('='))
      when '/stream' then 3.times { |i| request.send_chunk("#{i}\n") }
      when '/hints' then request.early_hints('link' => '</a.css>; rel=preload').respond('page')
      else request.respond("hello #{request.version}\n", 'content-type' => 'text/plain')
      end
    end
  end

  # @return [String] what curl writes
  def curl(*arguments, path: '/', input: '')
    IO.popen(['curl', '-sS', '--max-time', patient(20).to_s, *arguments, "#{@server.url}#{path}"], 'r+', err: %i[child out]) do |io|
      io.write(input)
      io.close_write
      io.read
    end
  end

  def test_versions
    assert_equal "hello 1.0\n", curl('--http1.0')
    assert_equal "hello 1.1\n", curl('--http1.1')
  end

  def test_head
    text = curl('-I')
    assert_match(%r{\AHTTP/1.1 200 OK\r\n.*content-length: 10\r\n}m, text)
  end

  def test_connections_are_used_again
    assert_equal "hello 1.1\n" * 3, curl("#{@server.url}/1", "#{@server.url}/2")
    assert_equal 1, @server.stats.connections
    assert_equal "hello 1.0\n" * 3, curl('-0', "#{@server.url}/1", "#{@server.url}/2")
    assert_equal 4, @server.stats.connections
  end

  def test_uploads
    body = 'x' * 300_000
    assert_equal body, curl('-d', '@-', path: '/echo', input: body)
    assert_equal body, curl('-T', '-', path: '/echo', input: body) # in chunks
    assert_equal body, curl('-0', '-d', '@-', path: '/echo', input: body)
    assert_equal body, curl('-d', '@-', '-H', 'Expect: 100-continue', path: '/echo', input: body)
    assert_equal 'small', curl('-X', 'PATCH', '-d', 'small', path: '/echo')
  end

  def test_streams
    assert_equal "0\n1\n2\n", curl(path: '/stream')
    assert_equal "0\n1\n2\n", curl('-0', path: '/stream')
    assert_match(/transfer-encoding: chunked/, curl('-i', path: '/stream'))
  end

  def test_early_hints
    text = curl('-i', path: '/hints')
    assert_match(%r{\AHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n.*page\z}m, text)
  end

  def test_options_for_everybody_and_a_url_as_target
    assert_match(%r{\AHTTP/1.1 200 OK\r\nallow: }, curl('-i', '-X', 'OPTIONS', '--request-target', '*'))
    assert_equal "hello 1.1\n", curl('--proxy', @server.url, '-g')
  end

  def test_a_unix_socket
    Dir.mktmpdir do |folder|
      path = "#{folder}/http.sock"
      local = Polyphony::HTTP::Server.new("unix:#{path}", log: nil) { |request| request.respond("peer #{request.peer.inspect}") }.start
      assert_equal 'peer nil', curl('--unix-socket', path)
      local.stop(within: 0)
    end
  end
end
