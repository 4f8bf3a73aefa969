# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http2_client'
require 'polyphony/http'
require 'net/http'
require 'stringio'

# Handlers that use a request in ways it is not meant for: one sentence that says what was wrong, and no harm to others.
class TestHTTPMisuse < Polyphony::TestCase
  on_every_driver

  def serve(**options, &handler)
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, **options, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def get(path = '/')
    Net::HTTP.start('127.0.0.1', @server.port) { |http| http.get(path) }
  end

  # @return [Integer] the status
  def get_h2
    HTTP2Client.new(track(TCPSocket.new('127.0.0.1', @server.port))).get(1)
  end

  # What each of them has to say.
  WRONG = {
    'a number as body'         => [->(r) { r.respond(42) }, /a body is a String, got Integer/],
    'an Array as body'         => [->(r) { r.respond(%w[a b]) }, /a body is a String, got Array/],
    'a Hash behind a body'     => [->(r) { r.respond({ a: 1 }) }, /a body is a String, got Hash/],
    'headers that are nil'     => [->(r) { r.respond('a', nil) }, /headers are a Hash, .* got nil/],
    'a type as headers'        => [->(r) { r.respond('a', 'text/plain') }, %r{headers are a Hash, .* got "text/plain"}],
    'pairs as headers'         => [->(r) { r.send_headers([%w[a b]]) }, /headers are a Hash, .* got \[\["a", "b"\]\]/],
    'hints that are none'      => [->(r) { r.early_hints(nil) }, /headers are a Hash, .* got nil/],
    'a status that is a word'  => [->(r) { r.respond('a', {}, status: :ok) }, /status must be a number between 200 and 599, got :ok/],
    'a chunk that is nil'      => [->(r) { r.send_chunk(nil) }, /a body is a String, got NilClass/],
    'on_finish without block'  => [->(r) { r.on_finish }, /on_finish needs a block/],
    'no answer'                => [->(_) {}, /has not answered: respond, or send_headers, has to be called/]
  }.freeze

  WRONG.each do |what, (handler, message)|
    define_method(:"test_#{what.tr(' ', '_')}_is_told_in_a_sentence") do
      serve(&handler)
      assert_equal '500', get.code
      assert_equal 500, get_h2 if Polyphony::HTTP.http2?
      lines = @log.string.lines.grep(/error in GET/)
      assert_equal [message], lines.map { |line| line[message] ? message : line }.uniq
    end
  end

  def test_a_chunk_that_is_none_breaks_the_answer_off
    serve do |request|
      request.send_headers
      request.send_chunk(5)
    end
    assert_raises(EOFError) { get }
    assert_match(/a body is a String, got Integer/, @log.string)
  end

  def test_trailers_that_are_none_break_the_answer_off
    serve do |request|
      request.send_chunk('a')
      request.finish(trailers: 'x')
    end
    assert_raises(EOFError) { get }
    assert_match(/headers are a Hash, .* got "x"/, @log.string)
  end

  # A value that cannot be made a String.
  class Odd
    def to_s
      raise ArgumentError, 'odd'
    end
  end

  def test_a_header_that_fails_is_a_500
    serve do |request|
      case request.path
      when '/small' then request.respond('a', 'x' => Odd.new)
      when '/large' then request.respond('a' * 100_000, 'x' => Odd.new)
      else request.send_headers('x' => Odd.new)
      end
    end
    assert_equal(%w[500 500 500], %w[/small /large /pieces].map { |path| get(path).code })
    assert_equal '500', Net::HTTP.post(URI("#{@server.url}/small"), 'some', 'content-type' => 'text/plain').code
    assert_equal 4, @log.string.scan(/error in \w+ \S+: odd \(ArgumentError\)/).size
  end

  def test_a_trailer_that_fails_breaks_the_answer_off
    serve do |request|
      request.send_chunk('a')
      request.finish(trailers: { 'x' => Odd.new })
    end
    assert_raises(EOFError) { get }
    assert_match(/error in GET \/: odd/, @log.string)
  end

  # --- symbols ------------------------------------------------------------------------------------

  def test_symbols_are_names_of_headers_as_in_a_request
    serve { |request| request.respond('a', content_type: 'text/plain', x_number: 1.5, x_yes: true, status: 201) }
    answer = get
    assert_equal ['201', 'text/plain', '1.5', 'true'], [answer.code, answer['content-type'], answer['x-number'], answer['x-yes']]
    return unless Polyphony::HTTP.http2?

    text = IO.popen(['curl', '-sS', '-i', '-m', '5', '--http2-prior-knowledge', @server.url], &:read).delete("\r")
    assert_equal %w[text/plain 1.5 true], [text[/^content-type: (.*)/, 1], text[/^x-number: (.*)/, 1], text[/^x-yes: (.*)/, 1]]
  end

  def test_a_length_may_be_told_by_a_symbol
    serve do |request|
      request.send_headers(content_length: 5)
      request.send_chunk('abc')
    end
    get # Net::HTTP takes what there is
    assert_match(/the body had 3 bytes, its content-length says 5/, @log.string)
  end

  def test_values_of_headers_are_no_matter_for_the_log
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?

    serve { |request| request.respond('a', 'set-cookie' => "session=hidden\nx: y") }
    assert_equal [500, '500'], [get_h2, get.code]
    assert_equal 2, @log.string.scan(/"set-cookie"/).size
    refute_includes @log.string, 'hidden'
  end

  def test_the_url_of_a_websocket_may_be_a_uri_and_not_nil
    serve { |request| request.upgrade_to_websocket { |ws| ws << 'hello' } }
    client = Polyphony::HTTP::WebSocket
    assert_equal 'hello', client.connect(URI("ws://127.0.0.1:#{@server.port}/"), &:receive)
    assert_match(%r{a WebSocket has a URL like ws://}, assert_raises(ArgumentError) { client.connect(nil) }.message)
  end

  # --- what is raised -----------------------------------------------------------------------------

  # Assertions of test libraries are no StandardErrors.
  class Assertion < Exception # rubocop:disable Lint/InheritException
  end

  def test_an_exception_of_any_kind_costs_its_request_and_nothing_else
    serve { |request| request.path == '/bad' ? raise(Assertion, 'so not') : request.respond('fine') }
    assert_equal '500', get('/bad').code
    assert_match(/error in GET \/bad: so not/, @log.string)
    assert_equal 'fine', get.body
  end

  def test_a_handler_that_exits_ends_the_program_and_the_log_tells
    error = assert_raises(SystemExit) do
      serve { exit 7 }
      client = track(TCPSocket.new('127.0.0.1', @server.port))
      client.write("GET /end HTTP/1.1\r\nhost: a\r\n\r\n")
      sleep patient(5)
    end
    assert_equal 7, error.status
    assert_match(%r{GET /end ends the process: exit with status 7 at .*test_misuse.rb:\d+$}, @log.string)
  end

  def test_what_is_cut_off_has_not_gone_well
    ended = began = nil
    serve do |request|
      request.on_finish { |error| ended = [error.class] }
      began = true
      sleep
    end
    client = track(TCPSocket.new('127.0.0.1', @server.port))
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    sleep 0.001 until began
    @server.stop(within: 0)
    assert_operator ended.first, :<, Polyphony::BaseException
  end
end
