# frozen_string_literal: true

require_relative '../test_helper'
require 'net/http'
require 'polyphony/http'
require 'stringio'

# The server as its user meets it, through stock Net::HTTP and bare sockets in the same thread.
class TestHTTPServer < Polyphony::TestCase
  on_every_driver

  def serve(**options, &handler)
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, **options, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def get(path = '/', headers = {})
    Net::HTTP.start('127.0.0.1', @server.port) { |http| http.get(path, headers) }
  end

  def connect
    track(TCPSocket.new('127.0.0.1', @server.port))
  end

  def test_a_request_is_answered
    serve { |request| request.respond("#{request.method} #{request.path} #{request.query}", 'content-type' => 'text/plain') }
    answer = get('/hello?name=you')
    assert_equal ['200', 'GET /hello name=you', 'text/plain'], [answer.code, answer.body, answer['content-type']]
    assert_equal '', @log.string
  end

  def test_requests_that_wait_do_so_at_the_same_time
    waiting = 0
    most = 0
    gate = Polyphony::Event.new
    serve do |request|
      most = [most, waiting += 1].max
      waiting == 20 ? gate.signal : nil
      snooze until most == 20
      request.respond(request.path)
    end
    answers = Array.new(20) { |i| spin { get("/#{i}").body } }.map(&:await)
    assert_equal Array.new(20) { |i| "/#{i}" }, answers
    gate.await
  end

  def test_a_handler_that_fails_costs_its_request_and_nothing_else
    serve do |request|
      raise 'secret detail' if request.path == '/bad'

      request.respond('good')
    end
    answer = get('/bad')
    assert_equal '500', answer.code
    refute_match(/secret|Ruby|rb:/, answer.body)
    assert_match(%r{error in GET /bad: secret detail \(RuntimeError\)}, @log.string)
    assert_equal 'good', get.body
    assert_equal 1, @server.stats.errors
  end

  def test_a_handler_that_does_not_answer_is_an_error
    serve { |_request| nil }
    assert_equal '500', get.code
    assert_match(/has not answered/, @log.string)
  end

  def test_an_answer_comes_in_pieces_and_a_body_too
    serve do |request|
      request.send_headers({ 'content-type' => 'text/plain' })
      request.each_chunk { |chunk| request.send_chunk(chunk.upcase) }
      request.finish
    end
    answer = Net::HTTP.start('127.0.0.1', @server.port) { |http| http.post('/', 'a' * 100_000, 'content-type' => 'text/plain') }
    assert_equal 'A' * 100_000, answer.body
  end

  def test_a_length_that_is_not_kept_is_seen_by_the_client
    serve do |request|
      request.send_headers({ 'content-length' => '10' })
      request.send_chunk('1234')
    end
    client = connect
    client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert_match(/content-length: 10\r\n\r\n1234\z/, client.read)
    assert_match(/4 bytes, its content-length says 10/, @log.string)
  end

  def test_a_length_may_be_a_number
    serve { |request| request.send_headers('content-length' => 4).send_chunk('1234', done: true) }
    assert_equal '1234', get.body
  end

  def test_status_and_headers_that_must_not_be_sent
    [[99, {}], [1000, {}], [200, { 'x' => "a\r\nb: c" }], [200, { "a\nb" => 'c' }]].each do |status, headers|
      serve { |request| request.respond('x', headers, status: status) }
      assert_equal '500', get.code
      @server.stop(within: 0)
    end
  end

  def test_stop_closes_idle_connections_and_lets_requests_end
    release = Polyphony::Event.new
    begun = Polyphony::Event.new
    serve do |request|
      begun.signal
      release.await
      request.respond('done')
    end
    idle = connect
    busy = spin { get.body }
    begun.await
    stopping = spin { @server.stop(within: patient(10)) }
    assert_nil idle.read(1)
    assert_raises(Errno::ECONNREFUSED) { connect }
    release.signal
    assert_equal 'done', busy.await
    stopping.await
    assert_empty @server.connections
  end

  def test_stop_cuts_off_what_takes_too_long
    ended = nil
    serve do |_request|
      sleep
    ensure
      ended = true
    end
    client = connect
    client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    snooze until @server.stats.running == 1
    @server.stop(within: 0.01)
    assert ended
    assert_equal [0, 0], [@server.stats.open, @server.stats.running]
  end

  def test_who_says_nothing_is_closed_after_the_time_for_a_head
    serve(limits: { header_time: 0.5, keep_alive: 60 }) { |request| request.respond('hi') }
    limit = patient(0.95)
    waited = shortest(limit, tries: 5) do
      began = clock
      assert_nil connect.read(1)
      clock - began
    end
    assert_operator waited, :<, limit
  end

  def test_accepting_pauses_at_the_limit_and_goes_on
    serve(limits: { connections: 2 }) { |request| request.respond('hi') }
    first = connect
    second = connect
    third = connect
    third << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    snooze until @server.stats.open == 2
    sleep 0.01
    assert_equal 2, @server.stats.open
    first.close
    assert_match(/\AHTTP\/1.1 200/, third.readpartial(1000))
    second.close
  end

  def test_a_unix_socket
    Dir.mktmpdir do |folder|
      @log = StringIO.new
      @server = Polyphony::HTTP::Server.new("unix:#{folder}/s", log: @log) { |request| request.respond(request.peer.inspect) }.start
      client = track(UNIXSocket.new("#{folder}/s"))
      client << "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
      assert_match(/\r\n\r\nnil\z/, client.read)
      @server.stop
      refute File.exist?("#{folder}/s")
    end
  end

  def test_what_runs_after_a_request
    seen = []
    serve do |request|
      request.on_finish { |error| seen << error }
      raise 'no' if request.path == '/bad'

      request.respond('x')
    end
    get
    get('/bad')
    assert_equal [NilClass, RuntimeError], seen.map(&:class)
  end

  # --- the life of a server -----------------------------------------------------------------------

  def test_a_handler_may_stop_its_server
    %w[before after child].each do |way|
      serve do |request|
        @server.stop if way == 'before'
        spin { @server.stop }.await if way == 'child'
        request.respond('bye')
        @server.stop if way == 'after'
      end
      began = clock
      assert_equal 'bye', get.body
      @server.wait
      assert_operator clock - began, :<, patient(5) # drain_time is 30
      assert_raises(Errno::ECONNREFUSED) { connect }
    end
  end

  def test_run_ends_its_server_when_it_is_cancelled
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) { |request| request.respond('x') }
    port = server.port
    assert_nil(move_on_after(0.02) { server.run })
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new('127.0.0.1', port) }
    assert_empty(Fiber.current.children.select { |fiber| fiber.tag == :http_server })
  end

  def test_a_server_whose_parent_ends_at_once_closes_its_sockets
    server = nil
    spin { server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) { nil }.start }.await
    assert server.listeners.first.socket.closed?
  end

  def test_a_server_that_never_ran_is_closed_by_stop
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) { nil }
    server.stop
    assert server.listeners.first.socket.closed?
    assert_match(/has ended, .*Server\.new/, assert_raises(RuntimeError) { server.start }.message)
  end

  def test_inspect_fits_in_a_line
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) { nil }
    url = Regexp.escape(server.url)
    assert_match(/\A#<Polyphony::HTTP::Server #{url} \(not started\)>\z/, server.inspect)
    assert_match(/ #{url} \(serving, connections: 0\)>\z/, server.start.inspect)
    assert_match(/ #{url} \(ended\)>\z/, server.stop.inspect)
  end

  def test_a_server_that_has_ended_says_so
    serve { nil }
    assert_match(/runs already/, assert_raises(RuntimeError) { @server.start }.message)
    @server.stop
    assert_match(/has ended, .*Server\.new/, assert_raises(RuntimeError) { @server.start }.message)
  end

  def test_bad_arguments_say_what_to_do
    { { app: 42 } => /a handler can be called with a request, got app: 42/,
      { app: -> {}, limits: 5 } => /limits are a Hash, .*got 5/,
      { app: -> {}, log: '/a.log' } => %r{a log is something to write to, .*got "/a.log"} }.each do |options, message|
      assert_match(message, assert_raises(ArgumentError) { Polyphony::HTTP::Server.new('http://127.0.0.1:0', **options) }.message)
    end
    error = assert_raises(ArgumentError) { Polyphony::HTTP::Server.new('http://127.0.0.1:0') }
    assert_match(/block, or app:/, error.message)
    error = assert_raises(ArgumentError) { Polyphony::HTTP::Server.new('ftp://x') { nil } }
    assert_match(%r{cannot listen at "ftp://x": say http://HOST:PORT}, error.message)
    error = assert_raises(ArgumentError) { Polyphony::HTTP::Limits.new(bodi: 1) }
    assert_match(/no such limit: :bodi; there are request_line/, error.message)
    error = assert_raises(ArgumentError) { Polyphony::HTTP::Limits.new(body: -1) }
    assert_match(/limit body must be a positive number or nil, got -1/, error.message)
  end
end
