# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'stringio'

class TestEventStream < Polyphony::TestCase
  on_every_driver

  def serve(limits: {}, &handler)
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  # HTTP/1.0: no chunks, so that the bytes are the events.
  def get(headers = '', verb: 'GET')
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    io.write("#{verb} / HTTP/1.0\r\nhost: x\r\n#{headers}\r\n")
    [io, io.gets("\r\n\r\n")]
  end

  def test_events_have_kinds_ids_and_lines
    serve do |request|
      request.event_stream do |events|
        events << 'hello'
        events.send("two\nlines\r\nor\rmore\n", event: :news, id: 7, retry: 1.5)
        events.send('').comment('only we see it')
        events << 5 << 'ü'.encode('ISO-8859-1')
      end
    end
    io, head = get
    assert_match(/^content-type: text\/event-stream\r$/, head)
    assert_match(/^cache-control: no-store\r$/, head)
    assert_equal <<~TEXT, io.read.force_encoding('UTF-8')
      data: hello

      event: news
      id: 7
      retry: 1500
      data: two
      data: lines
      data: or
      data: more
      data:#{' '}

      data:#{' '}

      : only we see it

      data: 5

      data: ü

    TEXT
    assert_empty @log.string
  end

  def test_what_would_break_the_format_is_refused
    errors = []
    serve do |request|
      request.event_stream do |events|
        [{ event: "a\nb" }, { id: "1\r2" }, { id: "\0" }].each do |options|
          events.send('x', **options)
        rescue ArgumentError => e
          errors << e.message
        end
        events.send("\xff") rescue errors << $!.message
      end
    end
    io, = get
    assert_equal '', io.read
    assert_equal ['event must be one line, got "a\nb"', 'id must be one line, got "1\r2"', 'id must be one line, got "\u0000"',
                  'events are UTF-8: scrub the text, or send it as Base64'], errors
  end

  def test_a_client_that_comes_back_says_where_it_was
    serve { |request| request.event_stream { |events| events << events.last_id.inspect } }
    assert_equal "data: \"41\"\n\n", get("last-event-id: 41\r\n").first.read
    assert_equal "data: nil\n\n", get.first.read
  end

  def test_silence_is_broken_by_comments
    serve { |request| request.event_stream(keep_alive: 0.02) { suspend } }
    io, = get
    assert_equal ": \n\n" * 2, io.read(8)
    io.close
  end

  def test_the_handler_ends_when_the_client_is_gone
    ended = Polyphony::Event.new
    serve do |request|
      request.event_stream(keep_alive: 0.02) { suspend }
    ensure
      ended.signal($!.class)
    end
    get.first.close
    assert_equal Polyphony::HTTP::ClientGone, ended.await
    assert_empty @log.string
  end

  def test_a_client_that_does_not_read_is_given_up
    ended = Polyphony::Event.new
    serve(limits: { write_stall: 0.1 }) do |request|
      request.event_stream { |events| loop { events << ('x' * 100_000) } }
    ensure
      ended.signal($!.class)
    end
    get
    assert_equal Polyphony::HTTP::TooSlow, ended.await
  end

  def test_many_fibers_may_send
    serve do |request|
      request.event_stream { |events| Array.new(10) { |i| spin { 5.times { events.send(i.to_s * 10_000) } } }.each(&:await) }
    end
    lines = get.first.read.split("\n\n")
    assert_equal 50, lines.size
    assert(lines.all? { |line| line.match?(/\Adata: (\d)\1{9999}\z/) })
  end

  def test_head_has_no_events
    serve { |request| request.event_stream { flunk } }
    io, head = get(verb: 'HEAD')
    assert_match(/event-stream/, head)
    assert_equal '', io.read
  end
end
