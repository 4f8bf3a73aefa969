# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require 'net/http'
require 'open3'
require 'polyphony/http'
require 'stringio'

# The server with TLS as clients meet it: curl, openssl s_client, Net::HTTP, and those who mean no good.
class TestHTTPS < Polyphony::TestCase
  include Polyphony::Certificates
  on_every_driver

  HTTP = Polyphony::HTTP

  def setup
    super
    @folder = Dir.mktmpdir
    @pair = certificate('localhost', '127.0.0.1')
    @cert, @key = write_pair(@folder, 'localhost', @pair)
  end

  def teardown
    @server&.stop(within: 0)
    FileUtils.rm_rf(@folder)
    super
  end

  def serve(tls: {}, **options, &handler)
    @log = StringIO.new
    handler ||= ->(request) { request.respond("#{request.scheme} #{request.version}", 'content-type' => 'text/plain') }
    tls = { cert: @cert, key: @key, **tls } if tls.is_a?(Hash)
    @server = HTTP::Server.new('https://127.0.0.1:0', tls: tls, log: @log, **options, &handler).start
  end

  def run_command(*command, input: '')
    out, status = Open3.capture2e(*command, stdin_data: input)
    [out, status.success?]
  end

  def curl(*options, path: '/')
    skip 'curl is not installed' unless system('command -v curl >/dev/null')

    run_command('curl', '-sS', '--max-time', '20', '--cacert', @cert, *options, "https://localhost:#{@server.port}#{path}",
                '--resolve', "localhost:#{@server.port}:127.0.0.1").first
  end

  def s_client(*options, input: '')
    skip 'openssl is not installed' unless system('command -v openssl >/dev/null')

    run_command('timeout', '20', 'openssl', 's_client', '-connect', "127.0.0.1:#{@server.port}", '-CAfile', @cert, *options, input: input).first
  end

  def tcp
    track(TCPSocket.new('127.0.0.1', @server.port))
  end

  def tls_client(socket = tcp, **settings)
    context = OpenSSL::SSL::SSLContext.new
    settings.each { |setting, value| context.public_send(:"#{setting}=", value) }
    OpenSSL::SSL::SSLSocket.new(socket, context).tap(&:connect)
  end

  def good?
    began = clock
    client = tls_client
    client.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = client.read
    assert_operator clock - began, :<, patient(1)
    answer.start_with?('HTTP/1.1 200')
  ensure
    client&.io&.close
  end

  def all_gone
    snooze until @server.stats.open.zero?
  end

  def test_curl_is_answered
    serve
    assert_equal 'https 1.1', curl('--http1.1')
    assert_equal 'https 1.1', curl('--http1.1', '--tls-max', '1.2')
    assert_equal 'https 1.1', curl('--no-alpn')
    assert_equal 'https 1.0', curl('--http1.0')
    assert_equal HTTP.http2? ? 'https 2' : 'https 1.1', curl('--http2')
    assert_empty @log.string
  end

  def test_bodies_go_both_ways
    serve do |request|
      request.send_headers({})
      request.each_chunk { |chunk| request.send_chunk(chunk.upcase) }
    end
    file = File.join(@folder, 'body')
    File.write(file, 'x' * 3_000_000)
    assert_equal 'X' * 3_000_000, curl('--http1.1', '--data-binary', "@#{file}")
  end

  def test_files_are_sent
    file = File.join(@folder, 'file')
    content = Random.bytes(1_000_000)
    File.binwrite(file, content)
    serve do |request|
      request.send_headers({ 'content-length' => '999999' })
      File.open(file, 'rb') { |source| request.send_file_part(source, 1, 999_999) }
    end
    assert_equal content.byteslice(1..), curl('--http1.1').b
  end

  def test_one_connection_serves_many_requests
    serve
    http = Net::HTTP.new('localhost', @server.port)
    http.ipaddr = '127.0.0.1'
    http.use_ssl = true
    http.ca_file = @cert
    http.start { 20.times { assert_equal 'https 1.1', http.get('/').body } }
    assert_equal [1, 20], [@server.stats.connections, @server.stats.requests]
  end

  def test_the_self_signed_certificate_is_one_word
    before = ENV.fetch('XDG_STATE_HOME', nil)
    ENV['XDG_STATE_HOME'] = @folder
    serve(tls: :self_signed)
    @cert = File.join(@folder, 'polyphony/self-signed.pem')
    assert_equal 'https 1.1', curl('--http1.1')
    assert_match(/self-signed certificate for localhost/, @log.string)
  ensure
    ENV['XDG_STATE_HOME'] = before
  end

  def test_names_are_told_apart
    other = write_pair(@folder, 'other', certificate('other.test'))
    serve(tls: { certificates: [{ cert: other[0], key: other[1] }] })
    assert_match(/CN ?= ?other\.test/, s_client('-servername', 'other.test'))
    assert_match(/CN ?= ?localhost/, s_client('-servername', 'localhost'))
    assert_match(/CN ?= ?localhost/, s_client('-servername', 'unknown.test'))
    assert_match(/CN ?= ?localhost/, s_client('-noservername'))
  end

  def test_unknown_names_are_turned_away_if_wanted
    serve(tls: { strict_names: true })
    assert_match(/unrecognized name/, s_client('-servername', 'unknown.test'))
    all_gone
    assert_match(/\A.*refused 127\.0\.0\.1:\d+: TLS: there is no certificate for the name it asked for\n\z/, @log.string)
    assert good?
  end

  def test_a_reload_leaves_connections_alone
    serve
    client = tls_client
    ask = -> { client.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").then { client.readpartial(1_000) } }
    ask.call
    write_pair(@folder, 'localhost', certificate('renewed.test'))
    @server.listeners.first.tls.reload
    assert_match(/https 1\.1\z/, ask.call)
    assert_match(/CN ?= ?renewed\.test/, s_client('-servername', 'localhost'))
    client.close
  end

  def test_a_client_certificate_reaches_the_handler
    authority = certificate('authority', authority: true)
    File.write(ca = File.join(@folder, 'ca.pem'), authority.first.to_pem)
    cert, key = write_pair(@folder, 'someone', certificate('someone', from: authority))
    serve(tls: { verify: :required, ca: ca }) { |request| request.respond(request.connection.transport.peer_certificate.subject.to_s) }
    assert_equal '/CN=someone', curl('--http1.1', '--cert', cert, '--key', key)
    assert_match(/curl: /, curl('--http1.1'))
    all_gone
    assert_match(/refused .*TLS handshake: peer did not return a certificate/, @log.string)
  end

  # --- those who mean no good (HOSTILE 23, 42, 43) -----------------------------------------------

  def test_old_versions_are_refused
    serve
    %w[-tls1 -tls1_1].each { |version| refute_match(/Cipher is (?!\(NONE\))/, s_client(version, '-cipher', 'ALL@SECLEVEL=0')) }
    assert_match(/Cipher is (?!\(NONE\))/, s_client('-tls1_2'))
    all_gone
    assert_equal 2, @log.string.scan(/TLS handshake: unsupported protocol/).size
  end

  def test_a_client_cannot_negotiate_anew
    serve
    assert_match(/no renegotiation/, s_client('-tls1_2', input: "R\n"))
    all_gone
    assert good?
  end

  # In TLS 1.3 a client may ask for new keys at any time; here it does nothing else.
  def ask_for_keys(seconds)
    skip 'openssl is not installed' unless system('command -v openssl >/dev/null')

    Process.spawn("yes K | timeout #{seconds} openssl s_client -tls1_3 -connect 127.0.0.1:#{@server.port}", out: File::NULL, err: File::NULL)
  end

  def test_asking_for_new_keys_is_no_request
    serve(limits: { header_time: 0.3 })
    pid = ask_for_keys(patient(20))
    snooze until @server.stats.connections == 1
    all_gone # although the client goes on
    began = clock
    Process.wait(pid)
    assert_operator clock - began, :<, patient(15)
  end

  def test_alpn_that_is_unknown_or_missing_is_http1
    serve
    request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert_match(%r{HTTP/1\.1 200}, s_client('-alpn', 'h2c', '-ign_eof', input: request))
    assert_match(%r{HTTP/1\.1 200}, s_client('-ign_eof', input: request))
    assert_match(/no application protocol/, s_client('-alpn', 'imap', '-ign_eof', input: request))
  end

  def test_slow_and_silent_handshakes_end_in_time_and_keep_nobody_waiting
    serve(limits: { handshake_time: 0.4 })
    slow = Array.new(30) do |i|
      tcp.tap { |socket| socket.write(["\x16", "\x16\x03\x01\x02\x00\x01\x00", '', "\x16\x03\x01\x40\x00#{'x' * 9_000}"][i % 4]) }
    end
    dripping = spin do
      loop do
        slow.each { |socket| outcome { socket.write("\x01") } }
        sleep 0.1
      end
    end
    3.times { assert good? }
    all_gone
    dripping.stop
    slow.each { |socket| outcome { socket.read } }
    assert_operator @log.string.lines.size, :<=, HTTP::Log::RATE * 3
    assert_match(/no TLS handshake within 0\.4 s/, @log.string)
    assert good?
  end

  def test_junk_is_refused_with_a_line
    serve
    [Random.new(2).bytes(16_384).sub(/\A./mn, "\xf0".b), "\0" * 16_384, 'SSH-2.0-OpenSSH_9.2\r\n'].each do |junk|
      socket = tcp
      outcome { socket.write(junk) }
      outcome { socket.read }
    end
    all_gone
    assert_equal 3, @server.stats.refused
    assert_equal 3, @log.string.lines.size
    assert good?
  end

  def test_plain_http_is_told_to_use_https
    serve
    skip 'curl is not installed' unless system('command -v curl >/dev/null')

    out, = run_command('curl', '-sS', '-i', "http://127.0.0.1:#{@server.port}/")
    assert_match(%r{\AHTTP/1\.1 400 .*This port speaks HTTPS}m, out)
    all_gone
    assert_match(/TLS handshake: http request/, @log.string)
  end

  def test_tls_on_the_plain_port_is_refused
    @log = StringIO.new
    @server = HTTP::Server.new('http://127.0.0.1:0', log: @log) { |request| request.respond('x') }.start
    assert_raises(OpenSSL::SSL::SSLError) { tls_client }
    all_gone
    assert_equal 1, @log.string.lines.size
  end

  def test_a_body_that_is_cut_off_is_an_error
    seen = Polyphony::Queue.new
    serve do |request|
      request.read
      seen << :whole
    rescue HTTP::ClientGone => e
      seen << e.class
      raise
    end
    # Until the end, a good-bye and none: both come too soon.
    [true, false].each do |polite|
      client = tls_client
      client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nnot all")
      client.__send__(:stop) if polite
      client.io.close
      assert_equal HTTP::ClientGone, seen.shift
    end
    all_gone
  end

  def test_resets_in_each_state_hurt_nobody
    serve(limits: { handshake_time: 5 }) do |request|
      request.send_headers({})
      200.times { request.send_chunk('x' * 10_000) }
    end
    reset = lambda do |socket|
      socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
      socket.close
    end
    reset.call(tcp)
    reset.call(tcp.tap { |socket| socket.write("\x16\x03\x01") })
    reset.call(tls_client.io)
    reset.call(tls_client.tap { |client| client.write("GET / HTTP/1.1\r\nHo") }.io)
    reset.call(tls_client.tap { |client| client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n") && client.readpartial(100) }.io)
    all_gone
    assert_equal 0, @server.stats.running
    assert good?
  end

  def test_stopping_says_good_bye_to_idle_connections
    serve
    client = tls_client
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    client.readpartial(1_000)
    stopping = spin { @server.stop(within: patient(5)) }
    assert_raises(EOFError) { client.readpartial(10) } # without a good-bye it would be an SSLError
    client.close
    stopping.await
  end

  def test_handshakes_that_go_on_do_not_keep_a_server_that_stops
    serve
    tcp.write("\x16\x03")
    snooze until @server.stats.open == 1
    5.times { snooze }
    began = clock
    @server.stop(within: 30)
    assert_operator clock - began, :<, patient(5)
  end

  # The time of a head begins with it, also where what came last was a body, or as much as is read at once.
  def test_a_connection_may_rest_for_longer_than_a_head_may_take
    serve(limits: { header_time: 0.2, keep_alive: 20 }) { |request| request.respond(request.read.bytesize.to_s) }
    client = tls_client
    whole = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".bytesize
    ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
     "GET / HTTP/1.1\r\nHost: a\r\nX: #{'y' * (4096 - whole)}\r\n\r\n"].each do |request|
      2.times do
        client << request
        nil until client.gets == "\r\n"
        assert_equal request.start_with?('POST') ? '3' : '0', client.read(1)
        sleep 0.4
      end
    end
  ensure
    client&.close
  end

  # A record that comes in parts, of which the kernel tells twice, is one request.
  def test_a_record_in_two_parts_does_not_shorten_the_rest
    serve(limits: { header_time: 0.3, keep_alive: 20 }) do |request|
      sleep 0.05
      request.respond('1')
    end
    inner, outer = socket_pair
    socket = tcp
    spin { loop { outer << socket.readpartial(65_536) } rescue nil } # rubocop:disable Style/RescueModifier
    spin do
      loop do
        bytes = outer.readpartial(65_536)
        bytes.each_char.each_slice((bytes.bytesize / 3) + 1) { |part| socket << part.join and sleep(0.01) }
      end
    rescue EOFError, IOError
      nil
    end
    client = tls_client(inner)
    2.times do
      client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
      nil until client.gets == "\r\n"
      assert_equal '1', client.read(1)
      sleep 0.6
    end
  ensure
    client&.close
  end

  # What the client says goes through our hands: it comes when and how we like. Answers go straight to it.
  # @yield [client, outer, socket] what it writes is read from outer, and is to be written to socket
  def with_relay
    inner, outer = socket_pair
    socket = tcp
    back = spin { loop { outer << socket.readpartial(65_536) } rescue nil } # rubocop:disable Style/RescueModifier
    forth = spin { loop { socket << outer.readpartial(65_536) } }
    client = tls_client(inner)
    forth.stop
    forth.await
    yield client, outer, socket
  ensure
    client&.close
    back&.stop
  end

  # The other records are in our hands by then, and the kernel tells nothing of them.
  def test_records_that_come_together_in_any_two_parts_are_all_answered
    serve(limits: { requests: nil }) { |request| request.respond(request.read.bytesize.to_s) }
    other = tls_client
    requests = ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
    with_relay do |client, outer, socket|
      cut = -1
      loop do
        requests.each { |request| client.syswrite(request) }
        bytes = outer.readpartial(65_536)
        socket << bytes.byteslice(0, cut += 1)
        ask(other) # so that the server has had the time to see the first part
        socket << bytes.byteslice(cut..)
        assert_equal %w[0 3 0], Array.new(3) { answer(client) }, "cut at #{cut}"
        break if cut >= bytes.bytesize
      end
    end
  ensure
    other&.close
  end

  def ask(client)
    client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    answer(client)
  end

  def answer(client)
    size = 0
    while (line = client.gets) != "\r\n"
      size = Integer(line[/\d+/]) if line.start_with?('content-length')
    end
    client.read(size)
  end

  def test_who_says_nothing_after_the_handshake_has_the_time_of_a_head
    serve(limits: { header_time: 0.2, keep_alive: 20 })
    client = tls_client
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    assert_nil client.gets
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :<, 5
  ensure
    client&.close
  end

  # Also after requests: of a record that is not whole nothing is known but that it has begun.
  def test_who_begins_a_record_has_the_time_of_a_head
    serve(limits: { header_time: 0.3, keep_alive: 600 })
    with_relay do |client, outer, socket|
      2.times do
        client.syswrite("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        socket << outer.readpartial(65_536)
        answer(client)
      end
      client.syswrite("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      socket << outer.readpartial(65_536).byteslice(0, 20)
      assert_match(/\AHTTP\/1\.1 408 /, client.gets)
      nil while client.gets
      snooze until @server.stats.open.zero?
      assert_equal ['the head of a request took longer than 0.3 s'], @log.string.scan(/the head .*$/)
    end
  end

  # What is not whole at once is served in another way, and it counts all the same.
  def test_a_request_with_a_body_on_a_connection_that_has_rested_is_finished_when_the_server_stops
    serve(limits: { drain_idle: 0.01 }) { |request| request.respond(request.read.bytesize.to_s) }
    client = tls_client
    assert_equal '0', ask(client)
    client << "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc"
    snooze until @server.stats.running == 1
    stop = spin { @server.stop(within: 60) }
    sleep 0.1
    client << 'def'
    assert_equal '6', answer(client)
    stop.await
  ensure
    client&.close
  end

  # What a header does while it is made into a String is nobody's business, but more is not written than there is room for.
  def test_a_body_that_grows_while_its_headers_are_made_is_refused
    serve do |request|
      body = +'x'
      value = Object.new
      value.define_singleton_method(:to_s) { 'v'.tap { body << ('y' * 200_000) } }
      request.respond(body, 'x' => value)
    end
    client = tls_client
    2.times do
      client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
      assert_equal "HTTP/1.1 500 Internal Server Error\r\n", client.gets
      nil until client.gets == "\r\n"
      client.read("Internal Server Error\n".bytesize)
    end
    assert_match(/the body has changed/, @log.string)
  ensure
    client&.close
  end
end
