# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http2_client'
require 'objspace'
require 'polyphony/http'
require 'stringio'

# HTTP/2 frame by frame: what a handler meets, flow control, and how a connection ends.
class TestHTTP2 < Polyphony::TestCase
  on_every_driver

  def setup
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    super
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def serve(limits: {}, **options, &handler)
    handler ||= ->(request) { request.respond("#{request.verb} #{request.target}") }
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits, **options, &handler).start
  end

  def client(**options)
    HTTP2Client.new(track(TCPSocket.new('127.0.0.1', @server.port)), **options)
  end

  def await_true(seconds = 2)
    deadline = clock + patient(seconds)
    sleep 0.005 until (done = yield) || clock > deadline
    assert done, 'it did not come to be in time'
  end

  # --- requests and answers ---------------------------------------------------------------------

  def test_a_request_is_answered
    serve
    http = client
    assert_equal 200, http.get(1, '/hello?a=b')
    assert_equal 'GET /hello?a=b', http.bodies[1]
    assert_equal '', @log.string
  end

  def test_a_request_says_what_the_client_sent
    seen = nil
    serve do |request|
      seen = request
      request.respond
    end
    http = client
    list = http.fields('PUT', '/x?y=1', authority: 'Example.org:81', 'x-a' => '1') + [%w[x-a 2], %w[cookie a=1], %w[cookie b=2]]
    http.write(http.headers(1, list))
    assert_equal 200, http.await(1)
    assert_equal ['PUT', '/x', 'y=1', '2', 'http', 'Example.org:81', '1, 2', 'a=1; b=2', '127.0.0.1'],
                 [seen.verb, seen.path, seen.query, seen.version, seen.scheme, seen.authority, seen['X-A'], seen[:cookie], seen.peer]
    refute seen.body?
  end

  # It waits for its next request with little: what the answer was made in is not kept for the next.
  def test_an_idle_connection_does_not_remember_a_large_answer
    connection = nil
    serve do |request|
      connection = request.connection
      request.respond('x' * 60_000)
    end
    assert_equal 200, client.get(1)
    buffers = %i[@output @buffer].map { |name| connection.instance_variable_get(:@protocol).instance_variable_get(name) }
    await_true { buffers.sum { |buffer| ObjectSpace.memsize_of(buffer) } < 6_000 }
  end

  # The writer is a fiber of the connection's thread.
  def test_a_handler_may_answer_in_another_thread
    pieces = Array.new(20) { |i| i.to_s * 20_000 }
    serve do |request|
      case request.path
      when '/whole' then Thread.new { request.respond('x' * 300_000) }.join
      when '/pieces' then Thread.new { pieces.each { |piece| request.send_chunk(piece) } && request.finish }.join
      when '/body' then request.respond(Thread.new { request.read }.value)
      else request.respond('here')
      end
    end
    http = client
    2.times do |i|
      assert_equal 200, http.get(6 * i + 1, '/whole')
      assert_equal 200, http.get(6 * i + 3, '/pieces')
      assert_equal 200, http.get(6 * i + 5)
      assert_equal [300_000, pieces.join, 'here'], [http.bodies[6 * i + 1].bytesize, *http.bodies.values_at(6 * i + 3, 6 * i + 5)]
    end
    http.write(http.headers(13, http.fields('POST', '/body'), flags: 4))
    http.write(http.data(13, 'sent', last: true))
    assert_equal [200, 'sent'], [http.await(13), http.bodies[13]]
    assert_equal '', @log.string
  end

  def test_requests_run_beside_each_other_and_are_answered_out_of_order
    gates = Hash.new { |hash, path| hash[path] = Polyphony::Event.new }
    serve do |request|
      gates[request.path].await unless request.path == '/last'
      request.respond(request.path)
      gates.each_value(&:signal)
    end
    http = client
    http.write(http.headers(1, http.fields('GET', '/first')) + http.headers(3, http.fields('GET', '/last')))
    assert_equal 200, http.await(3)
    assert_equal 200, http.await(1)
    assert_equal [3, 1], http.frames.select { |frame| frame.type == :data }.map(&:stream)
  end

  # Requests that come together, as one read of the server's.
  def batch(http, *paths, first: 1)
    ids = paths.each_index.map { |i| first + 2 * i }
    http.write(ids.zip(paths).map { |id, path| http.headers(id, http.fields('GET', path)) }.join)
    ids
  end

  def test_handlers_that_need_not_wait_share_a_fiber
    fibers = []
    serve { |request| fibers << Fiber.current && request.respond }
    http = client
    [1, 11].each { |first| batch(http, *['/'] * 5, first: first).each { |id| assert_equal 200, http.await(id) } }
    assert_equal [10, 1], [fibers.size, fibers.uniq.size]
  end

  def test_handlers_that_wait_have_all_begun
    begun = 0
    gate = Polyphony::WaitList.new
    serve do |request|
      (begun += 1) == 20 ? gate.wake_all : gate.park
      request.respond
    end
    http = client
    batch(http, *['/'] * 20).each { |id| assert_equal 200, http.await(id) }
  end

  def test_what_a_handler_leaves_in_its_fiber_is_not_met_by_the_next
    serve do |request|
      request.respond([Thread.current[:left], Fiber.current.children.size].inspect)
      Thread.current[:left] = 'this' if request.path == '/local'
      Fiber.current.spin { suspend } if request.path == '/child'
    end
    http = client
    ids = batch(http, '/local', '/', '/child', '/', '/')
    assert_equal ['[nil, 0]'] * 5, ids.map { |id| http.await(id) && http.bodies[id] }
  end

  def test_a_handler_that_ends_its_fiber_does_not_keep_others_from_theirs
    serve { |request| request.path == '/end' ? Fiber.current.stop : request.respond }
    http = client
    ids = batch(http, '/end', '/', '/end', '/')
    assert_equal [200, 200], ids.values_at(1, 3).map { |id| http.await(id) }
  end

  # Somebody who kept it may stop it when it has nothing to do.
  def test_a_fiber_that_is_stopped_while_it_rests_is_replaced
    fibers = []
    serve { |request| fibers << Fiber.current && request.respond }
    http = client
    3.times do |i|
      assert_equal 200, http.get(2 * i + 1)
      fibers.last.stop
      fibers.last.await
    end
    assert_equal 3, fibers.uniq.size
  end

  def test_answers_of_a_batch_go_out_together
    serve
    http = client
    http.get(1)
    http.write((1..20).map { |i| http.headers(2 * i + 1) }.join)
    sleep 0.005 until @server.stats.requests == 21
    snooze until @server.stats.running.zero?
    bytes = http.io.recv(65_536)
    ends = 0
    until bytes.empty?
      high, low, type, flags = bytes.unpack('CnCC')
      ends += 1 if type.zero? && flags.anybits?(1)
      bytes = bytes.byteslice((9 + (high << 16) + low)..)
    end
    assert_equal 20, ends
  end

  def test_a_head_request_gets_a_length_and_no_body
    serve { |request| request.respond('12345') }
    http = client
    http.write(http.headers(1, http.fields('HEAD')))
    assert_equal 200, http.await(1)
    assert_equal '', http.bodies[1]
    assert http.frames.find { |frame| frame.type == :headers }.end_stream?
  end

  def test_bodies_that_must_not_be
    serve { |request| request.respond('not sent', status: Integer(request.path[1..])) }
    http = client
    assert_equal 204, http.get(1, '/204')
    assert_equal 304, http.get(3, '/304')
    assert_equal ['', ''], [http.bodies[1], http.bodies[3]]
  end

  def test_an_answer_in_pieces_with_trailers
    serve do |request|
      request.send_headers({ 'X-Upper' => 'ok', 'connection' => 'close' })
      3.times { |i| request.send_chunk("piece #{i};") }
      request.finish(trailers: { 'x-sum' => '3' })
    end
    http = client
    assert_equal 200, http.get(1)
    assert_equal 'piece 0;piece 1;piece 2;', http.bodies[1]
    last = http.frames.reverse.find { |frame| frame.stream == 1 }
    assert_equal [:headers, true], [last.type, last.end_stream?]
  end

  def test_early_hints_come_first
    serve do |request|
      request.early_hints({ 'link' => '</a.css>; rel=preload' })
      request.respond('there')
    end
    http = client
    http.write(http.headers(1))
    http.until_frame { |frame| frame.type == :headers }
    assert_equal 103, http.statuses[1]
    assert_equal 200, http.await(1)
  end

  def test_expect_is_answered_when_the_body_is_asked_for
    asked = Polyphony::Event.new
    serve do |request|
      asked.await
      request.respond(request.read)
    end
    http = client
    http.write(http.headers(1, http.fields('POST', '/', 'expect' => '100-continue'), flags: 4))
    asked.signal
    http.until_frame { |frame| frame.type == :headers }
    assert_equal 100, http.statuses[1]
    http.write(http.data(1, 'body', last: true))
    assert_equal [200, 'body'], [http.await(1), http.bodies[1]]
    http.write(http.headers(3, http.fields('POST', '/', 'expect' => 'a-pony'), flags: 4))
    assert_equal 417, http.await(3)
  end

  def test_what_must_not_be_sent_is_an_error_of_the_handler
    answers = { '/nul' => [{ 'content-length' => "4\0" }, 200], '/minus' => [{ 'Content-Length' => -4 }, 200],
                '/twice' => [{ 'content-length' => '4', 'Content-Length' => '5' }, 200], '/crlf' => [{ 'x' => "a\r\nb: c" }, 200], '/name' => [{ "a\nb" => 'c' }, 200], '/status' => [{}, 99],
                '/length' => [{ 'content-length' => '9' }, 200], '/odd' => [{ 'x' => Object.new }, 200] }
    serve { |request| request.respond('body', answers[request.path][0], status: answers[request.path][1]) }
    http = client
    answers.each_key.with_index { |path, i| assert_equal 500, http.get(2 * i + 1, path), path }
    assert_equal answers.size, @server.stats.errors
  end

  def test_a_length_that_is_not_kept_resets_the_stream
    serve do |request|
      request.send_headers({ 'content-length' => '10' })
      request.send_chunk(request.path == '/more' ? 'x' * 11 : '1234')
    end
    http = client
    assert_equal :INTERNAL_ERROR, http.get(1, '/less')
    assert_equal :INTERNAL_ERROR, http.get(3, '/more')
    assert_match(/4 bytes, its content-length says 10/, @log.string)
  end

  def test_a_handler_that_fails_costs_its_stream_and_nothing_else
    serve do |request|
      request.send_chunk('begun') if request.path == '/late'
      raise 'secret' unless request.path == '/good'

      request.respond('good')
    end
    http = client
    assert_equal 500, http.get(1, '/bad')
    assert_equal "Internal Server Error\n", http.bodies[1]
    assert_equal :INTERNAL_ERROR, http.get(3, '/late')
    assert_equal 200, http.get(5, '/good')
  end

  def test_methods_and_targets_that_are_refused
    serve
    http = client
    { 'BREW' => 501, 'TRACE' => 405 }.each_with_index do |(verb, status), i|
      http.write(http.headers(2 * i + 1, http.fields(verb)))
      assert_equal status, http.await(2 * i + 1)
    end
    http.write(http.headers(5, http.fields('OPTIONS', '*')))
    assert_equal 200, http.await(5)
    http.write(http.headers(7, [[':method', 'CONNECT'], [':authority', 'test:1']]))
    assert_equal 501, http.await(7)
    http.write(http.headers(9, http.fields('GET', '/', authority: 'user@host')))
    assert_equal :PROTOCOL_ERROR, http.await(9)
    http.write(http.headers(11, [[':method', 'GET'], [':scheme', 'other'], [':path', 'x'], [':authority', 'test']]))
    assert_equal 400, http.await(11)
  end

  def test_what_we_answer_ourselves_may_be_cancelled
    serve
    http = client
    http.write(http.headers(1, http.fields('OPTIONS', '*')) + http.reset(1) + http.headers(3, http.fields('BREW')) + http.reset(3))
    assert_equal 200, http.get(5)
  end

  def test_a_client_cannot_say_that_it_came_by_tls
    serve { |request| request.respond(request.scheme) }
    http = client
    http.write(http.headers(1, [[':method', 'GET'], [':scheme', 'https'], [':path', '/'], [':authority', 'test']]))
    assert_equal [200, 'http'], [http.await(1), http.bodies[1]]
  end

  # --- bodies and windows -----------------------------------------------------------------------

  def test_a_body_is_read_while_it_comes
    pieces = Polyphony::Queue.new
    serve do |request|
      request.each_chunk { |chunk| pieces << chunk }
      request.respond(request.trailers.inspect)
    end
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4) + http.data(1, 'one'))
    assert_equal 'one', pieces.shift
    http.write(http.data(1, 'two'))
    assert_equal 'two', pieces.shift
    http.write(http.headers(1, [%w[x-sum 2], %w[authorization secret]]))
    assert_equal 200, http.await(1)
    assert_equal({ 'x-sum' => '2' }.inspect, http.bodies[1])
  end

  def test_head_body_and_trailers_may_come_at_once
    serve { |request| request.respond("#{request.read} #{request.trailers}") }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4) + http.data(1, 'body') + http.headers(1, [%w[a b]]))
    assert_equal [200, "body #{{ 'a' => 'b' }}"], [http.await(1), http.bodies[1]]
  end

  def test_a_large_body_both_ways
    heavy
    serve { |request| request.respond(request.read) }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    body = Random.bytes(1_000_000)
    sender = spin { send_body(http, 1, body) }
    assert_equal 200, http.await(1)
    sender.await
    assert_equal body, http.bodies[1]
  end

  # Keeps to the windows, which only the other fiber reads about.
  def send_body(http, id, body)
    taken = 0
    sent = 0
    while sent < body.bytesize
      grown = http.frames.select { |frame| frame.type == :window_update && frame.stream == id }.sum { |frame| frame.payload.unpack1('N') }
      taken = 65_535 + grown - sent
      size = [taken, 16_384, body.bytesize - sent].min
      next snooze unless size.positive?

      sent += size
      http.write(http.data(id, body.byteslice(sent - size, size), last: sent == body.bytesize))
    end
  end

  def test_a_handler_that_does_not_read_holds_the_client_back
    release = Polyphony::Event.new
    serve do |request|
      release.await
      request.respond(request.read.bytesize.to_s)
    end
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    4.times { |i| http.write(http.data(1, 'x' * (i < 3 ? 16_384 : 16_383))) }
    http.write(http.frame(:ping, 0, 0, '12345678'))
    http.until_frame { |frame| frame.type == :ping }
    refute(http.frames.any? { |frame| frame.type == :window_update && frame.stream == 1 })
    release.signal
    http.until_frame { |frame| frame.type == :window_update && frame.stream == 1 }
    http.write(http.data(1, '', last: true))
    assert_equal [200, '65535'], [http.await(1), http.bodies[1]]
  end

  def test_data_beyond_the_window_is_an_error
    serve { |_request| sleep }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    5.times { http.write(http.data(1, 'x' * 16_384)) }
    # Newer versions of nghttp2 give up the connection rather than the stream; RFC 9113 (6.9.1) allows both.
    assert_equal :FLOW_CONTROL_ERROR, http.await(1) || http.frames.find { |frame| frame.type == :goaway }&.code
  end

  def test_a_body_that_nobody_reads_is_no_bar_to_others
    serve { |request| request.respond('done') }
    http = client
    40.times do |i|
      id = 2 * i + 1
      http.write(http.headers(id, http.fields('POST'), flags: 4) + http.data(id, 'x' * 16_384) + http.data(id, 'x' * 16_384))
      http.await(id)
      assert_equal 200, http.statuses[id]
      http.write(http.data(id, 'x' * 16_384, last: true)) unless http.resets[id]
    end
    assert_equal 200, http.get(101)
  end

  # curl 7.88 throws the answer away if it is told to stop before it has sent all.
  def test_a_little_that_nobody_reads_is_let_come
    serve { |request| request.respond('no', {}, status: 403) }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    http.until_frame { http.ended[1] }
    http.write(http.data(1, 'x' * 1000, last: true))
    assert_equal 403, http.get(3)
    assert_equal [403, nil], [http.statuses[1], http.resets[1]]
  end

  def test_a_lot_that_nobody_reads_is_not_let_come
    serve(limits: { h2_stream_window: 200_000 }) { |request| request.respond('no', {}, status: 403) }
    limit = patient(0.9)
    waited = shortest(limit, tries: 5) do
      http = client
      http.write(http.headers(1, http.fields('POST'), flags: 4))
      5.times { http.write(http.data(1, 'x' * 16_000)) }
      began = clock
      http.until_frame { http.resets[1] }
      assert_equal [403, :NO_ERROR], [http.statuses[1], http.resets[1]]
      clock - began
    end
    assert_operator waited, :<, limit
  end

  def test_a_client_that_is_not_read_to_the_end_is_told_to_stop
    serve { |request| request.respond('enough') }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    http.until_frame { http.resets[1] }
    assert_equal [200, :NO_ERROR], [http.statuses[1], http.resets[1]]
    assert_equal 200, http.get(3)
  end

  def test_an_answer_waits_for_the_window
    sent = 0
    serve do |request|
      10.times { request.send_chunk('x' * 50_000) and sent += 1 }
      request.finish
    end
    http = client(settings: { 4 => 1_000 })
    http.replenish = false
    http.write(http.headers(1))
    http.until_frame { http.bodies[1].bytesize == 1_000 }
    http.write(http.frame(:ping, 0, 0, '12345678'))
    http.until_frame { |frame| frame.type == :ping }
    assert_operator sent, :<, 3
    http.replenish = true
    http.write(http.window(1, 500_000) + http.window(0, 500_000))
    assert_equal 200, http.await(1)
    assert_equal 500_000, http.bodies[1].bytesize
  end

  def test_one_stream_without_a_window_does_not_hold_the_others
    serve { |request| request.respond('x' * 100_000) }
    http = client(settings: { 4 => 0 })
    http.write((0..4).map { |i| http.headers(2 * i + 1) }.join)
    http.until_frame { http.statuses.size == 5 }
    http.write(http.window(5, 100_000) + http.window(0, 100_000))
    assert_equal 200, http.await(5)
    assert_equal [5], http.bodies.keys
  end

  # The writer that has sent a late answer waits for more when the reader meets a client that does not read.
  def test_there_is_one_writer_at_a_time
    heavy
    body = Random.bytes(8_000_000)
    serve do |request|
      sleep 0.01 if request.path == '/late'
      request.respond(request.path == '/late' ? 'late' : body)
    end
    http = client(settings: { 4 => 0x7fff_ffff })
    http.write(http.window(0, 0x7f00_0000))
    assert_equal 200, http.get(1, '/late')
    http.write(http.headers(3) + http.headers(5, http.fields('GET', '/late')))
    await_true { @server.stats.requests == 3 }
    http.write(http.headers(7, http.fields('GET', '/late')))
    await_true { @server.stats.requests == 4 }
    sleep 0.05
    http.replenish = false
    assert_equal [200, 200, 200], [3, 5, 7].map { |id| http.await(id) }
    assert_equal [body, 'late', 'late'], http.bodies.values_at(3, 5, 7)
  end

  def test_a_body_over_the_limit_is_413
    serve(limits: { body: 1_000 }) { |request| request.respond(request.read) }
    http = client
    http.write(http.headers(1, http.fields('POST', '/', 'content-length' => '1001'), flags: 4))
    assert_equal 413, http.await(1)
    http.write(http.headers(3, http.fields('POST'), flags: 4) + http.data(3, 'x' * 1_001))
    assert_equal 413, http.await(3)
  end

  def test_a_file_is_sent
    path = File.expand_path('../../LICENSE', __dir__)
    serve do |request|
      File.open(path) do |file|
        request.send_headers({ 'content-length' => file.size.to_s })
        request.send_file_part(file, 0, file.size)
      end
    end
    http = client
    assert_equal [200, File.binread(path)], [http.get(1), http.bodies[1]]
  end

  # --- streams that end early -------------------------------------------------------------------

  def test_a_stream_that_is_reset_ends_a_handler_that_reads
    outcome = Polyphony::Queue.new
    serve { |request| outcome << outcome_of { request.read } }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    await_true { @server.stats.running == 1 }
    http.write(http.reset(1))
    assert_instance_of Polyphony::HTTP::ClientGone, outcome.shift
    await_true { @server.stats.running.zero? }
  end

  def outcome_of
    yield
  rescue Polyphony::HTTP::Error => e
    e
  end

  def test_a_stream_that_is_reset_ends_a_handler_that_writes
    outcome = Polyphony::Queue.new
    serve { |request| outcome << outcome_of { loop { request.send_chunk('x' * 50_000) } } }
    http = client(settings: { 4 => 10 })
    http.replenish = false
    http.write(http.headers(1))
    http.until_frame { |frame| frame.type == :data }
    http.write(http.reset(1))
    assert_instance_of Polyphony::HTTP::ClientGone, outcome.shift
  end

  def test_a_reset_request_counts_until_its_handler_has_ended
    release = Polyphony::WaitList.new
    begun = 0
    serve(limits: { h2_streams: 3 }) do |request|
      begun += 1
      release.park if begun <= 3
      request.respond
    end
    http = client
    http.write((0..2).map { |i| http.headers(2 * i + 1) }.join)
    await_true { begun == 3 }
    http.write((0..2).map { |i| http.reset(2 * i + 1) }.join + http.headers(7))
    assert_equal :REFUSED_STREAM, http.await(7)
    assert_equal 3, begun
    release.wake_all
    await_true { @server.stats.running.zero? }
    assert_equal 200, http.get(9)
  end

  def test_a_request_that_was_cancelled_at_once_runs_no_handler
    serve
    http = client
    http.write((0..9).map { |i| http.headers(2 * i + 1) + http.reset(2 * i + 1) }.join + http.headers(21))
    assert_equal 200, http.await(21)
    assert_equal 1, @server.stats.requests
  end

  def test_the_stream_over_the_limit_is_refused_and_the_limit_is_told
    serve(limits: { h2_streams: 5 }) { |request| sleep if request.path == '/' and request.respond }
    http = client
    http.write((0..5).map { |i| http.headers(2 * i + 1) }.join)
    assert_equal :REFUSED_STREAM, http.await(11)
    assert_equal 5, http.settings[3]
    assert_match(/REFUSED_STREAM: too many streams/, @log.string) if @log.string != ''
  end

  def test_a_client_that_goes_ends_its_handlers
    outcome = Polyphony::Queue.new
    serve { |request| outcome << outcome_of { request.read } }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    await_true { @server.stats.running == 1 }
    http.io.close
    assert_instance_of Polyphony::HTTP::ClientGone, outcome.shift
    await_true { @server.connections.empty? }
  end

  # --- time -------------------------------------------------------------------------------------

  def test_settings_that_are_not_acknowledged
    serve(limits: { h2_settings_time: 0.1 })
    http = client
    http.acknowledge = false
    assert_equal :SETTINGS_TIMEOUT, http.goaway
    assert_match(/refused 127.0.0.1:\d+: HTTP\/2 SETTINGS_TIMEOUT/, @log.string)
  end

  def test_a_header_block_that_is_not_ended
    serve(limits: { header_time: 0.1 })
    http = client
    assert_equal 200, http.get(1)
    http.write(http.headers(3, flags: 1))
    assert_equal :ENHANCE_YOUR_CALM, http.goaway
  end

  def test_a_body_that_is_too_slow
    serve(limits: { body_grace: 0.1 }) { |request| request.respond(request.read) }
    http = client
    http.write(http.headers(1, http.fields('POST'), flags: 4))
    assert_equal 408, http.await(1)
  end

  def test_streams_that_wait_for_a_window_are_given_up
    serve(limits: { h2_stall: 0.2 }) { |request| request.respond('x' * (request.path == '/small' ? 10 : 200_000)) }
    http = client(settings: { 4 => 0 })
    http.write(http.headers(1) + http.headers(3, http.fields('GET', '/small')))
    assert_equal %i[CANCEL CANCEL], [http.await(1), http.await(3)]
    await_true { @server.stats.running.zero? }
    await_true { @log.string.include?('stalled') }
    assert_equal 1, @log.string.lines.size
  end

  def test_a_client_that_reads_nothing_is_cut_off
    serve(limits: { write_stall: 0.2 }) { |request| 400.times { request.send_chunk('x' * 65_536) } }
    http = client(settings: { 4 => 0x7fff_ffff })
    http.write(http.window(0, 0x7fff_0000) + http.headers(1))
    await_true { @server.stats.running == 1 }
    await_true(10) { @server.connections.empty? }
    assert_match(/took nothing/, @log.string)
    assert_equal 1, @log.string.lines.size
  end

  def test_an_idle_connection_is_closed_with_a_goodbye
    serve(limits: { keep_alive: 0.1 })
    http = client
    assert_equal 200, http.get(1)
    assert_equal :NO_ERROR, http.goaway
    assert_equal '', @log.string
  end

  # --- goodbyes ---------------------------------------------------------------------------------

  def test_a_server_that_stops_finishes_what_has_begun
    release = Polyphony::Event.new
    serve do |request|
      release.await if request.path == '/slow'
      request.respond(request.path)
    end
    http = client
    http.write(http.headers(1, http.fields('GET', '/slow')))
    await_true { @server.stats.running == 1 }
    stopping = spin { @server.stop(within: patient(10)) }
    notice = http.until_frame { |frame| frame.type == :goaway }
    assert_equal [0x7fff_ffff, :NO_ERROR], [http.last_id(notice), notice.code]
    ping = http.until_frame { |frame| frame.type == :ping }
    http.write(http.headers(3, http.fields('GET', '/late')) + http.frame(:ping, 1, 0, ping.payload))
    assert_equal 200, http.await(3)
    last = http.frames.reverse.find { |frame| frame.type == :goaway }
    assert_equal 3, http.last_id(last)
    release.signal
    assert_equal [200, '/slow'], [http.await(1), http.bodies[1]]
    assert_nil http.until_frame { false }
    stopping.await
  end

  def test_a_server_that_stops_does_not_wait_for_idle_clients
    serve
    http = client
    assert_equal 200, http.get(1)
    stopping = spin { @server.stop(within: patient(10)) }
    ping = http.until_frame { |frame| frame.type == :ping }
    http.write(http.frame(:ping, 1, 0, ping.payload))
    assert_equal :NO_ERROR, http.goaway
    stopping.await
  end

  def test_after_so_many_requests_the_client_is_asked_to_go
    serve(limits: { requests: 2 })
    http = client
    http.write(http.headers(1) + http.headers(3))
    assert_equal [200, 200], [http.await(1), http.await(3)]
    ping = http.frames.find { |frame| frame.type == :ping } || http.until_frame { |frame| frame.type == :ping }
    http.write(http.frame(:ping, 1, 0, ping.payload))
    assert_equal :NO_ERROR, http.goaway
    assert_equal 3, http.last_id(http.frames.reverse.find { |frame| frame.type == :goaway })
  end

  def test_a_goaway_of_the_client_lets_its_streams_end
    release = Polyphony::Event.new
    serve do |request|
      release.await
      request.respond('done')
    end
    http = client
    http.write(http.headers(1) + http.frame(:goaway, 0, 0, [0, 0].pack('NN')))
    await_true { @server.stats.running == 1 }
    release.signal
    assert_equal [200, 'done'], [http.await(1), http.bodies[1]]
    assert_nil http.until_frame { false }
    await_true { @server.connections.empty? }
  end

  def test_our_goaway_has_the_last_stream_that_was_taken
    serve
    http = client
    http.get(1)
    http.get(5)
    http.write(http.data(0, 'x'))
    assert_equal :PROTOCOL_ERROR, http.goaway
    assert_equal 5, http.last_id(http.frames.last)
  end

  # A connection that is closed while bytes come is reset by the kernel, which can cost the client what it has not read yet.
  def test_the_last_answer_arrives_though_the_client_goes_on_sending
    serve(limits: { requests: 1 }) { |request| sleep(0.01) and request.respond('x' * 60_000) }
    http = client(settings: { 4 => 1_000_000 })
    http.write(http.headers(1))
    ping = http.until_frame { |frame| frame.type == :ping }
    http.write(http.frame(:ping, 1, 0, ping.payload))
    await_true { @server.stats.running.zero? }
    20.times { http.write(http.frame(:ping, 0, 0, '12345678')) and sleep(0.002) }
    assert_equal [200, 60_000], [http.await(1), http.bodies[1].bytesize]
    assert_nil http.until_frame { false }
  end

  def test_a_client_that_does_not_answer_our_ping_is_left
    serve(limits: { drain_idle: 0.1 })
    http = client
    assert_equal 200, http.get(1)
    stopping = spin { @server.stop(within: patient(10)) }
    assert_equal :NO_ERROR, http.goaway
    assert_equal 1, http.last_id(http.frames.last)
    stopping.await
  end

  # --- extended CONNECT -------------------------------------------------------------------------

  def test_a_websocket_gets_a_stream_of_bytes
    serve do |request|
      stream = request.upgrade('websocket', { 'sec-websocket-protocol' => 'chat' })
      while (count = stream.fill(buffer = +''.b))
        stream << "#{count}:#{buffer}"
      end
      stream << 'bye'
    end
    http = client
    list = [[':method', 'CONNECT'], [':protocol', 'websocket'], [':scheme', 'http'], [':path', '/chat'], [':authority', 'test']]
    http.write(http.headers(1, list, flags: 4))
    http.until_frame { http.statuses[1] }
    assert_equal [200, 1], [http.statuses[1], http.settings[8]]
    http.write(http.data(1, 'hello'))
    http.until_frame { http.bodies[1] == '5:hello' }
    http.write(http.data(1, '', last: true))
    assert_equal 200, http.await(1)
    assert_equal '5:hellobye', http.bodies[1]
  end

  def test_a_websocket
    serve { |request| request.upgrade_to_websocket { |ws| ws.each { |message| ws << message.upcase } } }
    http = client
    list = [[':method', 'CONNECT'], [':protocol', 'websocket'], [':scheme', 'http'], [':path', '/'], [':authority', 'test'],
            %w[sec-websocket-version 13]]
    http.write(http.headers(1, list, flags: 4) + http.data(1, [0x81, 0x82, 0, 0, 0, 0, 'hi'].pack('C6a*')))
    http.until_frame { http.bodies[1].bytesize == 4 }
    assert_equal [0x81, 2, 'HI'], http.bodies[1].unpack('CCa*')
    http.write(http.data(1, [0x88, 0x82, 0, 0, 0, 0, 1000].pack('C6n')))
    assert_equal 200, http.await(1)
    assert_equal [0x88, 2, 1000], http.bodies[1].byteslice(4..).unpack('CCn')
  end

  def test_an_upgrade_that_nobody_asked_for
    serve do |request|
      request.upgrade('websocket')
    end
    http = client
    assert_equal 500, http.get(1)
    list = [[':method', 'CONNECT'], [':protocol', 'other'], [':scheme', 'http'], [':path', '/'], [':authority', 'test']]
    http.write(http.headers(3, list, flags: 4))
    http.until_frame { http.statuses[3] }
    assert_equal 500, http.statuses[3]
  end

  def test_an_upgraded_stream_can_be_waited_for_and_reset
    outcome = Polyphony::Queue.new
    serve do |request|
      stream = request.upgrade('websocket')
      outcome << stream.fill(+'', 0.02)
      stream.reset
    end
    http = client
    list = [[':method', 'CONNECT'], [':protocol', 'websocket'], [':scheme', 'http'], [':path', '/'], [':authority', 'test']]
    http.write(http.headers(1, list, flags: 4))
    assert_equal false, outcome.shift
    assert_equal :CANCEL, http.await(1)
  end
end
