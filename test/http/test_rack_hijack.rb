# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/rack_client'
require 'polyphony/http'
require 'rack'
require 'rack/lint'
require 'stringio'

# Applications that take the connection, or a half of it.
class TestRackHijack < Polyphony::TestCase
  on_every_driver

  def serve(lint: true, &app)
    app = Rack::Lint.new(app) if lint
    @log = StringIO.new
    handler = Polyphony::HTTP::RackHandler.new(app, errors: @log)
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', app: handler, log: @log, limits: { write_stall: 1 }).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def client
    Polyphony::RackClient.new(track(TCPSocket.new('127.0.0.1', @server.port)))
  end

  ASK = "GET /x HTTP/1.1\nHost: a\n\n"
  UPGRADE = "GET /x HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: echo\n\n"

  def assert_no_complaint
    assert_equal '', @log.string
  end

  # --- all of it --------------------------------------------------------------------------------

  def test_the_socket_itself_is_handed_out
    io = nil
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      assert_same io, env['rack.hijack_io']
      assert_same io, env['rack.hijack'].call
      [-1, {}, []]
    end
    here = client
    here.send(ASK)
    snooze until io && @server.connections.empty?
    assert_kind_of TCPSocket, io
    io.write('raw bytes')
    assert_equal 'raw bytes', here.socket.read(9)
    here.socket.write('back')
    assert_equal 'back', io.readpartial(10)
    io.close
    assert_nil here.socket.read(1)
    assert_no_complaint
  end

  def test_a_request_that_was_answered_cannot_take_the_next_ones_connection
    late = nil
    errors = []
    serve(lint: false) do |env|
      begin
        late&.call
      rescue Polyphony::HTTP::BadResponse => e
        errors << e.message
      end
      late = env['rack.hijack']
      [200, { 'content-type' => 'text/plain' }, ['good']]
    end
    here = client
    2.times do
      here.send(ASK)
      here.socket.readpartial(1_000)
    end
    assert_equal ['the answer has begun, so the connection cannot be taken over'], errors
  end

  def test_lint_has_nothing_against_it
    serve do |env|
      io = env['rack.hijack'].call
      io.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
      io.close
      [200, {}, []]
    end
    assert_equal 'ok', client.request(ASK).body
    assert_no_complaint
  end

  def test_bytes_that_came_too_early_are_not_lost
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      assert_kind_of UNIXSocket, io
      io.write(io.readpartial(100).upcase)
      io.write(io.read(4).upcase)
      io.close
      [-1, {}, []]
    end
    here = client
    here.socket.write("GET /x HTTP/1.1\r\nHost: a\r\n\r\nearly")
    assert_equal 'EARLY', here.socket.read(5)
    here.socket.write('late')
    assert_equal 'LATE', here.socket.read
    assert_no_complaint
  end

  def test_another_thread_may_keep_it
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      Thread.new do
        io.write(io.read(5).reverse)
        io.close
      end
      [-1, {}, []]
    end
    [ASK.gsub("\n", "\r\n"), "#{ASK.gsub("\n", "\r\n")}hello"].each do |text|
      here = client
      here.socket.write(text)
      here.socket.write('hello') unless text.end_with?('hello')
      assert_equal 'olleh', here.socket.read
    end
  end

  def test_selectors_and_nonblocking_calls_work_on_it
    results = Queue.new
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      Thread.new do
        results << io.read_nonblock(10, exception: false)
        results << io.write_nonblock('go', exception: false)
        IO.select([io.to_io])
        results << io.read_nonblock(10, exception: false)
        IO.select([io])
        results << io.read_nonblock(10, exception: false)
        io.close
      end
      [-1, {}, []]
    end
    here = client
    here.send(ASK)
    assert_equal 'go', here.socket.read(2)
    here.socket.write('data')
    assert_equal [:wait_readable, 2, 'data'], Array.new(3) { results.pop }
    here.socket.close
    assert_nil results.pop
  end

  def test_the_answer_is_nobodys_business_afterwards
    closed = 0
    body = Object.new
    body.define_singleton_method(:each) { raise 'not this' }
    body.define_singleton_method(:close) { closed += 1 }
    serve(lint: false) do |env|
      env['rack.hijack'].call.close
      [500, { 'x' => "\r\n" }, body]
    end
    here = client
    here.send(ASK)
    assert_equal '', here.socket.read
    assert_equal 1, closed
    assert_no_complaint
  end

  def test_the_callbacks_are_told_all_the_same
    told = Queue.new
    serve(lint: false) do |env|
      env['rack.response_finished'] << ->(_env, status, _headers, error) { told << [status, error] }
      env['rack.hijack'].call.close
      [-1, {}, []]
    end
    client.send(ASK)
    assert_equal [-1, nil], told.pop
  end

  def test_an_application_that_fails_after_it_took_the_connection_is_logged_only
    io = nil
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      raise 'oops'
    end
    here = client
    here.send(ASK)
    snooze until @log.string.include?('oops')
    io.write('still mine')
    io.close
    assert_equal 'still mine', here.socket.read
  end

  def test_so_it_is_with_a_socket_of_ours
    io = nil
    serve(lint: false) do |env|
      io = env['rack.hijack'].call
      raise 'oops'
    end
    here = client
    here.socket.write("GET /x HTTP/1.1\r\nHost: a\r\n\r\nearly")
    snooze until io
    assert_equal 'early', io.read(5)
    io.write('still mine')
    io.close
    assert_equal 'still mine', here.socket.read
    snooze until @log.string.include?('oops')
  end

  def test_a_server_that_is_cut_short_closes_what_it_carries
    io = nil
    serve(lint: false) do |env|
      io = track(env['rack.hijack'].call)
      [-1, {}, []]
    end
    here = client
    here.socket.write("GET /x HTTP/1.1\r\nHost: a\r\n\r\nearly")
    snooze until io
    @server.stop(within: 0)
    assert_equal 'early', io.read
    assert_equal '', here.socket.read.to_s
  end

  # --- the half after the headers ---------------------------------------------------------------

  def test_the_response_header_gets_a_socket_after_the_headers
    serve do
      [200, { 'content-type' => 'text/plain', 'rack.hijack' => lambda do |stream|
        stream.write('one ')
        stream << 'two'
        stream.close
      end }, []]
    end
    here = client
    2.times do
      answer = here.request(ASK)
      assert_equal ['chunked', 'one two', nil], [answer['transfer-encoding'], answer.body, answer['rack.hijack']]
    end
    assert_no_complaint
  end

  def test_it_stays_open_until_it_is_closed
    socket = nil
    serve { [200, { 'rack.hijack' => ->(stream) { socket = stream } }, []] }
    here = client
    here.send("POST /x HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody")
    snooze until socket
    thread = Thread.new do
      text = socket.read(4)
      socket.write("later #{text}")
      socket.close
    end
    assert_equal 'later body', here.answer.body
    thread.join
    assert_no_complaint
  end

  def test_much_is_written_before_it_returns
    serve { [200, { 'rack.hijack' => ->(stream) { stream.write('x' * 3_000_000); stream.close } }, []] }
    assert_equal 3_000_000, client.request(ASK).body.bytesize
  end

  def test_the_application_sees_that_the_client_is_gone
    seen = Queue.new
    serve(lint: false) do
      [200, { 'rack.hijack' => lambda do |stream|
        loop { stream.write('x' * 10_000) }
      rescue SystemCallError => e
        seen << e.class
        stream.close
      end }, []]
    end
    here = client
    here.send(ASK)
    here.socket.read(10)
    here.socket.close
    assert_equal Errno::EPIPE, seen.pop
  end

  # --- other protocols --------------------------------------------------------------------------

  def echo(stream)
    while (data = stream.read(5))
      stream.write(data.upcase)
    end
    stream.close
  end

  def assert_echo(here)
    here.socket.write('hello')
    assert_equal 'HELLO', here.socket.read(5)
    here.socket.close_write
    assert_equal '', here.socket.read
  end

  def test_rack_protocol_is_what_the_client_offers_and_chooses_an_upgrade
    offered = nil
    serve do |env|
      offered = env['rack.protocol']
      [200, { 'rack.protocol' => 'echo', 'x-more' => '1' }, ->(stream) { echo(stream) }]
    end
    here = client
    answer = here.request(UPGRADE.sub('echo', 'other, echo'))
    assert_equal [101, 'echo', '1', nil], [answer.status, answer['upgrade'], answer['x-more'], answer['rack.protocol']]
    assert_equal 'upgrade', answer['connection'].downcase
    assert_equal %w[other echo], offered
    assert_echo here
    assert_no_complaint
  end

  def test_an_application_may_say_101_itself
    bodies = { ->(stream) { echo(stream) } => {}, [] => { 'rack.hijack' => ->(stream) { echo(stream) } } }
    bodies.each do |body, more|
      serve(lint: false) { [101, { 'Upgrade' => 'echo', 'Connection' => 'Upgrade', **more }, body] }
      here = client
      assert_equal 101, here.request(UPGRADE).status
      assert_echo here
      assert_no_complaint
      @server.stop(within: 0)
    end
  end

  def test_a_body_of_pieces_is_written_after_the_101
    serve(lint: false) { [101, { 'upgrade' => 'echo' }, %w[some bytes]] }
    here = client
    assert_equal 101, here.request(UPGRADE).status
    assert_equal 'somebytes', here.socket.read
  end

  def test_there_is_no_protocol_without_an_upgrade
    env = nil
    serve { |e| env = e; [200, {}, []] }
    client.request(ASK)
    refute env.key?('rack.protocol')
  end

  def test_the_native_request_may_answer_in_the_applications_place
    serve(lint: false) do |env|
      env['polyphony.request'].respond('native', { 'content-type' => 'text/plain' })
      [500, {}, ['not this']]
    end
    assert_equal 'native', client.request(ASK).body
  end
end
