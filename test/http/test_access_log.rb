# frozen_string_literal: true

require_relative '../test_helper'
require 'json'
require 'time'
require 'polyphony/http'
require 'stringio'

# A line for each request, and nothing in it that should not be.
class TestHTTPAccessLog < Polyphony::TestCase
  on_every_driver

  Asked = Struct.new(:verb, :target, :version, :headers, :status, :sent, :peer, keyword_init: true) do
    def path = target[/\A[^?]*/]
    def query = target[/\?(.*)/m, 1]
    def authority = headers['host']
    def [](name) = headers[name]
  end

  def request(target = '/', peer: '192.0.2.7', **rest)
    Asked.new(verb: 'GET', target: target, version: '1.1', headers: rest.delete(:headers) || {}, status: 200, sent: 12, peer: peer, **rest)
  end

  def lines(*requests, **options)
    io = StringIO.new
    log = Polyphony::HTTP::AccessLog.new(io, **options)
    requests.each { |one| log.call(one, 0.25) }
    log.close
    io.string.lines(chomp: true)
  end

  def json(one, **options)
    JSON.parse(lines(one, format: :json, **options).first)
  end

  def test_the_common_and_the_combined_format_are_what_tools_read
    time = '\[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]'
    assert_match(%r{\A192\.0\.2\.7 - - #{time} "GET /a\?b=c HTTP/1\.1" 200 12\z}, lines(request('/a?b=c'), format: :common).first)
    headers = { 'referer' => 'http://example.com/', 'user-agent' => 'curl/8' }
    assert_match(%r{ "GET / HTTP/1\.1" 200 12 "http://example\.com/" "curl/8"\z}, lines(request(headers: headers)).first)
    assert_match(%r{\A- - - .* - 12 "-" "-"\z}, lines(request(peer: nil, status: nil)).first)
  end

  def test_json_has_names_and_numbers
    entry = json(request('/a?b=c', headers: { 'host' => 'example.com', 'x-request-id' => 'x1' }))
    assert_equal({ 'client' => '192.0.2.7', 'method' => 'GET', 'path' => '/a', 'query' => 'b=c', 'protocol' => 'HTTP/1.1',
                   'host' => 'example.com', 'status' => 200, 'bytes' => 12, 'seconds' => 0.25, 'id' => 'x1',
                   'pid' => ::Process.pid }, entry.reject { |name, _| name == 'time' })
    assert_in_delta Time.now.to_f, Time.iso8601(entry['time']).to_f, 60
  end

  def test_nothing_of_a_client_looks_like_a_line_or_a_field
    bad = "x\" 200 1\r\nfake \e[31m\u{9b}\xff\\"
    line = lines(request('/', headers: { 'user-agent' => bad })).first
    assert_equal 1, lines(request('/', headers: { 'user-agent' => bad })).size
    assert line.ascii_only?
    assert line.end_with?('"x\x22 200 1\x0D\x0Afake \x1B[31m\xC2\x9B\xFF\x5C"'), line
    text = lines(request('/', headers: { 'user-agent' => bad }), format: :json)
    assert_equal 1, text.size
    refute_match(/[\u0000-\u001f\u007f-\u009f]/, text.first)
    assert_equal "x\" 200 1\r\nfake \e[31m\\u009b?\\", JSON.parse(text.first)['agent']
  end

  def test_other_alphabets_are_kept_in_json
    assert_equal 'Größe', json(request('/', headers: { 'user-agent' => 'Größe'.b }))['agent']
    assert lines(request('/', headers: { 'user-agent' => 'Größe' })).first.end_with?('"Gr\xC3\xB6\xC3\x9Fe"')
  end

  def test_a_long_field_is_cut
    assert_operator lines(request("/#{'a' * 100_000}")).first.bytesize, :<, 5_000
  end

  def test_secrets_are_not_written
    headers = { 'authorization' => 'Basic abc', 'cookie' => 'id=abc', 'referer' => 'http://joe:abc@x/?token=abc&page=2' }
    target = '/?user=joe&password=abc&api_key=abc&user[password]=abc&access-token=abc&Token=abc&page=2;secret=abc'
    %i[common combined json].each do |format|
      line = lines(request(target, headers: headers), format: format).first
      refute_match(/abc/, line)
      assert_match(/user=joe.*page=2/, line)
    end
    assert_match(/password=abc/, lines(request(target), query: true).first)
    refute_match(/\?/, lines(request(target, headers: headers), query: false).first)
    assert_match(/ssn=\[masked\]&password=\[masked\]/, lines(request('/?ssn=1&password=2'), query: ['ssn']).first)
  end

  def test_a_proxy_is_believed_only_if_it_is_trusted
    forwarded = request(peer: '10.0.0.1', headers: { 'x-forwarded-for' => '198.51.100.1, 203.0.113.9, 10.0.0.2' })
    assert_match(/\A10\.0\.0\.1 /, lines(forwarded).first)
    assert_match(/\A203\.0\.113\.9 /, lines(forwarded, trusted_proxies: ['10.0.0.0/8']).first)
    assert_match(/\A192\.0\.2\.7 /, lines(request(headers: { 'x-forwarded-for' => '1.1.1.1' }), trusted_proxies: ['10.0.0.0/8']).first)
    junk = request(peer: '10.0.0.1', headers: { 'x-forwarded-for' => "1.1.1.1, evil\r\n" })
    assert_match(/\A10\.0\.0\.1 /, lines(junk, trusted_proxies: ['10.0.0.0/8']).first)
    local = request(peer: nil, headers: { 'x-forwarded-for' => '2001:db8::1' })
    assert_match(/\A2001:db8::1 /, lines(local, trusted_proxies: ['127.0.0.1']).first)
    error = assert_raises(ArgumentError) { lines(trusted_proxies: ['nonsense']) }
    assert_match(/as in 10\.0\.0\.0\/8, got "nonsense"/, error.message)
  end

  def test_lines_are_gathered_and_written_by_a_fiber_of_its_own
    reader, writer = pipe_pair
    log = Polyphony::HTTP::AccessLog.new(writer, format: :common)
    spin { 3.times { log.call(request, 0.1) } }.await
    assert_equal 3, reader.readpartial(4096).lines.size
    log.close
  end

  def test_a_log_that_nobody_reads_keeps_nobody_waiting
    reader, writer = pipe_pair
    log = Polyphony::HTTP::AccessLog.new(writer, format: :common)
    long = request("/#{'a' * 4000}")
    1_000.times do
      log.call(long, 0.1)
      snooze
    end
    assert_operator log.dropped, :>, 0
    text = +''
    collector = spin { text << reader.readpartial(65_536) until text.include?('lines dropped') }
    collector.await
    assert_match(/^# \d+ lines dropped/, text)
    log.close
  end

  def test_it_may_be_moved_away
    Dir.mktmpdir do |folder|
      path = "#{folder}/access.log"
      log = Polyphony::HTTP::AccessLog.new(path)
      log.call(request('/old'), 0.1)
      File.rename(path, "#{path}.1")
      assert log.reopen
      log.call(request('/new'), 0.1)
      log.close
      assert_match(%r{/old}, File.read("#{path}.1"))
      assert_match(%r{/new}, File.read(path))
      refute_match(%r{/new}, File.read("#{path}.1"))
    end
  end

  def test_a_server_has_one
    io = StringIO.new
    log = Polyphony::HTTP::AccessLog.new(io)
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', access_log: log) { |request| request.respond('hello') }.start
    socket = track(TCPSocket.new('127.0.0.1', server.port))
    socket.write("GET /x?token=1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    socket.read
    server.stop
    log.close
    assert_match(%r{\A127\.0\.0\.1 - - \[.*\] "GET /x\?token=\[masked\] HTTP/1\.1" 200 5 "-" "-"\n\z}, io.string)
  end
end
