# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http1_case'

require 'time'
# HTTP/1.0 and 1.1 as a client meets them.
class TestHTTP1 < Polyphony::HTTP1Case
  on_every_driver

  def echo(**limits)
    serve(**limits) do |request|
      body = request.read
      request.respond("#{request.verb} #{request.target} #{body}", 'x-trailers' => request.trailers.inspect)
    end
  end

  # --- connections --------------------------------------------------------------------------------

  def test_a_connection_is_kept_alive
    echo
    client = connect
    3.times do |i|
      client << request("/#{i}")
      answer = client.answer
      assert_equal [200, "GET /#{i} ", nil], [answer.status, answer.body, answer['connection']]
    end
    assert_equal 1, @server.stats.connections
  end

  def test_close_is_said_and_done
    echo
    [request('/', 'Connection: close'), request('/', 'Connection: foo, CLOSE'), request('/', version: '1.0')].each do |text|
      client = connect
      client << text
      answers = client.answers
      assert_equal [[200, 'close']], answers.map { |answer| [answer.status, answer['connection']] }
    end
  end

  def test_http_1_0_may_keep_alive
    echo
    client = connect
    2.times do
      client << request('/', 'Connection: keep-alive', version: '1.0')
      assert_equal 'keep-alive', client.answer['connection']
    end
  end

  def test_http_1_0_never_gets_chunks
    serve { |request| request.send_chunk('a').send_chunk('b', done: true) }
    client = connect
    client << request('/', 'Connection: keep-alive', version: '1.0')
    answers = client.answers
    assert_equal [['ab', nil, 'close']], answers.map { |answer| [answer.body, answer['transfer-encoding'], answer['connection']] }
  end

  def test_pipelined_requests_are_answered_in_order
    serve do |request|
      sleep 0.001 if request.path.end_with?('0')
      request.respond(request.path)
    end
    client = connect
    client << Array.new(100) { |i| request("/#{i}") }.join
    assert_equal(Array.new(100) { |i| "/#{i}" }, Array.new(100) { client.answer.body })
  end

  def test_the_handler_may_close
    serve { |request| request.respond('bye', 'Connection' => 'close', 'Keep-Alive' => 'timeout=5', 'Transfer-Encoding' => 'chunked') }
    client = connect
    client << request << request
    answers = client.answers
    assert_equal [['bye', 'close', nil, nil]], answers.map { |a| [a.body, a['connection'], a['Keep-Alive'], a['Transfer-Encoding']] }
  end

  def test_so_many_requests_and_no_more
    echo(requests: 3)
    client = connect
    client << (request * 5)
    assert_equal [nil, nil, 'close'], client.answers.map { |answer| answer['connection'] }
  end

  def test_idle_connections_are_closed
    echo(keep_alive: 0.05)
    client = connect
    client << request
    assert client.answer
    assert_equal '', client.rest
    assert_empty refusals
  end

  def test_draining_ends_after_the_answer
    release = Polyphony::Event.new
    serve do |request|
      release.await
      request.respond('done')
    end
    client = connect
    client << request << request
    until_it_is_so { @server.stats.running == 1 }
    stopping = spin { @server.stop(within: patient(5)) }
    snooze until @server.draining?
    release.signal
    assert_equal [%w[done close]], client.answers.map { |answer| [answer.body, answer['connection']] }
    client.close
    stopping.await
  end

  # --- what is asked ------------------------------------------------------------------------------

  def test_the_request
    seen = nil
    serve do |request|
      seen = [request.verb, request.method, request.target, request.path, request.query, request.version, request.scheme, request.authority,
              request.host, request['X-Some'], request[:x_some], request.headers['x-some'], request['x-some'], request.peer, request.body?, request.inspect]
      request.respond
    end
    client = connect
    client << request('/a/b?c=d', 'X-Some: thing')
    assert_equal '', client.answer.body
    assert_equal ['GET', 'GET', '/a/b?c=d', '/a/b', 'c=d', '1.1', 'http', 'test', 'test', 'thing', 'thing', 'thing', 'thing', '127.0.0.1', false,
                  '#<Polyphony::HTTP::HTTP1::Request GET /a/b?c=d>'], seen
  end

  def test_a_request_outlives_its_connection
    kept = nil
    serve do |request|
      kept = request
      request.respond
    end
    client = connect
    client << request('/old?x', 'X-Old: yes')
    client.answer
    old = kept
    client << request('/new', 'Content-Length: 3', verb: 'POST') << 'abc'
    client.answer
    client.close
    assert_equal ['/old', 'yes', { 'host' => 'test', 'x-old' => 'yes' }, ''], [old.path, old['x-old'], old.headers, old.read]
    assert_raises(Polyphony::HTTP::BadResponse) { old.respond('again') }
  end

  def test_a_url_as_target
    serve { |request| request.respond([request.target, request.path, request.authority, request.headers['host']].join(' ')) }
    assert_equal '/p?q /p example.org example.org', one_answer(request('http://example.org/p?q', 'Connection: close')).body
  end

  def test_options_for_everybody_is_answered_by_the_server
    serve { |_request| flunk 'not for the handler' }
    client = connect
    client << request('*', verb: 'OPTIONS') << request('*', 'Connection: close', verb: 'OPTIONS')
    assert_equal([[200, ''], [200, '']], client.answers.map { |answer| [answer.status, answer.body] })
  end

  def test_trace_says_what_is_allowed
    echo
    answer = one_answer(request(verb: 'TRACE'))
    assert_equal 405, answer.status
    assert_match(/GET/, answer['allow'])
  end

  # --- bodies of requests -------------------------------------------------------------------------

  def test_bodies
    echo
    client = connect
    client << request('/', 'Content-Length: 5', verb: 'POST') << 'hello'
    assert_equal 'POST / hello', client.answer.body
    client << request('/', 'Transfer-Encoding: chunked', verb: 'PUT') << "3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\nHost: evil\r\n\r\n"
    answer = client.answer
    assert_equal ['PUT / abcde', { 'x-sum' => '5' }.inspect], [answer.body, answer['x-trailers']]
    client << request('/', 'Content-Length: 0')
    assert_equal 'GET / ', client.answer.body
  end

  def test_a_long_body_is_whole_however_it_is_read
    body = Random.bytes(3_000_000)
    serve do |request|
      got = case request.path
            when '/read' then request.read
            when '/chunks' then request.each_chunk.to_a.join
            else request.each_chunk.first + request.read
            end
      request.respond((got == body).to_s)
    end
    client = connect
    %w[/read /chunks /both].each do |path|
      writing = spin { client << request(path, "Content-Length: #{body.bytesize}", verb: 'POST') << body << request('/read') }
      assert_equal %w[true false], Array.new(2) { client.answer.body }, path
      writing.await
    end
  end

  def test_a_body_is_read_as_it_comes
    got = Polyphony::Queue.new
    serve do |request|
      request.each_chunk { |chunk| got << chunk }
      request.respond
    end
    client = connect
    client << request('/', 'Transfer-Encoding: chunked', verb: 'POST')
    %w[one two three].each do |word|
      client << "#{word.size.to_s(16)}\r\n#{word}\r\n"
      assert_equal word, got.shift
    end
    client << "0\r\n\r\n"
    assert_equal 200, client.answer.status
  end

  def test_a_body_that_nobody_reads_is_skipped
    serve { |request| request.respond(request.path) }
    %w[GET HEAD OPTIONS DELETE POST].each do |verb|
      client = connect
      client << request('/1', 'Content-Length: 7', verb: verb) << 'GET / H' << request('/2', 'Transfer-Encoding: chunked', verb: verb) << "3\r\nabc\r\n0\r\n\r\n" << request('/3', 'Connection: close')
      head = verb == 'HEAD'
      assert_equal [200, 200, 200], [client.answer(head: head).status, client.answer(head: head).status, client.answer.status]
      assert_nil client.answer
    end
  end

  def test_a_long_body_that_nobody_reads_ends_the_connection
    serve { |request| request.respond('no, thanks') }
    client = connect
    client << request('/', 'Content-Length: 10000000', verb: 'POST')
    writing = spin { outcome { client << ('x' * 10_000_000) } }
    answer = client.answer
    assert_equal ['no, thanks', 'close'], [answer.body, answer['connection']]
    client.close
    writing.stop
    writing.await
    assert_empty refusals
  end

  def test_bytes_behind_an_empty_body_are_the_next_request
    echo
    client = connect
    client << request('/1', 'Content-Length: 0', verb: 'POST') << request('/2', 'Connection: close')
    assert_equal ['POST /1 ', 'GET /2 '], client.answers.map(&:body)
    client = connect
    client << request('/1', 'Content-Length: 0', verb: 'POST') << "smuggled\r\n"
    assert_equal [200, 400], client.answers.map(&:status)
  end

  def test_a_body_that_is_too_long
    echo(body: 10)
    assert_equal 413, one_answer(request('/', 'Content-Length: 11', verb: 'POST')).status
    assert_equal 413, one_answer("#{request('/', 'Transfer-Encoding: chunked', verb: 'POST')}6\r\n123456\r\n6\r\n").status
    assert_equal ['body too long'] * 2, refusals
  end

  def test_bad_chunks
    echo
    assert_equal 400, one_answer("#{request('/', 'Transfer-Encoding: chunked', verb: 'POST')}3\r\nabcd\r\n0\r\n\r\n").status
    assert_equal ['a chunk longer than its size'], refusals
  end

  def test_a_handler_that_swallows_bad_input_cannot_go_on
    serve do |request|
      begin
        request.read
      rescue Polyphony::HTTP::BadRequest
        nil
      end
      request.respond('fine')
    end
    answer = one_answer("#{request('/', 'Transfer-Encoding: chunked', verb: 'POST')}3\r\nabcd#{request}")
    assert_equal %w[fine close], [answer.body, answer['connection']]
  end

  # --- 100, 103, 417 ------------------------------------------------------------------------------

  def test_continue_is_said_when_the_body_is_asked_for
    asked = Polyphony::Event.new
    serve do |request|
      asked.await
      request.respond(request.read)
    end
    client = connect
    client << request('/', 'Expect: 100-continue', 'Content-Length: 2', verb: 'POST')
    until_it_is_so { @server.stats.running == 1 }
    assert_nil client.io.wait_readable(0.01)
    asked.signal
    assert_equal 100, client.answer.status
    client << 'ok'
    assert_equal 'ok', client.answer.body
  end

  def test_no_continue_if_the_body_is_there_already
    serve { |request| request.respond(request.read) }
    client = connect
    client << "#{request('/', 'Expect: 100-continue', 'Content-Length: 2', verb: 'POST')}ok"
    answer = client.answer
    assert_equal [200, 'ok', nil], [answer.status, answer.body, answer['connection']]
  end

  # Whether it comes or not cannot be known.
  def test_a_body_that_is_expected_and_not_wanted_ends_the_connection
    serve { |request| request.respond('no', status: 403) }
    answer = one_answer(request('/', 'Expect: 100-continue', 'Content-Length: 2', verb: 'POST'))
    assert_equal [403, 'close'], [answer.status, answer['connection']]
  end

  def test_http_1_0_gets_no_1xx
    serve do |request|
      request.early_hints('link' => '</a>')
      request.respond(request.read)
    end
    client = connect
    client << request('/', 'Expect: 100-continue', 'Content-Length: 2', version: '1.0', verb: 'POST') << 'ok'
    assert_equal([[200, 'ok']], client.answers.map { |answer| [answer.status, answer.body] })
  end

  def test_early_hints
    serve do |request|
      request.early_hints('link' => ['</a.css>; rel=preload', '</b.js>; rel=preload'])
      request.respond('page')
    end
    client = connect
    client << request
    assert_match %r{\AHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n\r\n}, client.readpartial
  end

  # --- answers ------------------------------------------------------------------------------------

  def test_the_head_of_an_answer
    serve { |request| request.respond('hi', { 'X-List' => %w[a b], 'x-number' => 5, :'x-symbol' => 'e', 'x-none' => nil }, status: 201) }
    client = connect
    client << request
    text = client.readpartial
    date = text[/^date: (.*)\r$/, 1]
    assert_equal "HTTP/1.1 201 Created\r\nX-List: a\r\nX-List: b\r\nx-number: 5\r\nx-symbol: e\r\n" \
                 "date: #{date}\r\ncontent-length: 2\r\n\r\nhi", text
    assert_in_delta Time.now, Time.httpdate(date), 2
  end

  def test_a_status_without_a_phrase_and_a_date_of_ones_own
    serve { |request| request.respond('', { 'Date' => 'today' }, status: 299) }
    client = connect
    client << request
    assert_equal "HTTP/1.1 299 \r\nDate: today\r\ncontent-length: 0\r\n\r\n", client.readpartial
  end

  def test_head_and_bodiless_answers
    serve do |request|
      status = Integer(request.path[1..], 10)
      request.query ? request.send_chunk('body', done: true) : request.respond('body', { 'etag' => 'x' }, status: status)
    end
    client = connect
    { '/200' => '4', '/204' => nil, '/304' => nil }.each do |path, length|
      client << request(path, verb: 'HEAD')
      answer = client.answer(head: true)
      assert_equal [path, length], ["/#{answer.status}", answer['content-length']]
    end
    client << request('/200?stream', verb: 'HEAD')
    assert_equal [200, nil], client.answer(head: true).to_h.values_at(:status, :body).then { |status, body| [status, body.empty? ? nil : body] }
    client << request('/204') << request('/304') << request('/200')
    assert_equal [[204, nil, ''], [304, nil, ''], [200, '4', 'body']], Array.new(3) { client.answer }.map { |a| [a.status, a['content-length'], a.body] }
  end

  def test_the_length_that_the_handler_says
    serve { |request| request.respond(request.path[1..], 'Content-Length' => '3') }
    client = connect
    client << request('/abc') << request('/', verb: 'HEAD')
    assert_equal [%w[abc 3], ['', '3']], [client.answer, client.answer(head: true)].map { |a| [a.body, a['content-length']] }
    client << request('/four')
    assert_equal 500, client.answer.status
    assert_match(/the body has 4 bytes, its content-length says 3/, @log.string)
  end

  def test_chunks_and_trailers
    serve do |request|
      request.send_headers('content-type' => 'text/plain')
      request.send_chunk('small').send_chunk('').send_chunk('l' * 100_000)
      request.finish(trailers: { 'x-sum' => '1', 'content-length' => '5' })
    end
    client = connect
    2.times do
      client << request
      answer = client.answer
      assert_equal ["small#{'l' * 100_000}", 'chunked', '1', nil],
                   [answer.body, answer['transfer-encoding'], answer['trailer x-sum'], answer['trailer content-length']]
    end
  end

  def test_a_large_answer
    serve { |request| request.respond('x' * 5_000_000) }
    client = connect
    client << request << request
    assert_equal [5_000_000] * 2, Array.new(2) { client.answer.body.bytesize }
  end

  def test_parts_of_a_file
    Tempfile.create('part') do |file|
      file.write('0123456789' * 100_000)
      file.flush
      serve do |request|
        request.send_headers(request.query ? { 'content-length' => '900000' } : {})
        request.send_file_part(file, 100_000, 900_000)
      end
      client = connect
      client << request << request('/?length')
      assert_equal ['0123456789' * 90_000] * 2, Array.new(2) { client.answer.body }
    end
  end

  def test_what_must_not_be_sent
    bad = [{ 'x' => "a\r\nb: c" }, { 'x' => "a\rb" }, { 'x' => "a\nb" }, { 'x' => "a\0" }, { 'x' => ['ok', "a\0"] }, { "x\r\n" => 'a' }, { 'x y' => 'a' }, { '' => 'a' },
           { 'x:' => 'a' }, { 'content-length' => '-1' }, { 'content-length' => '1x' }]
    serve { |request| request.respond('x', bad.fetch(Integer(request.path[1..], 10))) }
    client = connect
    bad.each_index do |i|
      client << request("/#{i}")
      assert_equal 500, client.answer.status, bad[i].inspect
    end
  end

  def test_a_line_feed_splits_nothing
    serve { |request| request.respond('x', 'x-a' => "1\nset-cookie: evil=1\n\nbody") }
    client = connect
    client << request
    assert_equal 500, client.answer.status
  end

  def test_too_many_and_too_few_bytes_are_seen
    serve do |request|
      request.send_headers('content-length' => '5')
      request.query ? request.send_chunk('123').send_chunk('456') : request.send_chunk('123')
    end
    ['/?more', '/'].each do |path|
      client = connect
      client << request(path) << request
      assert_match(/\r\n\r\n123\z/, client.rest)
    end
    assert_equal 2, @server.stats.errors
  end

  def test_a_failure_in_the_middle_is_seen
    serve do |request|
      request.send_chunk('first')
      raise 'oh'
    end
    client = connect
    client << request << request
    assert_match(/\r\n\r\n5\r\nfirst\r\n\z/, client.rest)
    client = connect
    client << request('/', version: '1.0')
    assert_raises(Errno::ECONNRESET) { client.rest }
  end

  # What follows would be taken for a part of it.
  def test_nothing_follows_an_answer_that_was_cut_short
    release = Polyphony::Event.new
    serve do |request|
      request.send_headers
      move_on_after(patient(0.05)) { request.send_chunk('x' * 50_000_000) }
      assert_raises(Polyphony::HTTP::ClientGone) { request.send_chunk('more') }
      release.signal
    end
    client = connect
    client << request << request
    release.await
    text = client.rest
    assert_equal 1, text.scan('HTTP/1.1').size
    refute_match(/more|0\r\n\r\n\z/, text)
  end

  def test_bad_trailers_end_the_connection
    serve { |request| request.send_chunk('x').finish(trailers: { "a\r\n" => 'b' }) }
    client = connect
    client << request << request
    assert_match(/\r\n\r\n1\r\nx\r\n\z/, client.rest)
    assert_equal 1, @server.stats.requests
  end

  # A handler can have got it from a client of its own.
  def test_a_handler_that_says_the_client_is_gone_ends_the_connection
    serve { |_request| raise Polyphony::HTTP::ClientGone, 'another one' }
    client = connect
    client << request << request
    assert_equal '', client.rest
    assert_equal 1, @server.stats.requests
  end

  def test_fibers_that_write_at_the_same_time_take_turns
    serve do |request|
      request.send_headers
      Array.new(4) { |i| spin { 20.times { request.send_chunk(i.to_s * 60_000) } } }.each(&:await)
      request.finish
    end
    client = connect
    client << request
    body = client.answer.body
    assert_equal 4 * 20 * 60_000, body.bytesize
    body.scan(/.{60000}/m) { |chunk| assert_equal 1, chunk.squeeze.size }
  end

  # --- leaving HTTP -------------------------------------------------------------------------------

  def test_an_upgrade
    serve do |request|
      stream = request.upgrade('echo', 'x-extra' => 'y')
      stream << "hello #{stream.readpartial(100)}"
      stream.write('and ', stream.readpartial(100))
    end
    client = connect
    client << request('/', 'Connection: Upgrade', 'Upgrade: foo, Echo') << 'early'
    answer = client.answer
    assert_equal [101, 'echo', 'upgrade', 'y'], [answer.status, *answer.headers.values_at('upgrade', 'connection', 'x-extra')]
    assert_equal 'hello early', client.readpartial
    client << 'late'
    assert_equal 'and late', client.rest
  end

  def test_an_upgrade_that_nobody_asked_for
    serve do |request|
      request.upgrade('echo')
    rescue Polyphony::HTTP::BadResponse => e
      request.respond(e.message)
    end
    client = connect
    [[], ['Upgrade: echo'], ['Connection: upgrade'], ['Connection: upgrade', 'Upgrade: other']].each do |fields|
      client << request('/', *fields)
      assert_equal 'the client has not asked for an upgrade to echo', client.answer.body
    end
    assert_match(/has not asked/, one_answer(request('/', 'Connection: upgrade', 'Upgrade: echo', version: '1.0')).body)
  end

  # HTTP/2 has tests of its own; these are the requests that must not get there.
  def test_what_looks_like_h2c_and_is_none
    serve { |request| request.respond("stays with #{request.version}") }
    client = connect
    [['Connection: upgrade', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA'], ['Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA'],
     ['Connection: upgrade', 'Upgrade: h2c'], ['Connection: upgrade', 'Upgrade: h2', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA']].each do |fields|
      client << request('/', *fields)
      assert_equal 'stays with 1.1', client.answer.body
    end
    client << request('/', 'Connection: upgrade', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA', 'Content-Length: 2', verb: 'POST') << 'ab'
    assert_equal 'stays with 1.1', client.answer.body
    assert_equal '', @log.string
  end

  def test_an_answer_that_tells_to_upgrade
    serve { |request| request.respond('', { 'upgrade' => 'h2c' }, status: 426) }
    client = connect
    client << request << request('/', 'Connection: close')
    assert_equal ['upgrade', 'close, upgrade'], client.answers.map { |answer| answer['connection'] }
  end

  def test_a_connection_that_is_taken_over
    stream = nil
    serve { |request| stream = request.hijack }
    client = connect
    client << request << 'raw'
    until_it_is_so { stream && @server.stats.open.zero? }
    assert_equal 'raw', stream.readpartial(100)
    stream << 'bytes'
    stream.close
    assert_equal 'bytes', client.rest
  end

  # --- clients that go ----------------------------------------------------------------------------

  def test_a_client_that_closes_in_every_state
    begun = ended = 0
    serve do |request|
      begun += 1
      case request.path
      when '/body' then request.read
      when '/stream' then loop { request.send_chunk('x' * 100_000) }
      else sleep
      end
    ensure
      ended += 1
    end
    %i[close reset].each do |how|
      ['', 'GET / HT', "GET / HTTP/1.1\r\nHo"].each { |text| connect.tap { |client| client << text }.public_send(how) }
      started = ended
      [request('/body', 'Content-Length: 5', verb: 'POST') + 'ab', request('/stream')].each_with_index do |text, index|
        client = connect.tap { |socket| socket << text }
        until_it_is_so { begun == started + index + 1 } # before, a reset leaves nothing of it
        client.public_send(how)
      end
      until_it_is_so { ended == started + 2 && @server.stats.open.zero? }
    end
    assert_empty refusals
    assert_equal '', @log.string
  end

  def test_a_client_that_half_closes_gets_its_answer
    serve { |request| request.respond("got #{request.read}") }
    client = connect
    client << request('/', 'Content-Length: 2', verb: 'POST') << 'ok'
    client.io.close_write
    assert_equal ['got ok'], client.answers.map(&:body)
  end

  def test_a_client_that_reads_nothing_stalls
    told = nil
    serve(write_stall: 0.05) do |request|
      request.on_finish { |error| told = error.class }
      loop { request.send_chunk('x' * 1_000_000) }
    end
    client = connect
    client << request
    until_it_is_so { told && @server.stats.open.zero? }
    assert_equal Polyphony::HTTP::TooSlow, told
    assert_equal ['took nothing of the answer for 0.05 s'], refusals
  end

  def test_reading_stops_while_the_answers_are_not_read
    handled = 0
    serve do |request|
      handled += 1
      request.respond('x' * 10_000)
    end
    client = connect
    writing = spin { outcome { client << (request * 10_000) } }
    before = -1
    until handled == before
      before = handled
      sleep 0.05
    end
    assert_operator handled, :<, 5_000
    assert_equal 200, Client.new(connect.io).tap { |other| other << request }.answer.status
    writing.stop
    writing.await
  end

  def test_pipelining_is_fair
    order = []
    serve do |request|
      order << request.path
      request.respond
    end
    greedy = connect
    polite = connect
    greedy << (request('/greedy') * 200)
    polite << request('/polite')
    assert_equal 200, polite.answer.status
    200.times { greedy.answer }
    assert_operator order.index('/polite'), :<, 60
  end

  def test_a_client_that_takes_all_at_once_is_not_alone
    taken = 0
    serve do |request|
      next request.respond('hi') if request.path == '/'

      loop { request.send_chunk('x' * 100_000) }
    end
    greedy = connect
    greedy << request('/endless')
    reading = spin { loop { taken += greedy.io.readpartial(1_000_000).bytesize } }
    snooze until taken > 1_000_000
    polite = connect
    5.times do
      polite << request
      assert_equal 'hi', polite.answer.body
    end
    reading.stop
    reading.await
  end

  # --- slow clients -------------------------------------------------------------------------------

  def test_a_slow_head
    echo(header_time: 0.1)
    ['GET /', "GET / HTTP/1.1\r\nHost: a\r\nX", 'G'].each do |text|
      client = connect
      client << text
      dripping = spin_loop(interval: 0.02) { outcome { client << 'x' } }
      answers = client.answers
      assert_equal([[408, 'close']], answers.map { |answer| [answer.status, answer['connection']] })
      dripping.stop
      client.close
    end
    assert_equal ['the head of a request took longer than 0.1 s'] * 3, refusals
  end

  def test_silence
    echo(header_time: 0.05)
    assert_equal '', connect.rest
    assert_empty refusals
  end

  def test_a_slow_body
    echo(body_grace: 0.1, body_rate: 1000)
    client = connect
    client << request('/', 'Content-Length: 1000', verb: 'POST')
    dripping = spin_loop(interval: 0.02) { outcome { client << 'x' } }
    assert_equal([408], client.answers.map(&:status))
    dripping.stop
    assert_equal ['a body came slower than 1000 bytes a second'], refusals
  end

  # A handler that takes its time is not the client's fault.
  def test_a_slow_handler_does_not_make_a_slow_body
    begun = Polyphony::Event.new
    serve(body_grace: patient(0.4), body_rate: 1_000_000) do |request|
      sleep patient(0.5)
      begun.signal
      request.respond(request.read)
    end
    client = connect
    client << request('/', 'Content-Length: 4', verb: 'POST') << 'ab'
    begun.await
    client << 'cd'
    assert_equal 'abcd', client.answer.body
  end

  # --- what is refused gets one answer ------------------------------------------------------------

  def test_bad_input_gets_one_answer_and_no_more
    echo
    bad = { request('/', 'Host: other') => 400, "GET / HTTP/1.1\nHost: a\n\n" => 400, request(version: '2.0') => 505, request(verb: 'FROB') => 501,
            "GET /#{'a' * 100_000} HTTP/1.1\r\n\r\n" => 414, request('/', "X: #{'a' * 200_000}") => 431, request('/', 'Expect: no', 'Content-Length: 3') => 417,
            request('/', 'Content-Length: 5', 'Transfer-Encoding: chunked') => 400, "\x16\x03\x01\x02\0".b => 400 }
    bad.each do |text, status|
      answer = one_answer(text + request)
      assert_equal [status, 'close'], [answer.status, answer['connection']]
      refute_match(/ruby|polyphony|\.rb/i, answer.body)
    end
    assert_equal bad.size, @server.stats.refused
  end

  def test_the_next_request_may_be_bad
    echo
    client = connect
    client << request('/good') << "BAD\r\n\r\n" << request('/never')
    assert_equal [200, 400], client.answers.map(&:status)
  end

  def test_split_into_two_writes
    heavy
    echo
    text = "#{request('/a?b', 'Transfer-Encoding: chunked', 'Connection: close', verb: 'POST')}3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    whole = one_answer(text)
    (1...text.bytesize).each do |at|
      client = connect
      client << text.byteslice(0, at)
      snooze
      client << text.byteslice(at..)
      answer = client.answer
      assert_equal [whole.status, whole.body, whole['x-trailers']], [answer.status, answer.body, answer['x-trailers']], "split at #{at}"
      client.close
    end
  end

  # --- all of it together -------------------------------------------------------------------------

  # How a request of a conversation is framed, what its handler does with the body, and how it answers.
  Turn = Struct.new(:id, :verb, :framing, :body, :reading, :answer) do
    def text
      path = "/#{id}?#{reading}&#{answer}"
      head = "#{verb} #{path} HTTP/1.1\r\nHost: test\r\n"
      case framing
      when :none then "#{head}\r\n"
      when :length then "#{head}Content-Length: #{body.bytesize}\r\n\r\n#{body}"
      else "#{head}Transfer-Encoding: chunked\r\n\r\n#{chunks}0\r\nX-T: 1\r\n\r\n"
      end
    end

    def chunks
      body.scan(/.{1,700}/m).map { |part| "#{part.bytesize.to_s(16)};x=y\r\n#{part}\r\n" }.join
    end

    def expected
      return '' if verb == 'HEAD' || answer == 'nothing'

      "#{id} #{reading == 'all' && framing != :none ? body.hash : 0}"
    end
  end

  def random_turn(random, id)
    framing = %i[none length chunked].sample(random: random)
    Turn.new(id, %w[GET POST HEAD PUT DELETE].sample(random: random), framing, random.bytes(random.rand(1..3000)).b,
             %w[all some none].sample(random: random), %w[whole stream length nothing].sample(random: random))
  end

  def converse(request)
    reading, answer = request.query.split('&')
    body = reading == 'all' && request.body? ? request.read.hash : 0
    request.each_chunk { break } if reading == 'some'
    text = "#{request.path[1..]} #{body}"
    case answer
    when 'whole' then request.respond(text)
    when 'nothing' then request.respond(nil, status: 204)
    when 'length' then request.send_headers('content-length' => text.bytesize.to_s).send_chunk(text)
    else
      request.send_headers
      text.each_char { |char| request.send_chunk(char) }
    end
  end

  def test_conversations_of_all_kinds
    heavy
    serve { |request| converse(request) }
    seed = Random.new_seed
    talks = Array.new(8) { |i| spin { converse_as_client(Random.new(seed + i)) } }
    talks.each(&:await)
    assert_equal '', @log.string
  rescue Minitest::Assertion => e
    raise e, "#{e.message} (seed #{seed})"
  end

  def converse_as_client(random)
    turns = Array.new(30) { |id| random_turn(random, id) }
    client = connect
    writing = spin do
      bytes = turns.map(&:text).join
      until bytes.empty?
        client << bytes.slice!(0, random.rand(1..2_000))
        snooze if random.rand(3).zero?
      end
    end
    turns.each do |turn|
      answer = client.answer(head: turn.verb == 'HEAD')
      assert_equal [turn.answer == 'nothing' ? 204 : 200, turn.expected], [answer.status, answer.body], turn.to_a.values_at(0, 1, 2, 4, 5).inspect
    end
    writing.await
    client.close
  end

  # --- several fibers and one request -------------------------------------------------------------

  # What is behind the body is not theirs.
  def test_fibers_that_read_a_body_at_once_take_turns
    serve do |request|
      readers = Array.new(3) { spin { request.each_chunk.to_a.join } }
      request.respond(readers.map(&:await).join.bytesize.to_s)
    end
    ["Content-Length: 10\r\n\r\naaaaa", "Transfer-Encoding: chunked\r\n\r\n5\r\naaaaa\r\n"].each do |first|
      client = connect
      client << "POST / HTTP/1.1\r\nHost: a\r\n#{first}"
      5.times { snooze }
      client << "#{"5\r\n" if first.include?('chunked')}bbbbb#{"\r\n0\r\n\r\n" if first.include?('chunked')}" << request('/next')
      assert_equal(%w[10 0], Array.new(2) { client.answer.body })
      client.close
    end
  end

  # The connection cannot be used again while somebody reads what came on it.
  def test_a_fiber_that_reads_on_when_the_handler_has_returned
    ends = []
    serve do |request|
      spin do
        request.read
      rescue Polyphony::HTTP::ClientGone => e
        ends << e
      end
      snooze
      request.respond(request.path)
    end
    ['Content-Length: 5', 'Transfer-Encoding: chunked'].each do |field|
      client = connect
      client << request('/first', field, verb: 'POST')
      assert_equal '/first', client.answer.body
      outcome { client << "5\r\nbbbbb\r\n0\r\n\r\n#{request('/second')}" }
      answer = outcome { client.answer }
      assert answer.nil? || answer.is_a?(SystemCallError), answer.inspect
    end
    assert_equal 2, ends.size
    assert_empty @log.string
  end
end
