# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http2_client'
require 'polyphony/http'

# What C does with objects that are odd: not initialized, over, moved by the GC, changed by somebody else meanwhile.
class TestHTTPMemory < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP

  # --- HTTP/2 -------------------------------------------------------------------------------------

  def session(**limits)
    skip 'libnghttp2 was not found' unless HTTP.http2?
    HTTP::HTTP2::Session.new(HTTP::Limits.new(**limits).to_h)
  end

  # One that has stream 1 open.
  def session_with_stream(**limits)
    session(**limits).tap { |session| assert session.upgrade('', false) }
  end

  # All that it has to send; fields that are literals can be read in it.
  def output_of(session)
    all = +''.b
    piece = +''.b
    all << piece while session.pull(piece, 65_536)
    all
  end

  def test_a_session_that_was_not_initialized_or_is_closed
    closed = session
    closed.close
    [HTTP::HTTP2::Session.allocate, closed, closed.dup].each do |session|
      assert_raises(RuntimeError) { session.upgrade('', false) }
      assert_nil session.feed(+'x')
      assert_equal false, session.pull(+'', 10)
      assert_equal false, session.respond(1, 200, {}, nil, nil, true)
      assert_equal false, session.finish(1, {})
      refute session.open?
      2.times { assert_nil session.close }
    end
  end

  def test_trailers_that_are_no_hash
    [5, 'x', [], :a].each do |trailers|
      session = session_with_stream
      session.respond(1, 200, {}, nil, nil, false)
      assert_raises(TypeError) { session.finish(1, trailers) }
      assert session.finish(1, { 'x-end' => 'yes' })
    end
  end

  # The bytes of a short String are part of the object, and move with it. '~', '!' and '|' have long codes, so nghttp2
  # sends such values as they are. Every allocation moves objects to where others were; in a program of its own, because
  # each time all that is in memory is looked at.
  MOVING = <<~'RUBY'
    require 'polyphony/http'
    session = Polyphony::HTTP::HTTP2::Session.new(Polyphony::HTTP::Limits.new.to_h)
    session.upgrade('', false) or raise 'no stream'
    texts = ->(kind) { (0...30).map { |i| format("~#{kind}|%02d!", i) } }
    holes = Array.new(20_000) { +'' }
    headers = texts['N'].zip(texts['v'], (0...30).to_a).to_h { |name, *values| [name, values] }
    GC.start                      # see Polyphony::GCPressure
    GC.auto_compact = true
    holes.clear
    GC.stress = true
    session.respond(1, 200, headers, nil, nil, true)
    GC.stress = GC.auto_compact = false
    all = +''.b
    piece = +''.b
    all << piece while session.pull(piece, 65_536)
    p (texts['n'] + texts['v']).reject { |text| all.include?(text) }, all.bytesize > 600
  RUBY

  def test_headers_of_http2_that_move_while_they_are_gathered
    skip 'libnghttp2 was not found' unless HTTP.http2?
    skip 'this Ruby cannot compact' unless GC.respond_to?(:auto_compact=)
    out, err, = run_ruby(MOVING)
    assert_equal ["[]\ntrue\n", ''], [out, err]
  end

  class Shouting < String
    attr_accessor :before

    def downcase(*)
      before&.call
      super
    end

    def to_str
      before&.call
      super
    end
  end

  # Fields of two answers must never mix.
  def test_names_of_headers_run_no_code_of_the_application
    session = session_with_stream
    called = 0
    name = Shouting.new('X-Odd')
    name.before = -> { called += 1 }
    assert session.respond(1, 200, { name => '~!|' }, nil, nil, true)
    assert_equal 0, called
    assert_includes output_of(session), '~!|'
  end

  def test_names_that_are_no_strings_are_refused_by_http2
    odd = Object.new
    def odd.to_str
      raise 'called'
    end
    error = assert_raises(HTTP::BadResponse) { session_with_stream.respond(1, 200, { odd => 'x' }, nil, nil, true) }
    assert_match(/name of a header/, error.message)
  end

  def test_a_body_whose_conversion_closes_the_session
    session = session_with_stream
    body = Object.new
    body.define_singleton_method(:to_str) do
      session.close
      session.release(1)
      'body'
    end
    assert_equal false, session.respond(1, 200, {}, nil, body, false)
    session = session_with_stream
    session.respond(1, 200, {}, nil, nil, false)
    assert_equal false, session.send_data(1, body)
  end

  # --- limits -------------------------------------------------------------------------------------

  HUGE = { request_line: 1 << 70, header_block: 1e300, header_fields: 1 << 40, chunk_line: 1 << 33, body: 10**30,
           requests: 10**30, h2_resets: 1 << 80, h2_reset_rate: Float::INFINITY, h2_stall: Float::INFINITY,
           h2_streams: 1 << 40, h2_window: 1 << 40, h2_stream_window: 1 << 40, keep_alive: Float::INFINITY,
           header_time: Float::INFINITY, ws_frame: 1 << 70, ws_message: 1 << 64, ws_fragments: 1 << 40 }.freeze
  TINY = { request_line: 0.5, header_block: 1, header_fields: 0.1, body: 0.5, h2_streams: 0.5, h2_window: 1,
           ws_frame: 0.5, ws_fragments: 0.5 }.freeze

  def parser(limits)
    HTTP::HTTP1.const_get(:Parser).new(limits)
  end

  def codec(limits, client, deflate = nil)
    HTTP::WebSocket.const_get(:Codec).new(client, limits.ws_frame, limits.ws_message, limits.ws_fragments, deflate)
  end

  def test_limits_that_are_huge
    limits = HTTP::Limits.new(**HUGE)
    head = parser(limits).head(+"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: #{10**18}\r\n\r\n")
    assert_equal '/a', head.path
    window = HTTP::WebSocket.deflate? ? [true, true, 15] : nil
    text = 'polyphony' * 1_000
    assert_equal text, codec(limits, true, window).next(codec(limits, false, window).frame(1, text))
    return unless HTTP.http2?

    session = session_with_stream(**HUGE)
    assert session.respond(1, 200, {}, nil, 'body', false)
    refute_empty output_of(session)
    assert session.open?
  end

  def test_limits_that_are_tiny
    limits = HTTP::Limits.new(**TINY)
    error = assert_raises(HTTP::BadRequest) { parser(limits).head(+"GET / HTTP/1.1\r\nhost: a\r\n\r\n") }
    assert_equal 400, error.status
    assert_equal :bad, codec(limits, true).next(codec(limits, false).frame(1, 'xx'))
    session_with_stream(**TINY).close if HTTP.http2?
  end

  # --- WebSocket and HTTP/1 -----------------------------------------------------------------------

  def test_what_is_initialized_twice_or_not_at_all
    limits = HTTP::Limits.new
    assert_raises(TypeError) { parser(limits).send(:initialize, limits) }
    assert_raises(TypeError) { parser(limits).dup.head(+'') }
    assert_raises(TypeError) { HTTP::HTTP1.const_get(:Head).allocate }
    one = codec(limits, true)
    assert_raises(TypeError) { one.__send__(:initialize, true, 1, 1, 1, nil) }
    assert_equal :bad, one.class.allocate.next(codec(limits, true).frame(1, 'x'))
    2.times { one.release }
    assert_equal :bad, one.next(+'x')
  end

  # It is lent to the kernel while somebody waits for bytes.
  def test_a_buffer_that_is_lent
    buffer = +"GET / HTTP/1.1\r\nhost: a\r\n\r\nPOST"
    parser = parser(HTTP::Limits.new)
    assert parser.head(buffer)
    reader, = pipe_pair
    waiting = spin { Polyphony.backend_read(reader, buffer, 100, false, -1) }
    snooze
    [-> { parser.head(buffer) }, -> { parser.rest(buffer) }, -> { codec(HTTP::Limits.new, true).next(buffer) },
     *(-> { session.feed(buffer) } if HTTP.http2?)].each { |attempt| assert_raises(RuntimeError, &attempt) }
    assert_equal "GET / HTTP/1.1\r\nhost: a\r\n\r\nPOST", buffer
    waiting.stop
    waiting.await
    assert_equal false, parser.head(buffer)
    assert_equal 'POST', buffer
  end
end
