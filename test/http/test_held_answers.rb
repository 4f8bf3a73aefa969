# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'stringio'

# Small answers of Rack applications wait for those to requests that came at the same time: nobody is kept waiting by that, no
# answer is lost, and none overtakes another.
class TestHTTPHeldAnswers < Polyphony::TestCase
  on_every_driver

  ASK = "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
  TEXT = { 'content-type' => 'text/plain' }.freeze

  def setup
    super
    skip 'there is no epoll here' unless Polyphony::HTTP.const_defined?(:Lobby)
    @inside = {}
    @log = StringIO.new
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  # Requests are expected to be brief from the beginning of each test on. /name has what @inside says done within it.
  def serve(address = 'http://127.0.0.1:0', **options)
    @server = Polyphony::HTTP::Server.new(address, log: @log, app: Polyphony::HTTP::RackHandler.new(method(:answer)), **options).start
    crew.instance_variable_get(:@lobby).brief = 3600
    warm = connect
    70.times { |n| assert_equal "warm#{n}", ask(warm, "warm#{n}") }
  end

  def answer(env)
    name = env['PATH_INFO'].delete('/')
    said = @inside[name]&.call(env)
    [200, TEXT.dup, [said.is_a?(String) ? said : name]]
  end

  # room: in the client's buffer
  def connect(room = nil)
    socket = track(Socket.new(:INET, :STREAM))
    socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, room) if room
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) # answers that do not fit acknowledge nothing
    socket.connect(Addrinfo.tcp('127.0.0.1', @server.port))
    socket
  end

  # Without a switch: nothing is answered before all have asked.
  def say(client, *names)
    client.write_nonblock(names.map { |name| format(ASK, name) }.join)
  end

  def read_answer(client)
    length = nil
    while (line = client.gets) != "\r\n"
      raise EOFError, 'no answer' unless line

      length = Integer(line[/\d+/]) if line.start_with?('content-length')
    end
    client.read(length)
  end

  def ask(client, name)
    say(client, name)
    read_answer(client)
  end

  # What the client has been sent by now, without waiting for more.
  def there(client)
    client.recv_nonblock(4096, Socket::MSG_PEEK, exception: false)
  end

  def clients(count)
    Array.new(count) { connect }.each { |client| ask(client, 'first') }
  end

  def test_answers_to_requests_that_came_together_leave_together
    serve
    all = clients(6)
    seen = []
    all.each_index { |n| @inside["n#{n}"] = ->(_env) { seen << all.count { |client| there(client).is_a?(String) } && nil } }
    all.each_with_index { |client, n| say(client, "n#{n}") }
    assert_equal(%w[n0 n1 n2 n3 n4 n5], all.map { |client| read_answer(client) })
    assert_equal [0] * 6, seen
  end

  def test_none_waits_while_another_request_waits
    serve
    all = clients(6)
    gate = Polyphony::Queue.new
    @inside['wait'] = ->(_env) { gate.shift && nil }
    6.times do |slow|
      all.each_with_index { |client, n| say(client, n == slow ? 'wait' : 'quick') }
      (all - [all[slow]]).each { |client| assert_equal 'quick', cancel_after(patient(5)) { read_answer(client) } }
      assert_equal :wait_readable, there(all[slow])
      gate << true
      assert_equal 'wait', read_answer(all[slow])
    end
  end

  # Who is to send it might not come before the request is over.
  def test_none_waits_for_a_request_if_nobody_could_be_called
    serve
    one, other = clients(2)
    seen = nil
    @inside['look'] = ->(_env) { (seen = there(one).is_a?(String)) && nil }
    @inside['alone'] = ->(_env) { crew.instance_variable_set(:@called, nil) }
    say(one, 'alone')
    say(other, 'look')
    assert_equal(%w[alone look], [one, other].map { |client| read_answer(client) })
    assert_equal true, seen
  end

  def crew
    @server.instance_variable_get(:@crew)
  end

  def test_a_client_that_does_not_wait_for_its_answer_gets_them_in_order
    serve
    one, other = clients(2)
    @inside['other'] = ->(_env) { say(one, 'second') && nil }
    20.times do
      say(one, 'first')
      say(other, 'other')
      assert_equal(%w[first second], Array.new(2) { read_answer(one) })
      assert_equal 'other', read_answer(other)
    end
  end

  def test_an_answer_is_out_before_its_connection_is_closed
    serve
    one, other = clients(2)
    @inside['close'] = lambda do |_env|
      @server.connections.find { |connection| connection.peer_port == one.local_address.ip_port }.close
      nil
    end
    say(one, 'one')
    say(other, 'close')
    assert_equal 'one', read_answer(one)
    assert_nil one.gets
    assert_equal 'close', read_answer(other)
  end

  def test_an_answer_is_out_before_the_application_is_told
    serve
    one, other = clients(2)
    seen = nil
    @inside['told'] = ->(env) { env['rack.response_finished'] << ->(*) { seen = there(one).is_a?(String) } && nil }
    say(one, 'told')
    say(other, 'other')
    assert_equal(%w[told other], [one, other].map { |client| read_answer(client) })
    assert_equal true, seen
  end

  def test_a_forked_child_sends_nobody_the_answers_of_its_parent
    serve
    one, other = clients(2)
    @inside['leave'] = lambda do |_env|
      child = fork do
        crew.instance_variable_get(:@lobby).pause
        exit!(0)
      end
      Process.wait(child)
      nil
    end
    say(one, 'one')
    say(other, 'leave')
    assert_equal(%w[one leave], [one, other].map { |client| read_answer(client) })
    assert_equal 'again', ask(one, 'again')
  end

  # As much as its buffer takes, and what is left when it takes more.
  def test_what_a_client_does_not_take_at_once_is_sent_later
    listener = track(TCPServer.new('127.0.0.1', 0))
    listener.setsockopt(Socket::SOL_SOCKET, Socket::SO_SNDBUF, 4608)
    serve(Polyphony::HTTP::Listener.new(listener))
    @server.define_singleton_method(:port) { listener.local_address.ip_port }
    slow = connect(2048)
    other = connect
    text = 'x' * 1500
    @inside['much'] = ->(_env) { text }
    asked = (1..400).find do
      served = @server.stats.requests
      say(slow, 'much')
      2.times { assert_equal 'other', ask(other, 'other') }
      @server.stats.requests < served + 3 # the answer before waits, and nothing is read meanwhile
    end
    assert asked, 'the client took all'
    asked.times { assert_equal text, cancel_after(patient(10)) { read_answer(slow) } }
    assert_equal 'again', ask(slow, 'again')
  end
end
