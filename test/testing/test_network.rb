# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require 'net/http'

# Sockets in memory: Polyphony::Testing.network.
class TestTestingNetwork < Polyphony::TestCase
  on_every_driver

  def network(**conditions)
    Polyphony::Testing.network(seed: 1, **conditions)
  end

  def virtual(&block)
    Polyphony::Testing.virtual_clock(&block)
  end

  def pair(**conditions)
    network(**conditions).pair
  end

  # --- reading and writing --------------------------------------------------------------------------

  def test_what_is_written_is_read
    left, right = pair
    left << 'one ' << :two
    left.print(' three')
    left.puts(' four', ['five'])
    left.printf("%03d\n", 6)
    assert_equal 'one two three four', right.gets(chomp: true)
    assert_equal "five\n", right.readline
    left.close
    assert_equal "006\n", right.read
    assert_equal '', right.read
    assert_nil right.read(1)
    assert_nil right.gets
    assert right.eof?
    assert_raises(EOFError) { right.readpartial(1) }
    assert_raises(EOFError) { right.readline }
  end

  def test_it_reads_in_every_way_of_an_io
    text = "a\nbb\n\n\nccc,d,\xFF".b
    ways = [
      ->(io) { io.gets }, ->(io) { io.gets('') }, ->(io) { io.gets(',') }, ->(io) { io.gets(nil) }, ->(io) { io.gets(2) },
      ->(io) { io.gets("\n", 1) }, ->(io) { io.each_line.to_a }, ->(io) { io.each_line(chomp: true).to_a }, ->(io) { io.readlines(',') },
      ->(io) { io.read(3) }, ->(io) { io.read(0) }, ->(io) { io.read(100) }, ->(io) { io.getbyte }, ->(io) { io.readpartial(4) },
      ->(io) { io.read(2, buffer = +'x'); buffer }, ->(io) { io.ungetbyte(65); io.gets }, ->(io) { io.gets(0) }, ->(io) { io.gets(chomp: true) }
    ]
    ways.each_with_index do |way, i|
      real, other = socket_pair
      other << text
      other.close
      near, far = pair
      far << text
      far.close
      want, got = way.call(real), way.call(near)
      assert_equal want, got, "way #{i}"
      assert_equal want.encoding, got.encoding, "way #{i}" if want.is_a?(String) && want.size > 0 && i < 9
    end
  end

  def test_a_read_waits_for_the_write
    left, right = pair
    reader = waiting { right.readpartial(10) }
    left << 'now'
    assert_equal 'now', reader.await
  end

  def test_a_cancelled_read_loses_no_bytes
    left, right = pair
    assert_equal :late, move_on_after(0, with_value: :late) { right.read(5) }
    left << 'abc'
    virtual { assert_equal :late, move_on_after(1, with_value: :late) { right.read(5) } }
    left << 'de'
    assert_equal 'abcde', right.read(5)
  end

  def test_a_writer_waits_for_room
    left, right = pair(capacity: 10)
    writer = spin { left.write('x' * 25) }
    snooze
    assert_equal :waiting, writer.state
    assert_equal 'x' * 10, right.readpartial(100)
    assert_equal 'x' * 15, right.read(15)
    assert_equal 25, writer.await
    left << 'y' * 10
    assert_equal :wait_writable, left.write_nonblock('z', exception: false)
    assert_raises(IO::EAGAINWaitWritable) { left.write_nonblock('z') }
    assert_nil left.wait_writable(0)
    right.read(10)
    assert_same left, left.wait_writable(0)
  end

  def test_without_waiting_there_is_a_word_for_it
    left, right = pair
    assert_equal :wait_readable, right.read_nonblock(1, exception: false)
    assert_raises(IO::EAGAINWaitReadable) { right.read_nonblock(1) }
    assert_nil right.wait_readable(0)
    left << 'ab'
    assert_same right, right.wait_readable
    assert_equal 'a', right.read_nonblock(1)
    assert_equal 'b', right.read_nonblock(9)
    left.close
    assert_nil right.read_nonblock(1, exception: false)
    assert_raises(EOFError) { right.read_nonblock(1) }
    assert_equal '', right.recv(1)
  end

  def test_half_a_connection_can_be_closed
    left, right = pair
    left << 'question'
    left.close_write
    assert_equal 'question', right.read
    right << 'answer'
    right.close
    assert_equal 'answer', left.read
    refute left.closed?
    assert_raises(IOError) { left.write('x') }
    left.close
    assert left.closed?
    assert_raises(IOError) { left.read }
  end

  def test_writing_to_one_who_has_gone_is_a_broken_pipe
    left, right = pair
    right.close
    assert_raises(Errno::EPIPE) { left.write('x') }
  end

  def test_closing_ends_the_wait_of_another_fiber
    left, right = pair
    reader = waiting { right.readpartial(1) }
    left.close
    assert_kind_of EOFError, reader.await
  end

  def test_threads_may_have_the_ends
    left, right = pair(capacity: 100)
    thread = Thread.new { left.write('x' * 10_000); left.close }
    assert_equal 10_000, right.read.size
    thread.join
  end

  # --- conditions -----------------------------------------------------------------------------------

  def test_latency_is_there_and_back
    virtual do |clock|
      left, right = pair(latency: 2)
      spin { right << right.gets }
      left.puts 'hello'
      assert_nil left.wait_readable(3.5)
      assert_equal "hello\n", left.gets
      assert_equal 4, clock.elapsed
    end
  end

  def test_chunks_arrive_by_themselves
    left, right = pair(chunk: 3)
    left << 'abcdefgh'
    assert_equal 'abcdefgh', right.readpartial(100)
    left, right = pair(chunk: 3, latency: 1..2)
    got = []
    virtual do
      left << 'abcdefgh'
      left.close
      got << right.readpartial(100) until right.eof?
    end
    assert_equal 'abcdefgh', got.join
    assert_operator got.size, :>, 1
  end

  def test_what_is_lost_comes_late_and_in_order
    virtual do |clock|
      left, right = pair(loss: 0.5, chunk: 1, latency: 0.1, retransmit: 3)
      left << 'abcdefghij'
      assert_equal 'abcdefghij', right.read(10)
      assert_in_delta 3.1, clock.elapsed, 0.0001
      assert_operator left.network.counts[:lost], :>, 0
    end
  end

  def test_writes_may_be_short
    left, right = pair(short_write: 1)
    count = left.syswrite('abcdef')
    assert_includes 1..5, count
    assert_includes 1..5, left.write_nonblock('abcdef')
    assert_equal 6, left.write('ABCDEF')
    left.close
    assert_match(/\Aa.*ABCDEF\z/, right.read)
    assert_equal 2, left.network.counts[:short_writes]
  end

  def test_a_reset_reaches_both
    left, right = pair(latency: 1)
    virtual do
      left << 'last words'
      left.reset
      assert_equal 'last words', right.readpartial(20)
      assert_raises(Errno::ECONNRESET) { right.readpartial(20) }
      assert_raises(EOFError) { right.readpartial(20) }
      assert_raises(Errno::ECONNRESET, Errno::EPIPE) { right.write('x') }
      assert left.closed?
    end
  end

  def test_connections_are_reset_by_chance
    net = network(reset: 0.2, chunk: 1)
    outcomes = Array.new(20) do
      left, right = net.pair
      spin { outcome { left << 'abcde'; left.close } }
      outcome { right.read }.class
    end
    assert_equal [Errno::ECONNRESET, String], outcomes.uniq.sort_by(&:name)
    assert_equal outcomes.count(Errno::ECONNRESET), net.counts[:resets]
  end

  # Whose piece it was hears of it when it reads, not only when it writes again: the other end may say nothing.
  def test_a_reset_by_chance_reaches_both
    left, right = pair(reset: 1, latency: 1)
    virtual do |clock|
      left << 'x'
      assert_raises(Errno::ECONNRESET) { left.readpartial(20) }
      assert_raises(Errno::ECONNRESET) { right.readpartial(20) }
      assert_in_delta 1, clock.elapsed
      [left, right].each { |one| assert_raises(Errno::ECONNRESET) { one << 'y' } }
      assert_equal 1, left.network.counts[:resets]
    end
  end

  def test_a_reset_reaches_a_writer_that_waits_for_room
    left, right = pair(capacity: 2)
    writer = spin { outcome { left.write('abcdef') } }
    snooze
    right.reset
    assert_kind_of Errno::ECONNRESET, writer.await
    left, = pair(capacity: 2)
    writer = spin { outcome { left.write('abcdef') } }
    snooze
    left.close
    assert_kind_of IOError, writer.await
  end

  def test_the_same_seed_is_the_same_network
    run = lambda do |seed|
      virtual do |clock|
        left, right = Polyphony::Testing.network(seed: seed, latency: 0.1..0.9, chunk: 1..5, loss: 0.3).pair
        log = []
        spin { 20.times { |i| left << "message #{i};"; sleep 0.1 }; left.close }
        log << [right.readpartial(100), clock.elapsed] until right.eof?
        log
      end
    end
    assert_equal run.call(5), run.call(5)
    refute_equal run.call(5), run.call(6)
    assert_equal run.call(5).map(&:first).join, run.call(6).map(&:first).join
  end

  def test_conditions_can_change_and_are_checked
    net = network
    net.conditions.set(latency: 3)
    virtual do |clock|
      left, right = net.pair
      left << 'x'
      right.readpartial(1)
      assert_equal 3, clock.elapsed
    end
    { latency: -1, chunk: 0, loss: 2, capacity: 0, reset: 'often', retransmit: nil }.each do |name, value|
      error = assert_raises(ArgumentError) { network(name => value) }
      assert_match(/#{name}.*#{Regexp.escape(value.inspect)}/, error.message)
    end
    assert_match(/latency, chunk.* no speed/, assert_raises(ArgumentError) { net.conditions.set(speed: 1) }.message)
  end

  # --- servers --------------------------------------------------------------------------------------

  def test_clients_find_servers_by_name
    net = network
    server = net.listen('echo.test', 7)
    spin { server.accept_loop { |socket| spin { socket << socket.readpartial(10) until socket.eof?; socket.close } } }
    clients = Array.new(3) { net.connect('echo.test', 7) }
    clients.each_with_index { |client, i| client << "hi #{i}" }
    assert_equal ['hi 0', 'hi 1', 'hi 2'], clients.map { |client| client.readpartial(10) }
    assert_equal ['AF_INET', 7, 'echo.test', 'echo.test'], clients.first.peeraddr
    clients.each(&:close)
    server.close
    error = assert_raises(Errno::ECONNREFUSED) { net.connect('echo.test', 7) }
    assert_match(/echo.test:7/, error.message)
  end

  def test_a_listener_is_alone_and_has_a_backlog
    net = network
    server = net.listen('a.test', 1, backlog: 1)
    assert_raises(Errno::EADDRINUSE) { net.listen('a.test', 1) }
    client = net.connect('a.test', 1)
    assert_raises(Errno::ECONNREFUSED) { net.connect('a.test', 1) }
    server.close
    assert_raises(Errno::ECONNRESET) { client.readpartial(1) }
    assert_raises(IOError) { server.accept }
    net.listen('a.test', 1)
  end

  def test_closing_a_listener_ends_an_accept
    server = network.listen('a.test', 1)
    fiber = waiting { server.accept }
    server.close
    assert_kind_of IOError, fiber.await
    assert_equal :wait_readable, network.listen('b.test', 1).accept_nonblock(exception: false)
  end

  def answer(socket)
    while (line = socket.gets)
      nil until socket.gets == "\r\n"
      body = line.split[1]
      socket << "HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\n\r\n#{body}"
    end
  end

  def test_net_http_runs_over_it
    net = network(latency: 0.05, chunk: 1..10, loss: 0.1)
    virtual do |clock|
      server = net.listen('api.test', 80)
      spin { server.accept_loop { |socket| spin { answer(socket) } } }
      net.stand_in do
        Net::HTTP.start('api.test', 80) { |http| 3.times { |i| assert_equal "/#{i}", http.get("/#{i}").body } }
        assert_operator clock.elapsed, :>, 0.4
        net.conditions.set(latency: 100)
        error = assert_raises(Net::OpenTimeout, Errno::ETIMEDOUT) { Net::HTTP.start('api.test', 80, open_timeout: 10) }
        assert_match(/api.test:80/, error.message)
      end
    end
  end

  def test_other_hosts_stay_real
    server = track(TCPServer.new('127.0.0.1', 0))
    network.stand_in { track(TCPSocket.new('127.0.0.1', server.local_address.ip_port)).close }
    assert_raises(Errno::ECONNREFUSED, SocketError) { TCPSocket.new('127.0.0.1', 1) }
  end

  # --- datagrams ------------------------------------------------------------------------------------

  def test_datagrams_are_lost_and_overtake_each_other
    net = network(loss: 0.3, latency: 0.1..5)
    virtual do
      from, to = net.datagram('a.test', 1), net.datagram('b.test', 2)
      100.times { |i| assert_equal i.to_s.size, from.send(i.to_s, 0, 'b.test', 2) }
      got = []
      while (message, sender = to.recvfrom(10, timeout: 6)) do got << message.to_i end
      assert_nil sender
      assert_equal 100 - net.counts[:lost], got.size
      assert_includes 10..60, net.counts[:lost]
      refute_equal got.sort, got
      assert_equal got.uniq.size, got.size
    end
  end

  def test_datagrams_know_their_sender_and_go_nowhere_without_a_receiver
    net = network
    one, other = net.datagram('a.test', 1), net.datagram('b.test', 2)
    one.send('hello', 0, 'b.test', 2)
    assert_equal ['hel', ['AF_INET', 1, 'a.test', 'a.test']], other.recvfrom(3)
    assert_equal 5, one.send('hello', 0, 'nobody.test', 2)
    fiber = waiting { other.recv(1) }
    other.close
    assert_kind_of IOError, fiber.await
    assert_raises(Errno::EADDRINUSE) { net.datagram('a.test', 1) }
  end
end
