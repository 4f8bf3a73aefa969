# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require_relative '../support/http2_client'
require_relative '../support/raw_websocket'
require 'openssl'
require 'polyphony/http'
require 'stringio'

# A handler forks, and its child ends by an exception: it leaves through the same ensure clauses as a handler does here, with
# the same sockets. The client is to notice nothing of it.
class TestForkedChild < Polyphony::TestCase
  include Polyphony::Certificates
  on_every_driver

  HTTP = Polyphony::HTTP

  def serve(scheme = 'http', **options, &handler)
    @log = StringIO.new
    if scheme == 'https'
      @folder = Dir.mktmpdir
      cert, key = write_pair(@folder, 'localhost', certificate('localhost', '127.0.0.1'))
      options[:tls] = { cert: cert, key: key }
    end
    @server = HTTP::Server.new("#{scheme}://127.0.0.1:0", log: @log, **options, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  # In the handler: the status of a child that ends here.
  def child_status
    pid = fork or yield
    _, status = Process.wait2(pid)
    status.exitstatus
  end

  def client(tls: false, alpn: nil)
    socket = track(TCPSocket.new('127.0.0.1', @server.port))
    return socket unless tls

    context = OpenSSL::SSL::SSLContext.new
    context.alpn_protocols = [alpn] if alpn
    track(OpenSSL::SSL::SSLSocket.new(socket, context).tap(&:connect))
  end

  # @return [Array<String>] the bodies of two requests, of which the first forks
  def ask_twice(io)
    Array.new(2) do |n|
      io.write("GET /#{'fork' if n.zero?} HTTP/1.1\r\nHost: a\r\n\r\n")
      length = nil
      while (line = io.gets("\r\n")) != "\r\n"
        length = Integer(line[/\d+/], 10) if line.downcase.start_with?('content-length')
      end
      io.read(length)
    end
  end

  def forking_handler
    lambda do |request|
      status = request.path == '/fork' ? child_status { exit(3) } : 0
      request.respond("good #{status}")
    end
  end

  def test_http1
    serve(&forking_handler)
    assert_equal ['good 3', 'good 0'], ask_twice(client)
  end

  # Whoever says good-bye in TLS ends it for both.
  def test_tls
    serve('https', &forking_handler)
    assert_equal ['good 3', 'good 0'], ask_twice(client(tls: true))
  end

  def test_an_answer_that_has_begun
    %w[http https].each do |scheme|
      serve(scheme) do |request|
        request.send_headers({ 'content-type' => 'text/plain', 'content-length' => '10' })
        request.send_chunk('12345')
        status = child_status { exit(3) }
        request.send_chunk("678 #{status}")
      end
      io = client(tls: scheme == 'https')
      io.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
      assert_equal '12345678 3', io.read.split("\r\n\r\n", 2).last
      @server.stop(within: 0)
    end
  end

  def test_http2
    skip 'libnghttp2 was not found' unless HTTP.http2?

    %w[http https].each do |scheme|
      serve(scheme, &forking_handler)
      peer = HTTP2Client.new(client(tls: scheme == 'https', alpn: 'h2'))
      assert_equal [200, 200], [peer.get(1, '/fork'), peer.get(3, '/')]
      assert_equal ['good 3', 'good 0'], peer.bodies.values_at(1, 3)
      @server.stop(within: 0)
    end
  end

  def test_websocket
    %w[http https].each do |scheme|
      serve(scheme) do |request|
        request.upgrade_to_websocket do |ws|
          ws.each { |message| ws << (message == 'fork' ? "good #{child_status { exit(3) }}" : message) }
        end
      end
      socket = Polyphony::RawWebSocket.new("#{scheme}://127.0.0.1:#{@server.port}/")
      %w[fork other].each { |message| socket.send(message) }
      assert_equal ['good 3', 'other'], [socket.receive, socket.receive]
      socket.close
      @server.stop(within: 0)
    end
  end

  # Also one that breaks: its error is for the log, and not for the client.
  def test_a_child_that_breaks
    %w[http https].each do |scheme|
      serve(scheme) do |request|
        status = request.path == '/fork' ? child_status { raise 'in the child' } : 0
        request.respond("good #{status}")
      end
      assert_equal ['good 1', 'good 0'], ask_twice(client(tls: scheme == 'https'))
      @server.stop(within: 0)
    end
  end
end
