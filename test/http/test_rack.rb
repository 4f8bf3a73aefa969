# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/heartbeat'
require_relative '../support/rack_client'
require 'fileutils'
require 'polyphony/http'
require 'rack'
require 'rack/lint'
require 'stringio'
require 'tempfile'
require 'tmpdir'

# Rack applications on the server. Rack::Lint stands between the two wherever the application keeps the rules.
class TestRack < Polyphony::TestCase
  include Polyphony::Heartbeat

  on_every_driver

  TEXT = { 'content-type' => 'text/plain' }.freeze

  # A body of the kind that is not an Array; counts how often it is closed.
  class Body
    attr_reader :closed

    def initialize(*pieces, &block)
      @pieces = pieces
      @block = block
      @closed = 0
    end

    def each(&block)
      @pieces.each(&block)
      @block&.call(block)
    end

    def close
      @closed += 1
    end
  end

  # With a way to get all at once, which has to close it.
  class ArrayBody < Body
    def to_ary
      @pieces
    ensure
      close
    end
  end

  class FileBody < Body
    def initialize(path)
      super()
      @path = path
    end

    def to_path
      @path
    end

    def each
      raise 'the file should have been used'
    end
  end

  class CallableBody
    attr_reader :closed

    def initialize(&block)
      @block = block
      @closed = 0
    end

    def call(stream)
      @block.call(stream)
    end

    def close
      @closed += 1
    end
  end

  def serve(lint: true, limits: {}, **options, &app)
    app = Rack::Lint.new(app) if lint
    @log = StringIO.new
    handler = Polyphony::HTTP::RackHandler.new(app, errors: @log, **options)
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', app: handler, log: @log, limits: limits).start
  end

  def teardown
    @server&.stop(within: 0)
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  def client
    Polyphony::RackClient.new(track(TCPSocket.new('127.0.0.1', @server.port)))
  end

  def get(path = '/', headers = '', verb: 'GET', body: '')
    client.request("#{verb} #{path} HTTP/1.1\nHost: a.example\nConnection: close\n#{headers}\n#{body}".sub(/\n\n+/, "\n\n"))
  end

  def post(body, headers = "Content-Length: #{body.bytesize}")
    client.request("POST / HTTP/1.1\nHost: a.example\n#{headers}\n\n#{body}")
  end

  def assert_no_complaint
    assert_equal '', @log.string
  end

  # What a handler waits for, it waits for alone: in a queue, and for a body that comes late.
  def test_an_application_that_waits_lets_others_run
    queue = Thread::Queue.new
    serve { |env| [200, TEXT.dup, [env['rack.input'].read, queue.shift]] }
    assert_equal 'released', assert_yields(-> { queue << 'released' }) { get.body }

    late = client
    late.send("POST / HTTP/1.1\nHost: a.example\nContent-Length: 4\n\n")
    queue << '!'
    assert_equal 'late!', assert_yields(-> { late.socket << 'late' }) { late.answer('POST').body }
    assert_no_complaint
  end

  # --- the environment --------------------------------------------------------------------------

  def env_of(text)
    env = nil
    serve { |e| env = e; [200, TEXT.dup, ['ok']] }
    answer = client.request(text)
    assert_equal 200, answer.status, @log.string
    assert_no_complaint
    env
  end

  def test_the_environment_is_complete
    env = env_of("GET /some/path%20x?a=1&b=2 HTTP/1.1\nHost: app.example:8080\nX-Thing: 1\nX-Thing: 2\nCookie: a=1\nCookie: b=2\n\n")
    expected = {
      'REQUEST_METHOD' => 'GET', 'SCRIPT_NAME' => '', 'PATH_INFO' => '/some/path%20x', 'QUERY_STRING' => 'a=1&b=2',
      'REQUEST_URI' => '/some/path%20x?a=1&b=2', 'SERVER_NAME' => 'app.example', 'SERVER_PORT' => '8080',
      'SERVER_PROTOCOL' => 'HTTP/1.1', 'HTTP_HOST' => 'app.example:8080', 'HTTP_X_THING' => '1, 2', 'HTTP_COOKIE' => 'a=1; b=2',
      'REMOTE_ADDR' => '127.0.0.1', 'rack.url_scheme' => 'http', 'rack.hijack?' => true
    }
    assert_equal expected, env.slice(*expected.keys)
    assert_match(/\A\d+\z/, env['REMOTE_PORT'])
    assert_instance_of Array, env['rack.response_finished']
    refute env.key?('rack.early_hints') # not for HTTP/1, unless asked for
    assert_kind_of Polyphony::HTTP::Request, env['polyphony.request']
    refute env.key?('HTTPS')
  end

  def test_the_port_is_that_of_the_scheme_if_none_is_named
    assert_equal %w[b.example 80], env_of("GET / HTTP/1.1\nHost: b.example\n\n").values_at('SERVER_NAME', 'SERVER_PORT')
  end

  def test_a_client_that_names_no_host_gets_our_address
    env = env_of("GET / HTTP/1.0\n\n")
    assert_equal ['127.0.0.1', @server.port.to_s, 'HTTP/1.0'], env.values_at('SERVER_NAME', 'SERVER_PORT', 'SERVER_PROTOCOL')
  end

  def test_an_address_of_ipv6_keeps_its_brackets
    assert_equal ['[::1]', '99'], env_of("GET / HTTP/1.1\nHost: [::1]:99\n\n").values_at('SERVER_NAME', 'SERVER_PORT')
  end

  def test_the_type_and_length_of_a_body_have_names_of_their_own
    env = env_of("POST / HTTP/1.1\nHost: a\nContent-Type: text/x\nContent-Length: 2\n\nab")
    assert_equal ['text/x', '2'], env.values_at('CONTENT_TYPE', 'CONTENT_LENGTH')
    refute env.key?('HTTP_CONTENT_TYPE')
    refute env.key?('HTTP_CONTENT_LENGTH')
  end

  def test_an_absolute_target_is_taken_apart
    env = env_of("GET http://other.example:81/x?y HTTP/1.1\nHost: other.example:81\n\n")
    assert_equal ['/x', 'y', 'other.example', '81', 'other.example:81'],
                 env.values_at('PATH_INFO', 'QUERY_STRING', 'SERVER_NAME', 'SERVER_PORT', 'HTTP_HOST')
  end

  def test_the_environment_of_one_request_is_not_that_of_the_next
    envs = []
    serve { |env| envs << env; env['app.mark'] = 1; env['SCRIPT_NAME'] = '/sub'; [200, TEXT.dup, ['ok']] }
    here = client
    here.request("GET /1 HTTP/1.1\nHost: a\nX-One: 1\n\n")
    here.request("GET /2 HTTP/1.1\nHost: b:7\n\n")
    refute_same(*envs)
    assert_equal ['/2', 'b', '7', nil, 1], envs[1].values_at('PATH_INFO', 'SERVER_NAME', 'SERVER_PORT', 'HTTP_X_ONE', 'app.mark')
    assert_equal %w[/1 a 80], envs[0].values_at('PATH_INFO', 'SERVER_NAME', 'SERVER_PORT')
  end

  def test_the_application_may_be_given_more
    serve(env: { 'my.thing' => 5 }) { |env| [200, TEXT.dup, [env['my.thing'].to_s]] }
    assert_equal '5', get.body
  end

  def test_a_unix_socket_has_a_local_client
    @folder = Dir.mktmpdir
    path = "#{@folder}/s"
    app = ->(env) { [200, {}, [env.values_at('REMOTE_ADDR', 'SERVER_NAME', 'SERVER_PORT').join(' ')]] }
    @server = Polyphony::HTTP::Server.new("unix:#{path}", app: Polyphony::HTTP::RackHandler.new(app)).start
    here = Polyphony::RackClient.new(track(UNIXSocket.new(path)))
    assert_equal '127.0.0.1 a.example 80', here.request("GET / HTTP/1.1\nHost: a.example\n\n").body
    assert_equal '127.0.0.1 localhost 80', here.request("GET / HTTP/1.0\n\n").body
  end

  # --- rack.input -------------------------------------------------------------------------------

  def test_a_body_is_read
    serve { |env| [200, TEXT.dup, [env['rack.input'].read.upcase]] }
    assert_equal 'HELLO', post('hello').body
    assert_equal 'HELLO', post("5\r\nhello\r\n0\r\n\r\n", 'Transfer-Encoding: chunked').body
    assert_equal '', get.body
    assert_no_complaint
  end

  def test_a_body_is_there_before_its_end
    pieces = Queue.new
    serve do |env|
      pieces << env['rack.input'].read(5)
      pieces << env['rack.input'].gets
      env['rack.input'].each { |piece| pieces << piece }
      [200, TEXT.dup, ['done']]
    end
    here = client
    here.send("POST / HTTP/1.1\nHost: a\nContent-Length: 16\n\nfirst")
    assert_equal 'first', pieces.pop
    here.socket.write("line\n")
    assert_equal "line\n", pieces.pop
    here.socket.write('rest12')
    assert_equal 'done', here.answer.body
    assert_equal 'rest12', Array.new(pieces.size) { pieces.pop }.join
  end

  def test_what_the_application_does_not_read_is_skipped
    serve { |env| [200, TEXT.dup, [env['PATH_INFO']]] }
    here = client
    assert_equal '/1', here.request("POST /1 HTTP/1.1\nHost: a\nContent-Length: 5000\n\n#{'x' * 5000}").body
    assert_equal '/2', here.request("GET /2 HTTP/1.1\nHost: a\n\n").body
  end

  def test_the_client_is_told_to_go_on_when_the_application_reads
    serve do |env|
      env['PATH_INFO'] == '/read' ? [200, TEXT.dup, [env['rack.input'].read]] : [403, TEXT.dup, ['no']]
    end
    here = client
    here.send("POST /read HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 2\n\n")
    assert_equal "HTTP/1.1 100 Continue\r\n", here.socket.gets
    here.socket.gets
    here.socket.write('hi')
    assert_equal 'hi', here.answer.body
    refused = client.request("POST /no HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 2\n\n")
    assert_equal [403, []], [refused.status, refused.informational]
  end

  def test_a_client_that_goes_in_mid_body_is_an_error_where_it_is_read
    errors = Queue.new
    serve(lint: false) do |env|
      env['rack.input'].read
    rescue Polyphony::HTTP::ClientGone => e
      errors << e
      raise
    end
    here = client
    here.send("POST / HTTP/1.1\nHost: a\nContent-Length: 10\n\nabc")
    here.socket.close
    assert_kind_of Polyphony::HTTP::ClientGone, errors.pop
  end

  def test_bad_input_is_no_error_of_the_application
    body = Body.new('Sorry')
    serve(lint: false, limits: { body: 100 }) do |env|
      env['rack.input'].read
    rescue StandardError
      env['PATH_INFO'] == '/raise' ? raise('could not read') : [Integer(env['QUERY_STRING']), {}, body]
    end
    upload = "Transfer-Encoding: chunked\n\nff\r\n#{'x' * 255}\r\n0\r\n\r\n"
    statuses = %w[/raise /x?500 /x?422].map { |path| client.request("POST #{path} HTTP/1.1\nHost: a\n#{upload}").status }
    assert_equal [413, 413, 422], statuses
    assert_equal 2, body.closed
    assert_match(/refused/, @log.string)
    refute_match(/error in/, @log.string)
  end

  def test_the_input_can_be_read_twice_if_asked_for
    serve(lint: false, rewindable: true) do |env|
      input = env['rack.input']
      first = input.read
      input.rewind
      [200, {}, [first, input.read]]
    end
    assert_equal 'hello' * 2, post('hello').body
    assert_equal('x' * 400_000, post('x' * 200_000).body)
  end

  # --- bodies of the answer ---------------------------------------------------------------------

  def test_an_array_has_its_length_and_goes_out_at_once
    serve { [200, TEXT.dup, %w[one two]] }
    answer = get
    assert_equal ['6', nil, 'onetwo'], [answer['content-length'], answer['transfer-encoding'], answer.body]
    assert_no_complaint
  end

  def test_an_array_may_mix_encodings
    serve { [200, TEXT.dup, ["\u00e9", "\xff".b, "\u00fc".encode('ISO-8859-1')]] }
    assert_equal "\xC3\xA9\xFF\xFC".b, get.body.b
  end

  def test_an_empty_array_is_an_empty_body
    serve { [200, TEXT.dup, []] }
    answer = get
    assert_equal ['0', ''], [answer['content-length'], answer.body]
  end

  def test_an_enumerable_body_comes_in_pieces_as_they_are_made
    gate = Queue.new
    body = Body.new('first') { |out| out.call(gate.pop) }
    serve { [200, TEXT.dup, body] }
    here = client
    here.send("GET / HTTP/1.1\nHost: a\n\n")
    nil until here.socket.gets == "\r\n" # the head
    assert_equal ["5\r\n", "first\r\n"], [here.socket.gets, here.socket.gets]
    gate << 'second'
    assert_equal "6\r\nsecond\r\n0\r\n\r\n", here.socket.read(16)
    assert_equal 1, body.closed
    assert_no_complaint
  rescue StandardError
    gate << 'x'
    raise
  end

  def test_an_enumerable_body_with_a_length_is_not_chunked
    [['abcdef'], %w[abc def], ['abcdef', '']].each do |pieces|
      body = Body.new(*pieces)
      serve { [200, TEXT.merge('content-length' => '6'), body] }
      answer = get
      assert_equal ['6', nil, 'abcdef', 1], [answer['content-length'], answer['transfer-encoding'], answer.body, body.closed]
      assert_no_complaint
      @server.stop(within: 0)
    end
  end

  def test_a_body_that_has_an_array_is_asked_for_it
    body = ArrayBody.new('one', 'two')
    serve(lint: false) { [200, TEXT.dup, body] }
    answer = get
    assert_equal ['6', 'onetwo', 1], [answer['content-length'], answer.body, body.closed]
  end

  def test_lint_and_proxies_pass_the_array_on
    closed = 0
    serve { [200, TEXT.dup, Rack::BodyProxy.new(['proxied']) { closed += 1 }] }
    answer = get
    assert_equal ['7', 'proxied', 1], [answer['content-length'], answer.body, closed]
    assert_no_complaint
  end

  def test_a_file_is_sent_as_it_is
    [0, 10, 16_384, 300_000].each do |size|
      file = Tempfile.new('body', binmode: true)
      file.write(Random.bytes(size))
      file.flush
      body = FileBody.new(file.path)
      serve(lint: false) { [200, TEXT.dup, body] }
      answer = get
      assert_equal [size.to_s, 1], [answer['content-length'], body.closed]
      assert_equal File.binread(file.path), answer.body.b
      assert_equal '', get(verb: 'HEAD').body
      @server.stop(within: 0)
    ensure
      file.close!
    end
  end

  def test_files_and_parts_of_them_as_rack_serves_them
    files = Rack::Files.new(__dir__)
    serve { |env| files.call(env) }
    path = "/#{File.basename(__FILE__)}"
    assert_equal File.binread(__FILE__), get(path).body.b
    assert_equal [206, 'frozen'], get(path, "Range: bytes=2-7\n").then { |answer| [answer.status, answer.body] }
    assert_equal [206, 2], get(path, "Range: bytes=2-7,9-12\n").then { |answer| [answer.status, answer.body.scan(/content-range/i).size] }
    assert_equal [200, File.size(__FILE__).to_s], get(path, verb: 'HEAD').then { |answer| [answer.status, answer['content-length']] }
    assert_equal 404, get('/nowhere').status
    assert_no_complaint
  end

  def test_a_path_that_leads_nowhere_leaves_the_body_as_it_is
    body = Body.new('from each')
    def body.to_path
      '/nowhere/at/all'
    end
    serve(lint: false) { [200, TEXT.dup, body] }
    assert_equal 'from each', get.body
  end

  def test_a_length_that_is_not_the_files_is_an_error
    file = Tempfile.new('body')
    file.write('x' * 20_000)
    file.flush
    serve(lint: false) { [200, TEXT.merge('content-length' => '30000'), FileBody.new(file.path)] }
    answer = get
    assert_operator answer.body.bytesize, :<, 30_000
    assert_match(/content-length/, @log.string)
  ensure
    file.close!
  end

  def test_a_callable_body_reads_and_writes_at_the_same_time
    body = CallableBody.new do |stream|
      while (line = stream.read(3))
        stream.write(line.upcase)
        stream << '.'
        stream.flush
      end
      stream.close
    end
    serve { [200, TEXT.dup, body] }
    here = client
    here.send("POST / HTTP/1.1\nHost: a\nContent-Length: 6\n\nabc")
    nil until here.socket.gets == "\r\n"
    assert_equal "3\r\nABC\r\n1\r\n.\r\n", here.socket.read(14)
    here.socket.write('def')
    assert_equal "3\r\nDEF\r\n1\r\n.\r\n0\r\n\r\n", here.socket.read(19)
    assert_equal 1, body.closed
    assert_no_complaint
  end

  def test_a_callable_body_ends_when_it_returns
    serve { [200, TEXT.dup, ->(stream) { stream.write('some') }] }
    here = client
    assert_equal 'some', here.request("GET / HTTP/1.1\nHost: a\n\n").body
    assert_equal 'some', here.request("GET / HTTP/1.1\nHost: a\n\n").body
    assert_no_complaint
  end

  def test_a_callable_body_may_have_a_length
    serve { [200, TEXT.merge('content-length' => '4'), ->(stream) { stream.write('some') }] }
    answer = get
    assert_equal ['4', 'some'], [answer['content-length'], answer.body]
  end

  def test_a_closed_stream_takes_nothing_more
    error = Queue.new
    serve do
      [200, TEXT.dup, lambda do |stream|
        stream.close
        error << [stream.closed?, outcome { stream.write('x') }.class]
      end]
    end
    assert_equal '', get.body
    assert_equal [true, IOError], error.pop
  end

  def test_head_gets_no_body_but_the_length_if_it_is_known
    bodies = [['hello'], Body.new('hello'), CallableBody.new { flunk }]
    lengths = bodies.map do |body|
      serve(lint: false) { [200, TEXT.dup, body] }
      here = client
      answer = here.request("HEAD / HTTP/1.1\nHost: a\n\n")
      assert_equal [200, ''], [answer.status, answer.body]
      assert_equal 200, here.request("HEAD / HTTP/1.1\nHost: a\n\n").status
      @server.stop(within: 0)
      assert_no_complaint
      answer['content-length']
    end
    assert_equal ['5', nil, nil], lengths
    assert_equal [2, 2], bodies.drop(1).map(&:closed)
  end

  def test_head_does_not_say_that_an_empty_body_is_the_real_one
    serve { [200, TEXT.merge('content-length' => '77'), []] }
    assert_equal '77', get(verb: 'HEAD').[]('content-length')
    @server.stop(within: 0)
    serve { [200, TEXT.dup, []] }
    assert_nil get(verb: 'HEAD')['content-length']
  end

  def test_some_answers_have_no_body
    [204, 304].each do |status|
      body = Body.new('not this')
      serve(lint: false) { |env| [status, { 'etag' => '"x"' }, env['PATH_INFO'] == '/a' ? ['nor this'] : body] }
      here = client
      answers = Array.new(2) { here.request("GET / HTTP/1.1\nHost: a\n\n") } + [here.request("GET /a HTTP/1.1\nHost: a\n\n")]
      answers.each do |answer|
        assert_equal [status, '', nil, nil], [answer.status, answer.body, answer['content-length'], answer['transfer-encoding']]
      end
      assert_equal 2, body.closed
      @server.stop(within: 0)
    end
  end

  def test_a_client_of_http_1_0_gets_no_chunks
    serve { [200, TEXT.dup, Body.new('some', 'thing')] }
    answer = client.request("GET / HTTP/1.0\n\n")
    assert_equal [nil, 'something'], [answer['transfer-encoding'], answer.body]
  end

  # --- headers ----------------------------------------------------------------------------------

  def test_a_header_may_have_several_values
    serve { [200, TEXT.merge('set-cookie' => ['a=1', 'b=2'], 'x-one' => 'y'), ['ok']] }
    answer = get
    assert_equal [%w[set-cookie a=1], %w[set-cookie b=2]], answer.fields.select { |name, _| name == 'set-cookie' }
    assert_no_complaint
  end

  def test_what_begins_with_rack_is_not_sent
    serve(lint: false) { [200, TEXT.merge('rack.internal' => 'secret', 'rack.thing' => Object.new), ['ok']] }
    answer = get
    assert_equal 200, answer.status
    refute_includes answer.fields.flatten.join, 'secret'
  end

  def test_headers_of_other_kinds_are_taken_as_far_as_they_make_sense
    serve(lint: false) { [200.0, { 'Content-Type' => 'text/plain', 'Content-Length' => 2, 'X-Nil' => nil, :'x-symbol' => 'y' }, ['ok']] }
    answer = get
    assert_equal ['2', 'ok', nil, 'y'], [answer['content-length'], answer.body, answer['x-nil'], answer['x-symbol']]
    assert_equal 1, answer.fields.count { |name, _| name.casecmp?('content-length') }
  end

  def test_the_application_can_close_the_connection
    serve { [200, TEXT.merge('connection' => 'close'), ['ok']] }
    here = client
    answer = here.request("GET / HTTP/1.1\nHost: a\n\n")
    assert_equal 'close', answer['connection']
    assert_nil here.socket.read(1)
  end

  def test_an_application_that_makes_chunks_itself_is_understood
    pieces = ["5\r\nhel", "lo\r\n6\r\n world\r\n", "0\r\n\r\n"]
    [pieces, Body.new(*pieces), ->(stream) { pieces.each { |piece| stream.write(piece) } }].each do |body|
      serve(lint: false) { [200, TEXT.merge('transfer-encoding' => 'chunked'), body] }
      assert_equal 'hello world', get.body
      assert_no_complaint
      @server.stop(within: 0)
    end
  end

  # --- what goes wrong --------------------------------------------------------------------------

  BAD = {
    'a String as body' => [[200, {}, 'text'], /put the String into an Array/],
    'no body' => [[200, {}, nil], /must respond to each or call, got a NilClass/],
    'pieces that are no Strings' => [[200, {}, [1]], /must be Strings, got a Integer/],
    'a status that is none' => [[99, {}, []], /status must be a number between 200 and 599, got 99/],
    'a status that is no number' => [['ok', {}, []], /answered with status "ok"/],
    'headers that are none' => [[200, nil, []], /headers that are a NilClass/],
    'a line break in a header' => [[200, { 'x' => "a\r\nb: c" }, ['x']], /control character/],
    'a name that is none' => [[200, { 'a b' => 'x' }, ['x']], /must be a token/],
    'too short' => [[200, { 'content-length' => '9' }, ['short']], /content-length says 9/],
    'too long' => [[200, { 'content-length' => '2' }, ['long']], /content-length says 2/],
    'a length that is none' => [[200, { 'content-length' => 'x' }, ['long']], /content-length must be a number/],
    'an encoding of its own' => [[200, { 'transfer-encoding' => 'gzip' }, ['long']], /only the server can do that/],
    'chunks that are none' => [[200, { 'transfer-encoding' => 'chunked' }, ['hello']], /not in chunks/],
    'an upgrade nobody asked for' => [[101, { 'upgrade' => 'x' }, []], /has not asked for an upgrade/],
    'nothing' => [nil, /answered with status nil/]
  }.freeze

  BAD.each do |name, (answer, message)|
    define_method("test_#{name.tr(' ', '_')}_is_a_clear_error") do
      serve(lint: false) { answer.dup }
      result = get
      assert_equal [500, "Internal Server Error\n"], [result.status, result.body]
      assert_match message, @log.string
    end
  end

  def test_a_body_is_closed_whatever_is_wrong_with_the_rest
    [[99, {}], ['x', {}], [200, nil], [200, { 'a b' => 'c' }], [200, { 'content-length' => '99' }], [101, {}]].each do |status, headers|
      [Body, ArrayBody].each do |kind|
        body = kind.new('text')
        serve(lint: false) { [status, headers, body] }
        get
        @server.stop(within: 0)
        assert_equal 1, body.closed, [kind, status, headers].inspect
      end
    end
  end

  def test_an_application_that_raises_gets_no_further
    serve { raise 'secret' }
    answer = get
    assert_equal 500, answer.status
    refute_match(/secret/, answer.body)
    assert_match(/secret \(RuntimeError\)/, @log.string)
  end

  def test_a_body_that_raises_is_closed_and_the_client_sees_that_it_is_cut
    body = Body.new('some') { raise 'broken' }
    serve { [200, TEXT.dup, body] }
    assert_equal ['some', :cut], get.body
    assert_equal 1, body.closed
    assert_match(/broken/, @log.string)
  end

  def test_a_body_that_is_shorter_or_longer_than_it_said_is_cut_off
    [%w[short], %w[much too long]].each do |pieces|
      body = Body.new(*pieces)
      serve(lint: false) { [200, TEXT.merge('content-length' => '8'), body] }
      assert_operator get.body.bytesize, :<=, 8
      assert_equal 1, body.closed
      assert_match(/content-length/, @log.string)
      @server.stop(within: 0)
    end
  end

  def test_a_body_is_closed_when_the_client_goes
    closed = Queue.new
    body = Body.new { |out| loop { out.call('x' * 10_000) } }
    body.define_singleton_method(:close) { closed << :closed }
    serve { [200, TEXT.dup, body] }
    here = client
    here.send("GET / HTTP/1.1\nHost: a\n\n")
    here.socket.read(100)
    here.socket.close
    assert_equal :closed, closed.pop
    snooze
    assert_empty closed
    assert_no_complaint
  end

  def test_a_body_is_closed_when_the_server_is_cut_short
    body = Body.new('first') { sleep }
    inside = Queue.new
    serve { |env| env['PATH_INFO'] == '/wait' ? (inside << 1) && sleep : [200, TEXT.dup, body] }
    here = client
    here.send("GET / HTTP/1.1\nHost: a\n\n")
    nil until here.socket.gets == "5\r\n"
    client.send("GET /wait HTTP/1.1\nHost: a\n\n")
    inside.pop
    @server.stop(within: 0)
    assert_equal 1, body.closed
    assert_no_complaint
  end

  # --- rack.response_finished and rack.early_hints ----------------------------------------------

  def test_a_proxy_that_the_client_names_is_no_setting
    serve { |env| [200, TEXT.dup, [env.key?('HTTP_PROXY').inspect]] }
    here = client
    here.send("GET / HTTP/1.1\nHost: a\nProxy: evil:80\n\n")
    assert_match(/\r\n\r\nfalse\z/, here.socket.readpartial(1000))
  end

  def test_the_application_is_told_when_the_answer_is_out
    calls = Queue.new
    serve do |env|
      2.times { |i| env['rack.response_finished'] << ->(*args) { calls << [i, *args] } }
      [201, TEXT.dup, ['ok']]
    end
    assert_equal 'ok', get.body
    second, first = calls.pop, calls.pop
    assert_equal [1, 0], [second[0], first[0]]
    assert_equal [201, 'text/plain', nil], [first[2], first[3]['content-type'], first[4]]
    assert_kind_of Hash, first[1]
  end

  def test_the_application_is_told_when_the_answer_failed
    calls = Queue.new
    serve(lint: false) do |env|
      env['rack.response_finished'] << ->(*args) { calls << args }
      env['rack.response_finished'] << ->(*) { raise 'this one fails' }
      raise 'oops' if env['PATH_INFO'] == '/raise'

      [200, {}, Body.new { raise 'late' }]
    end
    get('/raise')
    assert_equal [nil, nil, 'oops'], calls.pop.drop(1).then { |status, headers, error| [status, headers, error.message] }
    get('/late')
    assert_equal [200, {}, 'late'], calls.pop.drop(1).then { |status, headers, error| [status, headers, error.message] }
    assert_match(/rack.response_finished: this one fails/, @log.string)
  end

  # The last answer of a connection goes out together with its end, but not because of what the application does meanwhile.
  def test_an_answer_is_out_before_the_application_is_told
    gate = Polyphony::Event.new
    told = false
    serve(lint: false) do |env|
      env['rack.response_finished'] << ->(*) { gate.await && told = true }
      [200, TEXT.dup, ['ok']]
    end
    here = client
    here.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
    assert_match(/\r\n\r\nok\z/, cancel_after(patient(5)) { here.socket.read })
    refute told
    gate.signal
  end

  # close(2) throws away what was not sent if there is something that was not read.
  def test_the_last_answer_is_not_lost_if_the_client_goes_on_talking
    here = nil
    serve(lint: false) do |_env|
      here.socket << 'and another thing' # behind the head, which has been received
      [200, TEXT.dup, ['ok' * 100]]
    end
    20.times do
      here = client
      here.send("GET / HTTP/1.1\nHost: a\nConnection: close\n\n")
      assert_match(/\r\n\r\n(ok){100}\z/, here.socket.readpartial(4096))
    end
  end

  def test_early_hints_come_before_the_answer
    serve(early_hints: true, lint: false) do |env|
      env['rack.early_hints'].call('link' => "</a.css>; rel=preload\n</b.css>; rel=preload")
      [200, TEXT.dup, ['ok']]
    end
    answer = get
    assert_equal [[103, [['link', '</a.css>; rel=preload'], ['link', '</b.css>; rel=preload']]]], answer.informational
    assert_equal 'ok', answer.body
    assert_empty client.request("GET / HTTP/1.0\n\n").informational
    assert_no_complaint
  end

  # --- many at a time ---------------------------------------------------------------------------

  def test_twenty_slow_requests_overlap_in_one_thread_and_do_not_see_each_other
    inside = 0
    threads = []
    serve do |env|
      Thread.current[:path] = env['PATH_INFO']
      threads << Thread.current
      inside += 1
      snooze until inside >= 20
      [200, TEXT.dup, [Thread.current[:path]]]
    end
    answers = Array.new(20) { |i| spin { get("/#{i}").body } }.map(&:await)
    assert_equal(Array.new(20) { |i| "/#{i}" }, answers)
    assert_equal [Thread.current], threads.uniq
  end

  def test_a_config_file_is_loaded
    Tempfile.create(['app', '.ru']) do |file|
      file.write("use Rack::Runtime\nrun ->(env) { [200, {}, ['from a file']] }\n")
      file.flush
      handler = Polyphony::HTTP::RackHandler.load(file.path)
      @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', app: handler).start
      answer = get
      assert_equal 'from a file', answer.body
      assert answer['x-runtime']
    end
  end
end
