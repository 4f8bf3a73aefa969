# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/beside'

# http_parser.rb behind Polyphony::Callback: examples/callback_http1.rb, as it is, and its adapter in other hands.
class TestCallbackHTTP1 < Polyphony::AdapterCase
  gems 'http/parser'

  EXAMPLE = File.join(POLYPHONY_ROOT, 'examples/callback_http1.rb')

  def test_the_example_shows_what_it_promises
    paths = $LOAD_PATH.grep(/http_parser/).map { |path| "-I#{path}" }
    out, err, status = run_ruby('load ARGV.shift', EXAMPLE, options: paths)
    assert_predicate status, :success?, err
    assert_equal ['GET /first with 0 bytes', 'POST /second with 10 bytes', 'GET /last with 0 bytes'], out.lines(chomp: true)
  end

  # The class in it, without the program.
  if defined?(HTTP::Parser)
    module Example
      module_eval File.read(EXAMPLE)[/^class HTTP1Adapter.*?^end$/m], EXAMPLE, 14
    end
  end

  def setup
    super
    @client, @server = UNIXSocket.pair
    @requests = Example::HTTP1Adapter.new(@server)
  end

  def teardown
    [@client, @server].compact.each(&:close)
    super
  end

  test_in_both(:a_request_is_waited_for) do
    assert_yields(-> { @client << "GET /a HTTP/1.1\r\nX: y\r\n\r\n"; @client.close_write }) do
      seen = []
      @requests.each { |request| seen << [request.verb, request.target, request.headers] }
      assert_equal [['GET', '/a', { 'X' => 'y' }]], seen
    end
  end

  test_in_both(:a_body_is_waited_for) do
    @client << "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    body = +''
    @requests.each do
      assert_yields(-> { @client << "2\r\nde\r\n0\r\n\r\n" }) { @requests.each_chunk { |chunk| body << chunk } }
      break
    end
    assert_equal 'abcde', body
  end

  # A byte at a time, and stopped again and again.
  def test_nothing_is_lost_when_it_is_cancelled
    text = "POST /1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nConnection: close\r\n\r\n"
    writer = spin { text.each_char { |char| @client << char; snooze } }
    targets = []
    bodies = []
    until targets.size == 3
      move_on_after(0.0005) do
        @requests.each_chunk { |part| bodies << part } # goes on in the middle of a body
        @requests.each { |request| targets << request.target; @requests.each_chunk { |part| bodies << part } }
      end
    end
    writer.await
    assert_equal %w[/1 /2 /3], targets
    assert_equal 'hello', bodies.join
  end

  def test_what_is_no_request_is_an_error
    @client << "what?\r\n\r\n"
    assert_raises(HTTP::Parser::Error) { @requests.each { flunk } }
  end

  def test_a_client_that_hangs_up_in_the_middle
    @client << "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe"
    @client.close
    body = +''
    @requests.each { @requests.each_chunk { |chunk| body << chunk } }
    assert_equal 'he', body
  end
end
