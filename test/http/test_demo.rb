# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/browser'
require_relative '../support/demo_process'
require_relative '../support/postgres_cluster'
require_relative '../support/raw_websocket'
require 'fileutils'
require 'net/http'
require 'open3'
require 'polyphony/http'
require 'securerandom'

# The demo as its users meet it: a process, WebSockets from outside, and a browser. One process serves all tests but
# those about its beginning and end; each test has rooms of its own.
class TestDemo < Polyphony::TestCase
  on_every_driver
  time_limit 120

  class << self
    def demo
      @demo ||= Polyphony::DemoProcess.new.start
    end

    def after_all
      @demo&.remove
      @demo = nil
    end

    def missing
      @missing ||= begin
        require 'sqlite3'
        :nothing
      rescue LoadError => e
        "the demo needs gem sqlite3: #{e.message}"
      end
    end
  end

  def setup
    heavy
    skip self.class.missing unless self.class.missing == :nothing
    @clients = []
    @mark = SecureRandom.hex(3) # the server may not have heard yet that those of the last test are gone
  end

  def teardown
    @clients&.each(&:close)
  end

  # --- talking ----------------------------------------------------------------------------------------

  def test_those_in_a_room_hear_each_other_and_nobody_else_does
    room = some_room
    ann, bob, eve = enter('Ann', room), enter('Bob', room), enter('Eve', "#{room}-2")
    ann.send({ type: 'say', text: 'hello', nonce: 'n1' })
    heard = bob.await('message')
    assert_equal [room, named('Ann'), 'hello'], heard.values_at('room', 'name', 'text')
    assert_in_delta Time.now.to_f, heard['at'], patient(10)
    own = ann.await('message')
    assert_equal ['n1', heard['id']], own.values_at('nonce', 'id'), 'one knows one\'s own by its number'
    refute heard.key?('nonce')

    eve.send({ type: 'say', text: 'alone' })
    assert_equal 'alone', eve.await('message')['text'], 'the first message she hears is hers'
  end

  def test_over_tls_as_well
    room = some_room
    ann, bob = enter('Ann', room), enter('Bob', room, url: urls.last)
    bob.send({ type: 'say', text: 'encrypted' })
    assert_equal 'encrypted', ann.await('message')['text']
  end

  def test_whoever_comes_later_gets_what_was_said
    room = some_room
    ann = enter('Ann', room)
    texts = (1..5).map { |i| "message #{i}" }
    texts.each { |text| ann.send({ type: 'say', text: text }) }
    texts.each { |text| assert_equal text, ann.await('message')['text'] }
    bob = connect
    bob.send(hello('Bob', room))
    history = bob.await('room')['messages']
    assert_equal texts, history.map { |message| message['text'] }
    assert_equal history.map { |message| message['id'] }.sort.uniq, history.map { |message| message['id'] }

    bob.send({ type: 'history', before: history[3]['id'] })
    assert_equal texts.first(3), bob.await('history')['messages'].map { |message| message['text'] }
  end

  def test_who_is_there_who_comes_types_and_goes
    room = some_room
    ann = enter('Ann', room)
    bob = connect
    bob.send(hello('Bob', room))
    assert_equal [named('Ann')], bob.await('room')['members']
    assert_equal named('Bob'), ann.await('joined')['name']
    bob.send({ type: 'typing' })
    assert_equal named('Bob'), ann.await('typing')['name']
    bob.send({ type: 'join', room: "#{room}-2" })
    assert_equal named('Bob'), ann.await('left')['name']
    list = ann.await('rooms')['rooms'] until list&.any? { |one| one['name'] == "#{room}-2" && one['online'] == 1 }
    bob.close
    list = ann.await('rooms')['rooms'] until list.any? { |one| one['name'] == "#{room}-2" && one['online'].zero? }
  end

  def test_who_does_not_read_holds_nobody_up
    room = some_room
    enter('Deaf', room) # and never reads again
    speakers = (1..4).map { |i| enter("Speaker #{i}", room) }
    speakers.each { |speaker| 10.times { speaker.send({ type: 'say', text: '€' * 2_000 }) } }
    listener = speakers.first
    40.times { assert_equal 2_000, listener.await('message')['text'].size }
  end

  # --- rules ------------------------------------------------------------------------------------------

  def test_text_comes_back_as_it_was_but_for_what_cannot_be_seen
    room = some_room
    ann = enter('Ann', room)
    { '<script>alert("&amp;")</script>' => nil, "two\nlines" => nil, '日本語 ñ 🎻' => nil,
      "a\u0000b\u001bc\u202ed\u2066e" => 'abcde', "  \r\nspace\r\n " => 'space' }.each do |sent, shown|
      ann.send({ type: 'say', text: sent })
      assert_equal shown || sent, ann.await('message')['text']
    end
  end

  def test_bad_names_and_sessions_are_refused
    ['', ' ', 'a' * 25, "a\nb", '<b>', "\u202eann", '-x', 5, nil, ['a'], { 'a' => 1 }].each do |bad|
      client = connect
      client.send(hello('Ann', 'lobby').merge(name: bad))
      assert_includes %w[name format], client.await('error')['code'], bad.inspect
      assert client.closed?
      assert_equal 1008, client.close_code
    end
    client = connect
    client.send(hello('Ann', 'lobby').merge(session: 'guessed'))
    assert_equal 'session', client.await('error')['code']
  end

  def test_a_name_belongs_to_one_at_a_time_and_comes_back_with_its_session
    session = SecureRandom.hex(16)
    ann = enter('Ann', some_room, session: session)
    thief = connect
    thief.send(hello('A.N n', 'lobby'))
    assert_equal 'taken', thief.await('error')['code']
    enter('Ann', some_room, session: session)
    assert ann.closed?
    assert_equal 4001, ann.close_code
  end

  def test_bad_messages_are_refused_and_good_ones_go_on
    ann = enter('Ann', some_room)
    { '{' => 'format', '[]' => 'format', '"x"' => 'format', '{"type":"dance"}' => 'format',
      '{"type":"say"}' => 'format', '{"type":"say","text":" \u0007 "}' => 'text', '{"type":"join","room":"../etc"}' => 'room',
      '{"type":"join","room":"_"}' => 'room', '{"type":"history","before":"1 OR 1=1"}' => 'format',
      '{"type":"history","before":1000000000000000000000000000000}' => 'format', '{"type":"say","text":"\\ud800"}' => 'format',
      "#{'[' * 50}#{']' * 50}" => 'format' }.each do |text, code|
      ann.send(text)
      assert_equal code, ann.await('error')['code'], text
    end
    ann.send({ type: 'say', text: 'x' * 2_001 })
    assert_equal 'text', ann.await('error')['code']
    ann.send({ type: 'say', text: 'fine' })
    assert_equal 'fine', ann.await('message')['text']
  end

  def test_who_makes_too_many_mistakes_is_shown_out
    ann = enter('Ann', some_room)
    40.times { ann.send('{') }
    assert ann.closed?
    assert_equal 1008, ann.close_code
  end

  def test_who_talks_too_fast_is_told_to_wait
    ann = enter('Ann', some_room)
    14.times { |i| ann.send({ type: 'say', text: "message #{i}", nonce: "n#{i}" }) }
    error = ann.await('error')
    assert_equal 'rate', error['code']
    assert_match(/\An1\d\z/, error['nonce'])
  end

  def test_who_opens_room_after_room_is_told_to_wait
    ann = enter('Ann', some_room)
    4.times { ann.send({ type: 'join', room: some_room }) }
    assert_equal 'rate', ann.await('error')['code']
    ann.send({ type: 'join', room: 'lobby' })
    nil until ann.await('room')['name'] == 'lobby'
  end

  def test_a_message_that_is_far_too_long_ends_the_connection
    ann = enter('Ann', some_room)
    ann.send({ type: 'say', text: 'x' * 20_000 })
    assert ann.closed?
    assert_equal 1009, ann.close_code
  end

  def test_a_page_of_somebody_else_gets_no_connection
    error = assert_raises(Polyphony::RawWebSocket::Refused) { connect(origin: 'https://evil.example') }
    assert_match(/ 403 /, error.message)
    connect(origin: urls.first)
  end

  # --- pages ------------------------------------------------------------------------------------------

  def test_pages_have_a_strict_policy_and_nothing_inline
    %w[/ /stats].each do |path|
      response = get(path)
      assert_equal '200', response.code
      assert_match(%r{\Atext/html}, response['content-type'])
      assert_match(/default-src 'none'; script-src 'self'/, response['content-security-policy'])
      assert_equal 'nosniff', response['x-content-type-options']
      refute_match(/<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|https?:/, response.body)
      response.body.scan(/(?:src|href)="(\/[^"#]*)"/).flatten.uniq.each { |used| assert_equal '200', get(used).code, used }
    end
  end

  def test_what_is_not_public_is_not_served
    %w[/demo.rb /../demo.rb /%2e%2e/demo.rb /..%2fdemo.rb /chat/visit.rb /nothing].each do |path|
      assert_includes %w[400 404], get(path).code, path
    end
    assert_equal '405', http { |client| client.post('/', 'x', 'content-type' => 'text/plain') }.code
  end

  def test_the_server_tells_how_it_is
    enter('Ann', some_room)
    events = read_events
    assert_equal %w[facts now past tree], events.keys.sort
    assert_equal Thread.current.backend.kind.to_s, events['facts']['backend']
    assert_operator events['now']['members'], :>=, 1
    assert_operator events['now']['memory'], :>, 1_000_000
    tags = tags_of(events['tree'])
    %w[main hall store http_server connection pulse].each { |tag| assert_includes tags, tag }
    assert_includes tags, 'room lobby'
  end

  # --- beginning and end ------------------------------------------------------------------------------

  def test_it_ends_politely_and_remembers
    database = File.join(Dir.mktmpdir, 'messages.sqlite3')
    first = Polyphony::DemoProcess.new(database: database).start
    remember(first)
    ann = @clients.last
    answer = spin { ann.closed? } # it is asked to go, and waited for
    assert_predicate first.stop(:INT), :success?, first.output
    answer.await
    assert_equal 1001, ann.close_code

    second = Polyphony::DemoProcess.new(database: database).start
    assert_remembered second
    assert_predicate second.stop(:TERM), :success?, second.output
    assert_equal "bye\n", second.output.lines.last
  ensure
    [first, second].each { |demo| demo&.remove }
    FileUtils.rm_rf(File.dirname(database))
  end

  def test_without_a_terminal_it_checks_itself
    output, status = Open3.capture2e(File.join(POLYPHONY_ROOT, 'bin/demo'), stdin_data: '')
    assert_predicate status, :success?, output
    assert_match(/^self-check: Bob hears Ann: hello Bob$/, output)
    assert_match(/^self-check: two clients talked to each other/, output)
  end

  # Nothing in the demo waits for a database in a way that would stop the others: it is a socket like all others.
  def test_with_postgresql
    cluster = Polyphony::PostgresCluster.start
    2.times do |round|
      demo = Polyphony::DemoProcess.new(database: cluster.url).start
      assert_match(/messages in PostgreSQL \d+/, demo.output)
      round.zero? ? remember(demo) : assert_remembered(demo)
      @clients.each(&:close) # else it is waited for that they say good-bye
      assert_predicate demo.stop, :success?, demo.output
    ensure
      demo&.remove
    end
  ensure
    cluster&.remove
  end

  # --- in a browser -------------------------------------------------------------------------------------

  def test_two_pages_chat_with_each_other_over_http_and_https
    browser = Polyphony::Browser.new
    skip browser.missing if browser.missing
    output, status = browser.run('demo.mjs', File.join(POLYPHONY_ROOT, 'tmp'), *urls)
    assert_predicate status, :success?, output
    assert_equal({ 'http' => 'http/1.1', 'https' => Polyphony::HTTP.http2? ? 'h2' : 'http/1.1' }, JSON.parse(output.lines.last))
    %w[http-chat http-stats https-chat https-stats phone-chat phone-stats].each do |picture|
      assert_path_exists File.join(POLYPHONY_ROOT, "tmp/demo-#{picture}.png")
    end
  end

  private

  def urls
    self.class.demo.urls
  end

  def some_room
    "room-#{SecureRandom.hex(4)}"
  end

  def named(first)
    "#{first} #{@mark}"
  end

  def hello(first, room, session: SecureRandom.hex(16))
    { type: 'hello', name: named(first), room: room, session: session }
  end

  def connect(url: urls.first, origin: nil)
    Polyphony::RawWebSocket.new(url, '/chat', origin: origin).tap { |client| @clients << client }
  end

  # Somebody who is in the room, and has heard so.
  def enter(first, room, url: urls.first, **options)
    connect(url: url).tap do |client|
      client.send(hello(first, room, **options))
      client.await('room')
      client.await('joined')
    end
  end

  def remember(demo)
    ann = enter('Ann', 'lobby', url: demo.urls.first)
    ann.send({ type: 'say', text: 'do not forget' })
    ann.await('message')
  end

  def assert_remembered(demo)
    bob = connect(url: demo.urls.first)
    bob.send(hello('Bob', 'lobby'))
    messages = bob.await('room')['messages']
    assert_equal [[named('Ann'), 'do not forget']], messages.map { |message| message.values_at('name', 'text') }
    bob.close
  end

  def get(path)
    http { |client| client.get(path) }
  end

  def http(&block)
    uri = URI(urls.first)
    Net::HTTP.start(uri.host, uri.port, &block)
  end

  # The first of each kind, until the fibers were told of. With HTTP/1.0 nothing comes in chunks.
  def read_events
    uri = URI(urls.first)
    socket = track(TCPSocket.new(uri.host, uri.port))
    socket << "GET /stats/stream HTTP/1.0\r\nHost: #{uri.host}\r\n\r\n"
    head = socket.gets("\r\n\r\n")
    assert_match(%r{^content-type: text/event-stream}i, head)
    events = {}
    until events.key?('tree')
      event = socket.gets("\n\n")
      events[event[/^event: (.*)$/, 1]] = JSON.parse(event[/^data: (.*)$/, 1]) if event.include?('data: ')
    end
    events
  end

  def tags_of(node)
    [node['tag'], *(node['children'] || []).flat_map { |child| tags_of(child) }]
  end
end
