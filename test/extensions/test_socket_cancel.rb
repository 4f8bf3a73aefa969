# frozen_string_literal: true

require 'test_helper'
require 'io/nonblock'
require 'tmpdir'

# A stock method of a socket that is ended at any point where it waits: nothing that came is lost, nothing
# is left open.
class TestSocketCancel < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  def listener
    track(TCPServer.new('127.0.0.1', 0))
  end

  def connect_to(server)
    track(TCPSocket.new('127.0.0.1', server.addr[1]))
  end

  # All bytes that come, however they are read, are those that were sent.
  def assert_no_byte_lost(pair, &receive)
    cancel_everywhere do |run|
      left, right = pair.call
      got = +''
      run.scenario { nil until (got << (part = receive.call(left).to_s)) && part.empty? }
      run.beside { %w[one two three].each { |word| right.write(word); snooze }; right.close }
      run.check do
        got << left.read
        assert_equal 'onetwothree', got
        left.close
      end
    end
  end

  def blocking_pair
    socket_pair.each { |socket| socket.nonblock = false }
  end

  def test_recv
    assert_no_byte_lost(-> { socket_pair }) { |socket| socket.recv(4) }
    assert_no_byte_lost(-> { tcp_pair }) { |socket| socket.recv(4) }
  end

  def test_recv_in_blocking_mode
    assert_no_byte_lost(-> { blocking_pair }) { |socket| socket.recv(4) }
  end

  def test_recv_of_all
    assert_no_byte_lost(-> { blocking_pair }) { |socket| socket.recv(4, Socket::MSG_WAITALL) }
  end

  def test_recvfrom_of_all
    assert_no_byte_lost(-> { blocking_pair }) { |socket| socket.recvfrom(4, Socket::MSG_WAITALL)&.first }
  end

  def test_recvmsg
    assert_no_byte_lost(-> { blocking_pair }) { |socket| socket.recvmsg(4)&.first }
    assert_no_byte_lost(-> { socket_pair }) { |socket| socket.recvmsg&.first }
  end

  def test_recv_and_then_recv_nonblock
    cancel_everywhere do |run|
      left, right = socket_pair
      got = +''
      run.scenario { got << left.recv(3) }
      run.beside { right.write('hello') }
      run.check do
        got << left.recv_nonblock(2) << left.read_nonblock(1) while got.size < 5
        assert_equal 'hello', got[0, 5]
      rescue IO::WaitReadable
        assert_equal 'hello', got
      ensure
        left.close
        right.close
      end
    end
  end

  def test_datagrams
    cancel_everywhere do |run|
      left, right = track(*UNIXSocket.pair(:DGRAM))
      got = []
      run.scenario { 3.times { got << left.recv(10) } }
      run.beside { %w[one two three].each { |word| right.send(word, 0); snooze } }
      run.check do
        got << left.recv_nonblock(10) while got.size < 3
        assert_equal %w[one two three], got
        left.close
        right.close
      end
    end
  end

  def test_udp
    cancel_everywhere do |run|
      left = track(UDPSocket.new.tap { |socket| socket.bind('127.0.0.1', 0) })
      right = track(UDPSocket.new)
      got = []
      run.scenario { 2.times { got << left.recvfrom(10).first } }
      run.beside { %w[one two].each { |word| right.send(word, 0, '127.0.0.1', left.addr[1]); snooze } }
      run.check do
        got << left.recvfrom(10).first while got.size < 2
        assert_equal %w[one two], got
        left.close
        right.close
      end
    end
  end

  # Every connection is accepted exactly once, by whichever method.
  def assert_no_connection_lost(server_of, connect, accept, accept_rest)
    cancel_everywhere do |run|
      server = server_of.call
      accepted = []
      clients = []
      run.scenario { 2.times { accepted << track(*accept.call(server)) } }
      run.beside { 2.times { |i| clients << track(connect.call(server)).tap { |client| client.write(i.to_s) }; snooze } }
      run.check do
        accepted << track(*accept_rest.call(server)) while accepted.size < 2
        assert_equal %w[0 1], accepted.map { |socket, _| socket.readpartial(1) }.sort
        assert_raises(IO::WaitReadable) { server.accept_nonblock }
        [server, *clients, *accepted.map { |socket, _| socket }].each(&:close)
      end
    end
  end

  def test_accept
    assert_no_connection_lost(-> { listener }, ->(server) { connect_to(server) }, ->(server) { [server.accept] },
                              ->(server) { [server.accept_nonblock] })
  end

  def test_accept_and_then_wait_readable
    assert_no_connection_lost(-> { listener }, ->(server) { connect_to(server) }, ->(server) { [server.accept] },
                              ->(server) { [server.wait_readable.accept_nonblock] })
  end

  def test_sysaccept
    assert_no_connection_lost(-> { listener }, ->(server) { connect_to(server) },
                              ->(server) { [TCPSocket.for_fd(server.sysaccept)] }, ->(server) { [server.accept] })
  end

  def test_accept_of_socket
    assert_no_connection_lost(-> { track(Addrinfo.tcp('127.0.0.1', 0).listen) },
                              ->(server) { server.connect_address.connect },
                              ->(server) { [server.accept.first] }, ->(server) { [server.accept_nonblock.first] })
  end

  # What one method has accepted too late is another one's.
  def test_a_kept_connection_is_found_by_those_who_wait
    cancel_everywhere do |run|
      server = track(Addrinfo.tcp('127.0.0.1', 0).listen)
      client = accepted = nil
      run.scenario { accepted ||= track(Polyphony.backend_accept(server, Socket)) }
      run.beside { client = track(server.connect_address.connect) }
      run.check do
        accepted ||= track(server.accept.first)
        client.write('x')
        assert_equal 'x', accepted.readpartial(1)
        [server, client, accepted].each(&:close)
      end
    end
  end

  # A descriptor arrives, or can be received later, or is closed: the test counts them in the end.
  def test_recv_io
    [true, false].each do |mode|
      cancel_everywhere do |run|
        left, right = socket_pair
        reader, writer = pipe_pair
        left.nonblock = mode
        got = nil
        run.scenario { got = track(left.recv_io) }
        run.beside { snooze; right.send_io(reader) }
        run.check do
          got ||= track(left.recv_io)
          writer << 'x'
          assert_equal 'x', got.readpartial(1)
          [left, right, reader, writer, got].each(&:close)
        end
      end
    end
  end

  def test_recvmsg_with_descriptors
    cancel_everywhere do |run|
      left, right = socket_pair
      got = nil
      run.scenario { got = left.recvmsg(scm_rights: true) }
      run.beside { snooze; right.sendmsg('x', 0, nil, Socket::AncillaryData.unix_rights($stdin)) }
      run.check do
        got ||= left.recvmsg(scm_rights: true)
        track(*got[3].unix_rights).close
        [left, right].each(&:close)
      end
    end
  end

  # Whoever sends knows how much was sent.
  def test_send
    cancel_everywhere do |run|
      left, right = socket_pair
      left.setsockopt(:SOCKET, :SNDBUF, 4096)
      reader = spin { right.read }
      sent = +''
      run.scenario { 20.times { |i| sent << (text = (i % 10).to_s * 2000)[0, left.send(text, 0)] } }
      run.check do
        left.close
        assert_equal sent, reader.await
        right.close
      end
    end
  end

  # A stopped client leaves nothing open.
  def test_connecting
    server = listener
    cancel_everywhere do |run|
      client = nil
      run.scenario { client = TCPSocket.new('localhost', server.addr[1]) }
      run.check do
        client&.close
        while (socket = server.accept_nonblock(exception: false)) != :wait_readable
          socket.close
        end
      end
    end
  end

  def test_connecting_to_a_full_queue
    Dir.mktmpdir do |folder|
      cancel_everywhere do |run|
        place = "#{folder}/#{run.object_id}"
        server = track(UNIXServer.new(place))
        server.listen(0)
        first = track(UNIXSocket.new(place))
        second = nil
        run.scenario { second = track(UNIXSocket.new(place)) }
        run.beside { 3.times { snooze }; server.accept.close }
        run.check { [server, first, second].compact.each(&:close) }
      end
    end
  end

  # Stopped or not, it is closed, and what was written arrives.
  def test_a_lingering_close
    cancel_everywhere do |run|
      left, right = tcp_pair
      left.setsockopt(Socket::Option.linger(true, 60))
      left.write('x' * 300_000)
      reader = spin { right.read }
      run.scenario { left.close }
      run.check do
        left.close
        assert_equal 300_000, reader.await.size
        right.close
      end
    end
  end
end
