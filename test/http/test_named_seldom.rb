# frozen_string_literal: true

require_relative '../test_helper'
require 'net/http'
require 'polyphony/http'
require 'polyphony/http/check'
require 'polyphony/http/config'
require 'polyphony/http/rackup_handler'
require 'stringio'

# Public methods of the web server that the other tests reach only through others: see test/test_surface.rb.
class TestHTTPNamedSeldom < Polyphony::TestCase
  on_every_driver

  def serve(**options, &handler)
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new, **options, &handler).start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def test_a_request_says_whether_it_is_a_head_and_is_answered
    seen = []
    serve do |request|
      seen << [request.head?, request.answered?]
      request.respond('text')
      seen << request.answered?
    end
    Net::HTTP.start('127.0.0.1', @server.port) { |http| [http.get('/'), http.head('/')] }
    assert_equal [[false, false], true, [true, false], true], seen
    assert_operator @server.stats.bytes_out, :>=, 4
    refute_predicate @server.listeners.first, :tls?
  end

  def test_what_a_handler_keeps_belongs_to_the_connection
    serve do |request|
      connection = request.connection
      connection.app_data = connection.app_data.to_i + 1
      request.respond("#{connection.app_data} #{connection.transport.hidden?}")
    end
    counts = Array.new(2) do
      Net::HTTP.start('127.0.0.1', @server.port) { |http| Array.new(2) { http.get('/').body } }
    end
    assert_equal [['1 false', '2 false']] * 2, counts
  end

  def test_logs_can_be_given_to_a_server_that_runs
    lines = []
    other = StringIO.new
    serve { |request| request.path == '/wrong' ? raise('wrong') : request.respond('ok') }
    @server.access_log = ->(request, _seconds) { lines << request.path }
    @server.log.io = other
    Net::HTTP.start('127.0.0.1', @server.port) { |http| %w[/right /wrong].each { |path| http.get(path) } }
    snooze until lines.size == 2
    assert_equal %w[/right /wrong], lines
    assert_match(/wrong/, other.string)
  end

  def test_small_questions
    assert_equal [true, true, false, true], [100, 204, 200, 304].map { |status| Polyphony::HTTP::Status.bodiless?(status) }
    assert_equal ['text/html; charset=utf-8', 'application/octet-stream', 'x/y'],
                 ['/a/b.HTML', 'c', 'd.e'].map { |path| Polyphony::HTTP::Static.type_of(path, 'e' => 'x/y') }
    refute_predicate Polyphony::HTTP::Config.new(env: {}, directory: '/nonexistent'), :tls?
    assert_includes Module.new.extend(Polyphony::HTTP::RackupHandler).valid_options.keys.join(' '), 'Host=HOST'
    assert_predicate Polyphony::HTTP::Check::Target.new('http://127.0.0.1:9/'), :loopback?
    assert_match(/\A1\.\d+/, Polyphony::HTTP::HTTP2::Session.nghttp2_version) if Polyphony::HTTP.http2?
  end
end
