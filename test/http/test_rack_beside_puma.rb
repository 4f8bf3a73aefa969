# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/app_process'
require_relative '../support/rack_client'
require 'json'

# The same application on our server and on Puma, the same requests to both: status, headers, body and what the
# application saw have to be the same, but for what is said here.
class TestRackBesidePuma < Polyphony::TestCase
  on_every_driver
  time_limit 120

  # Headers that a server sets as it likes. How a connection goes on is compared by using it.
  OWN_HEADERS = %w[date server connection keep-alive].freeze

  # What is different in what the application sees, and why.
  SEEN = {
    # Puma reads all of a chunked body before it calls the application, and then knows its length. Ours calls it at once.
    /chunked upload/ => %w[HTTP_TRANSFER_ENCODING CONTENT_LENGTH],
    # A target of the absolute form stands for Host, which is ignored then (RFC 9112, 3.2.2). Puma passes on both, and
    # in REQUEST_URI all of the target.
    /absolute target/ => %w[REQUEST_URI HTTP_HOST SERVER_NAME SERVER_PORT],
    # Without a Host both give an address of their own.
    /without a host/ => %w[SERVER_PORT SERVER_NAME],
    # Rack says that rack.url_scheme is that of the last hop, and looks at X-Forwarded-Proto itself. Puma does so in its place.
    /forwarded/ => %w[scheme SERVER_PORT]
  }.freeze

  # What is different in the headers, and why.
  HEADERS = {
    # Puma says content-length: 0. In a 304 it would be the length of the page that the client has (RFC 9110, 8.6).
    /status 304/ => %w[content-length],
    # For an application that writes to a stream ours makes chunks and keeps the connection; Puma gives it the socket
    # and closes. So only the first answer is compared.
    /body call\z/ => %w[transfer-encoding],
    # Of what the application saw, see above, the length differs then, too.
    /chunked upload|absolute|without a host|forwarded/ => %w[content-length]
  }.freeze

  # Where only the first answer is looked at.
  ONE_ANSWER = /body call\z/.freeze

  # @return [Array<Array(String, String, Array<String>)>] name, bytes, verbs whose answers are awaited
  def self.corpus
    @corpus ||= Corpus.new.list
  end

  # Each part adds some conversations.
  class Corpus
    attr_reader :list

    def initialize
      @list = []
      targets
      request_headers
      uploads
      statuses
      bodies
      middleware
      connections
    end

    private

    def add(name, *requests)
      raise "twice: #{name}" if @list.any? { |other, *| other == name }

      texts = requests.map { |head, body| "#{head.gsub("\n", "\r\n")}\r\n\r\n#{body}" }
      @list << [name, texts.join, requests.map { |head,| head[/\A\S+/] }]
    end

    def head(line, *fields)
      ["#{line} HTTP/1.1", 'Host: app.example', *fields].join("\n")
    end

    def targets
      paths = ['/', '/a/b/c', '/sub', '/sub/x', '/with%20space', '/a%2Fb', '/%C3%BC', '//double//', '/a;b=c', '/x?', '/x?a=1&b=2&a=3',
               '/x?q=%20+%26', '/x?a[]=1&a[]=2&h[k]=v', "/x?#{'q' * 2000}", '/~user/!$&()*,=:@', '/x??y?z', '/./a/../b']
      %w[GET POST PUT PATCH DELETE OPTIONS HEAD].each do |verb|
        paths.first(verb == 'GET' ? 99 : 8).each { |path| add("#{verb} #{path[0, 40]}", [head("#{verb} #{path}")]) }
      end
      add('absolute target', [head('GET http://app.example/abs?x=1')])
      add('absolute target with a port', [head('GET http://app.example:81/abs')])
    end

    def request_headers
      fields = {
        'cookies' => ['Cookie: a=1; b=2'], 'two accepts' => ['Accept: text/html', 'Accept: text/plain'], 'empty value' => ['X-Empty:'],
        'spaces around' => ["X-Space:  \t value \t "], 'no space' => ['X-Tight:value'], 'case' => ['x-LoWeR: 1'],
        'utf-8 value' => ["X-Name: gr\u00fc\u00df"], 'latin-1 value' => ["X-Name: \xfc".b], 'long value' => ["X-Long: #{'v' * 4000}"],
        'many' => Array.new(80) { |i| "X-Number-#{i}: #{i}" }, 'authorization' => ['Authorization: Basic YTpi'],
        'forwarded' => ['X-Forwarded-For: 10.0.0.1, 10.0.0.2', 'X-Forwarded-Proto: https'], 'referer' => ['Referer: http://x.example/'],
        'user agent' => ['User-Agent: test (a; b) c/1.0'], 'digits' => ['X-1-2: 3'], 'symbols' => ['X!#$%&^`|~: y'],
        'commas' => ['X-List: a, b,, c'], 'quotes' => ['X-Quoted: "a \\" b"'], 'if-none-match' => ['If-None-Match: "x"'],
        'type without body' => ['Content-Type: text/x'], 'content-length 0' => ['Content-Length: 0'], 'origin' => ['Origin: null'],
        'accept-encoding' => ['Accept-Encoding: gzip, br'], 'upgrade-insecure' => ['Upgrade-Insecure-Requests: 1'], 'te' => ['TE: trailers']
      }
      fields.each { |name, lines| add("header: #{name}", [head('GET /h', *lines)]) }
      add('host with a port', ["GET /h HTTP/1.1\nHost: app.example:8080"])
      add('host is an address', ["GET /h HTTP/1.1\nHost: 127.0.0.1"])
      add('host of IPv6', ["GET /h HTTP/1.1\nHost: [::1]:3000"])
      add('host in capitals', ["GET /h HTTP/1.1\nHost: APP.Example"])
    end

    def uploads
      [0, 1, 100, 16_384, 16_385, 70_000, 300_000].each do |size|
        body = 'b' * size
        add("upload of #{size}", [head('POST /u', "Content-Length: #{size}"), body])
        add("chunked upload of #{size}", [head('PUT /u', 'Transfer-Encoding: chunked'), chunked(body, 5000)])
      end
      add('chunked upload in single bytes', [head('POST /u', 'Transfer-Encoding: chunked'), chunked('byte by byte', 1)])
      add('chunked upload with extensions', [head('POST /u', 'Transfer-Encoding: chunked'), "5;a=b\r\nhello\r\n0\r\n\r\n"])
      add('chunked upload with leading zeros and capitals', [head('POST /u', 'Transfer-Encoding: chunked'), "00A\r\n0123456789\r\n000\r\n\r\n"])
      add('chunked upload named in capitals', [head('POST /u', 'Transfer-Encoding: CHUNKED'), chunked('x', 1)])
      add('body of a GET', [head('GET /u', 'Content-Length: 4'), 'body'])
      add('body of a DELETE', [head('DELETE /u', 'Content-Length: 4'), 'body'])
      add('binary upload', [head('POST /u', 'Content-Length: 256'), (0..255).to_a.pack('C*')])
      forms
    end

    def forms
      type = 'Content-Type: application/x-www-form-urlencoded'
      add('form', [head('POST /form', type, 'Content-Length: 13'), 'a=1&b=2&c=%20'])
      add('chunked form', [head('POST /form', type, 'Transfer-Encoding: chunked'), chunked('a=1&b=2', 3)])
      part = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\n#{'y' * 50_000}\r\n--x--\r\n"
      type = 'Content-Type: multipart/form-data; boundary=x'
      add('multipart', [head('POST /form', type, "Content-Length: #{part.bytesize}"), part])
      add('chunked multipart', [head('POST /form', type, 'Transfer-Encoding: chunked'), chunked(part, 7000)])
      add('expect', [head('POST /u', 'Expect: 100-continue', 'Content-Length: 4'), 'body'])
      add('expect with chunked upload', [head('POST /u', 'Expect: 100-continue', 'Transfer-Encoding: chunked'), chunked('body', 2)])
      add('unread body', [head('POST /early', 'Content-Length: 1000'), 'z' * 1000], [head('GET /next')])
    end

    def chunked(body, size)
      body.scan(/.{1,#{size}}/mn).map { |piece| "#{piece.bytesize.to_s(16)}\r\n#{piece}\r\n" }.join + "0\r\n\r\n"
    end

    def statuses
      [200, 201, 202, 203, 204, 206, 300, 301, 304, 307, 400, 401, 403, 404, 405, 409, 410, 418, 422, 429, 500, 503].each do |status|
        add("status #{status}", [head("GET /status/#{status}?location=/x")], [head('GET /next')])
      end
      [200, 204, 304, 404].each { |status| add("HEAD of status #{status}", [head("HEAD /status/#{status}")], [head('GET /next')]) }
      add('cookies of the answer', [head('GET /cookies')])
      add('headers of the answer', [head('GET /headers')])
    end

    def bodies
      names = %w[array arrays empty utf8 binary pieces nothing large file large_file proxy call]
      names.each do |name|
        add("body #{name}", [head("GET /body/#{name}")], [head('GET /next')])
        add("body #{name} for HTTP/1.0", ["GET /body/#{name} HTTP/1.0\nHost: app.example"])
      end
      add('body with a length', [head('GET /body/pieces?length=6')], [head('GET /next')])
      add('HEAD of a body with a length', [head('HEAD /body/pieces?length=6')], [head('GET /next')])
      add('body called with a length', [head('GET /body/call?length=6', 'Connection: close')])
    end

    def middleware
      add('file', [head('GET /files/roda.ru')])
      add('missing file', [head('GET /files/none')])
      ['bytes=0-4', 'bytes=5-', 'bytes=-5', 'bytes=0-0,2-3', 'bytes=99999-', 'bytes=4-2', 'bytes=x', 'lines=1-2'].each do |range|
        add("range #{range}", [head('GET /files/roda.ru', "Range: #{range}")])
      end
      add('HEAD of a file', [head('HEAD /files/roda.ru')], [head('GET /next')])
      add('conditional', [head('GET /etag')], [head('GET /etag', 'If-None-Match: W/"abc"')])
      add('deflated', [head('GET /deflate', 'Accept-Encoding: gzip')], [head('GET /next')])
      add('not deflated', [head('GET /deflate', 'Accept-Encoding: identity')])
      add('behind Rack::Head', [head('HEAD /head/x')], [head('GET /next')])
      add('behind Rack::ContentLength', [head('GET /head/body/arrays')])
    end

    def connections
      add('three in a row', *Array.new(3) { |i| [head("GET /row/#{i}")] })
      add('ten in a row', *Array.new(10) { |i| [head("GET /row/#{i}")] })
      add('uploads in a row', *Array.new(3) { |i| [head("POST /row/#{i}", 'Content-Length: 3'), 'abc'] })
      add('chunked upload and others in a row', [head('POST /a', 'Transfer-Encoding: chunked'), chunked('abc', 2)], [head('GET /b')])
      add('close at once', [head('GET /x', 'Connection: close')])
      add('the application closes', [head('GET /close')])
      add('HTTP/1.0', ["GET /x HTTP/1.0\nHost: app.example"])
      add('HTTP/1.0 without a host', ['GET /x HTTP/1.0'])
      add('HTTP/1.0 kept alive', ["GET /x HTTP/1.0\nHost: a\nConnection: keep-alive"], ["GET /y HTTP/1.0\nHost: a"])
      add('HTTP/1.0 upload', ["POST /x HTTP/1.0\nHost: a\nContent-Length: 3", 'abc'])
    end
  end

  def test_two_hundred_conversations_are_the_same
    refusal = Polyphony::AppProcess.refusal
    skip refusal if refusal
    start_both
    assert_operator self.class.corpus.size, :>=, 200
    differences = self.class.corpus.filter_map { |name, bytes, verbs| difference(name, bytes, verbs) }
    assert_empty differences, differences.join("\n\n")
  ensure
    @both&.each_value(&:stop)
  end

  private

  def start_both
    rackup = "load Gem.bin_path('rackup', 'rackup')"
    puma = "load Gem.bin_path('puma', 'puma')"
    @both = {
      ours: Polyphony::AppProcess.new('-e', rackup, '--', '-s', 'polyphony', '-o', '127.0.0.1', '-p', '0', '-E', 'none', 'mirror.ru'),
      puma: Polyphony::AppProcess.new('-e', puma, '--', '-b', 'tcp://127.0.0.1:0', '-t', '2:2', '-e', 'production', 'mirror.ru',
                                      said: %r{Listening on http://127\.0\.0\.1:(\d+)})
    }
    @ports = @both.transform_values(&:port)
  end

  # @return [String, nil]
  def difference(name, bytes, verbs)
    verbs = verbs.first(1) if name.match?(ONE_ANSWER)
    ours, pumas = @ports.values.map { |port| converse(port, bytes, verbs).map { |answer| normal(name, answer) } }
    return if ours == pumas

    "#{name}: #{bytes[0, 200].inspect}\n  ours: #{show(ours, pumas)}\n  puma: #{show(pumas, ours)}"
  end

  # Only what the other has not.
  def show(answers, others)
    answers.zip(others).map { |one, other| [one, other].all?(Array) ? one.reject.with_index { |part, i| part == other[i] } : one }.inspect[0, 1500]
  end

  def converse(port, bytes, verbs)
    socket = TCPSocket.new('127.0.0.1', port)
    client = Polyphony::RackClient.new(socket)
    socket.write(bytes)
    verbs.map { |verb| client.answer(verb) }
  rescue EOFError, SystemCallError => e
    [e.class]
  ensure
    socket&.close
  end

  def normal(name, answer)
    return answer if answer.is_a?(Class)

    own = OWN_HEADERS + explained(HEADERS, name)
    fields = answer.fields.map { |field, value| [field.downcase, value] }.reject { |field, _| own.include?(field) }.sort
    [answer.status, fields, seen(name, answer.body)]
  end

  # What the application saw, without what is explained above.
  def seen(name, body)
    return body unless body.is_a?(String) && body.start_with?('{"seen":')

    JSON.parse(body).except(*explained(SEEN, name))
  end

  def explained(table, name)
    table.select { |pattern, _| name.match?(pattern) }.values.flatten
  end
end
