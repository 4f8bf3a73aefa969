# frozen_string_literal: true

require_relative '../test_helper'
require 'json'
require 'stringio'
require 'polyphony/cli'
require 'polyphony/cli/check'
require_relative '../support/tls'

# polyphony check: the tool itself. What it attacks here are servers of a few lines, good and bad ones.
class TestCheck < Polyphony::TestCase
  on_every_driver

  GOOD = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
  BAD = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

  def test_a_server_that_is_not_there_is_named
    door = TCPServer.new('127.0.0.1', 0)
    port = door.local_address.ip_port
    door.close
    status, _, err = check("http://127.0.0.1:#{port}/")
    assert_equal 1, status
    assert_match(%r{\Apolyphony check: http://127.0.0.1:#{port}/ cannot be reached: .* Is the server running}, err)
  end

  def test_a_strict_server_passes
    url = serve { |text| text.match?(/content-length:.*transfer-encoding:/im) ? [BAD, :close] : [GOOD] }
    status, out, err = check(url, '--only', '6a')
    assert_equal [0, 1], [status, out.scan(/^6a .* 400, closed +pass$/).size], out + err
    assert_includes out, '1 passed'
  end

  def test_a_server_that_answers_what_was_smuggled_fails
    url = serve { |text| [GOOD * text.scan('HTTP/1.1').size, :close] }
    status, out, = check(url, '--only', '6')
    assert_equal 1, status
    assert_match(/^6a .* 200 200, closed +FAIL$/, out)
    assert_includes out, '2 failed'
  end

  def test_a_lenient_server_differs
    url = serve { [GOOD] }
    status, out, = check(url, '--only', '4a')
    assert_equal 0, status
    assert_match(/^4a .*differs$/, out)
  end

  # By default this limit of ours is longer than the check waits for others.
  def test_a_window_that_stays_closed_is_waited_for_as_long_as_our_own_server_would
    skip 'the extension was built without libnghttp2' unless Polyphony::HTTP.http2?
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', limits: { h2_stall: 2 }, log: nil) do |request|
      request.respond(request.path == '/large' ? 'x' * 100_000 : 'ok')
    end
    server.start
    verdicts = Polyphony::HTTP::Check.new(server.url, only: ['30'], wait: 0.5, large: '/large').run.map(&:verdict)
    assert_equal %i[pass pass], verdicts
  ensure
    server&.stop(within: 0)
  end

  def test_bytes_that_are_no_answer_are_a_failure
    url = serve { |text| [text.include?(" : ") ? "#{BAD}and more" : GOOD, :close] }
    status, out, = check(url, '--only', '2a')
    assert_equal 1, status
    assert_includes out, 'bytes that are no answer'
  end

  def test_what_is_told_of_the_inside_is_a_failure
    text = "app.rb:12: undefined method `x' for nil"
    url = serve do |head|
      head.include?(" : ") ? [BAD.sub('Length: 0', "Length: #{text.size}") + text, :close] : [GOOD]
    end
    status, out, = check(url, '--only', '2a')
    assert_equal 1, status
    assert_includes out, 'shows its inside'
  end

  def test_a_server_that_does_not_serve_others_meanwhile_fails
    first = true
    url = serve do |text|
      text.include?(' : ') ? (sleep(0.2) && [BAD, :close]) : [first ? GOOD : '', :close].tap { first = false }
    end
    status, out, = check(url, '--only', '2a')
    assert_equal 1, status
    assert_includes out, 'a good request got no answer meanwhile'
  end

  def test_what_the_server_does_not_offer_is_not_tried
    url = serve { [GOOD] }
    status, out, = check(url, '--only', '25,38a,42a')
    assert_equal 0, status
    assert_match(/^not tried: 25 .*no HTTP\/2/, out)
    assert_match(/^not tried: 38 .*--websocket PATH/, out)
    assert_match(/^not tried: 42 .*https/, out)
  end

  def test_results_as_json
    url = serve { [GOOD] }
    _, out, = check(url, '--only', '4a', '--json')
    results = JSON.parse(out)
    assert_equal url, results['url']
    assert_equal %w[4a differs], results['results'].first.values_at('id', 'verdict')
  end

  # Nothing is sent to others before somebody has said yes.
  def test_it_asks_before_it_touches_another_machine
    ["no\n", '', "y\n"].each do |answer|
      status, out, err = check('http://192.0.2.1:9/', '--only', '6a', input: answer)
      assert_equal [1, ''], [status, out]
      assert_match(/is another machine/, err)
      assert_match(/nothing was done/, err)
    end
  end

  def test_a_wrong_command_line_is_explained
    { [] => /one URL/, ['http://a', 'b'] => /one URL/, ['gopher://x/'] => /cannot check/, ['http://127.0.0.1:1/', '--only', '99'] => /no such case: 99/,
      ['http://127.0.0.1:1/', '--wat'] => /invalid option: --wat/ }.each do |words, message|
      status, _, err = check(*words)
      assert_equal 64, status
      assert_match(message, err)
    end
  end

  def test_a_server_that_is_not_there_is_told
    port = TCPServer.open('127.0.0.1', 0) { |server| server.local_address.ip_port }
    status, _, err = check("http://127.0.0.1:#{port}/")
    assert_equal 1, status
    assert_match(/refused/, err)
  end

  def test_a_server_that_says_nothing_is_told
    status, _, err = check(serve { ['', :close] })
    assert_equal 1, status
    assert_match(/does not answer to a good request/, err)
  end

  def test_a_certificate_that_is_not_trusted_is_told_with_the_way_out
    server = track(TCPServer.new('127.0.0.1', 0))
    spin do
      ssl = OpenSSL::SSL::SSLSocket.new(server.accept, Polyphony::TLS.server).tap { |socket| socket.sync_close = true }
      ssl.accept
    rescue OpenSSL::SSL::SSLError
      ssl.io.close
    end
    status, _, err = check("https://127.0.0.1:#{server.local_address.ip_port}/")
    assert_equal 1, status
    assert_match(/certificate verify failed.*--insecure/m, err)
  end

  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION, for which Ruby has no name: what OpenSSL did of its own before version 3.
  def test_a_server_that_negotiates_anew_fails
    allow = OpenSSL::OPENSSL_LIBRARY_VERSION[/\d+/].to_i < 3 ? 0 : 1 << 8
    context = Polyphony::TLS.server { |one| one.options |= allow }
    url = serve(->(socket) { OpenSSL::SSL::SSLSocket.new(socket, context).tap(&:accept) }) { [GOOD] }.sub('http', 'https')
    status, out, = check(url, '--only', '43c', '--insecure')
    assert_equal 1, status
    assert_match(/^43c .*renegotiated +FAIL$/, out)
  end

  def test_the_list_has_every_line_but_the_one_about_applications
    status, out, = check('--list')
    assert_equal 0, status
    assert_equal [*1..45] - [22], out.lines.map(&:to_i).uniq
    ids = out.lines.map { |line| line[/\S+/] }
    assert_equal ids.uniq, ids
  end

  def test_every_case_says_what_is_expected
    Polyphony::HTTP::Check::CASES.each { |one| refute_empty one.expect.text, one.id }
  end

  # --- the parts ----------------------------------------------------------------------------------

  def test_answers_are_taken_apart
    text = "HTTP/1.1 100 Continue\r\n\r\n#{GOOD}HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n#{BAD}"
    answers = Polyphony::HTTP::Check::Answers.new(text, ended: true)
    assert_equal [200, 200, 400], answers.statuses
    assert_equal([100], answers.infos.map(&:status))
    assert_equal(["ok\n", 'abc', ''], answers.finals.map(&:body))
    assert_predicate answers, :clean?
  end

  def test_answers_that_are_cut_short_are_told
    ['HTTP/1.1 200 OK', "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"].each do |text|
      refute_predicate Polyphony::HTTP::Check::Answers.new(text, ended: true), :clean?
    end
  end

  def test_statuses_in_hpack
    client = Polyphony::HTTP::Check::H2Client.new(nil)
    { "\x88" => 200, "\x8c" => 400, "\x3f\xe1\x1f\x89" => 204, "\x48\x03431" => 431, "\x08\x82\x68\x01" => 401, "\x48\x82\x6c\x00" => 500 }
      .each { |block, status| assert_equal status, client.__send__(:status_of, block.b), block.inspect }
  end

  def test_integers_in_hpack
    assert_equal "\x1f\x9a\x0a".b, Polyphony::HTTP::Check::H2Client.integer(1337, 5)
    assert_equal "\x0a".b, Polyphony::HTTP::Check::H2Client.integer(10, 5)
  end

  private

  # @param wrap [Proc, nil] makes of a socket what is conversed on
  # @yield [String] what came on a connection so far, when it has come to a pause
  # @yieldreturn [Array] what to answer, and :close
  # @return [String] the URL
  def serve(wrap = nil)
    server = track(TCPServer.new('127.0.0.1', 0))
    spin do
      loop do
        socket = server.accept
        spin { converse(socket, wrap) { |text| yield text } }
      end
    end
    "http://127.0.0.1:#{server.local_address.ip_port}/"
  end

  def converse(socket, wrap)
    stream = wrap ? wrap.call(socket) : socket
    loop do
      text = +stream.readpartial(100_000)
      answer, ending = yield text
      stream << answer
      break if ending
    end
  rescue EOFError, SystemCallError, OpenSSL::SSL::SSLError
    nil
  ensure
    socket.close
  end

  def check(*words, input: '')
    out = StringIO.new
    err = StringIO.new
    tool = Polyphony::CLI.const_get(:Check)
    [tool.new(words, out: out, err: err, input: StringIO.new(input)).run, out.string, err.string]
  end
end
