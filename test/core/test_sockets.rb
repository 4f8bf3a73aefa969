# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require 'fcntl'
require 'tmpdir'

# What the tests of sockets share.
module SocketHelpers
  def fd_folder
    File.directory?('/proc/self/fd') ? '/proc/self/fd' : '/dev/fd'
  end

  def listener
    track(TCPServer.new('127.0.0.1', 0))
  end

  def port_of(server)
    server.local_address.ip_port
  end

  # Without waiting: the kernel answers for the listener.
  def client_of(server)
    socket = Socket.new(:INET, :STREAM)
    socket.connect_nonblock(server.local_address)
    track(socket)
  rescue IO::WaitWritable
    track(socket)
  end

  def ports(sockets)
    sockets.map { |socket| socket.remote_address.ip_port }
  end

  def own_ports(sockets)
    sockets.map { |socket| socket.local_address.ip_port }
  end

  def receive_all(socket, length)
    spin do
      received = String.new
      received << Polyphony.backend_recv(socket, String.new, 1 << 16, 0) while received.size < length
      received
    end
  end
end

class TestSend < Polyphony::TestCase
  include SocketHelpers
  on_every_driver

  def test_send_sends_all_and_returns_the_bytes
    left, right = socket_pair
    text = Random.new(1).bytes(2_000_000)
    reader = receive_all(right, text.size)
    assert_equal text.size, Polyphony.backend_send(left, text, 0)
    assert_equal text, reader.await
  end

  def test_send_of_nothing_sends_nothing_but_is_a_switchpoint
    left, = socket_pair
    turns = 0
    spin { turns += 1 }
    assert_equal 0, Polyphony.backend_send(left, '', 0)
    assert_equal 1, turns
  end

  def test_a_text_changed_while_it_is_sent_goes_out_as_it_was
    left, right = socket_pair
    text = 'a' * 1_000_000
    sender = spin { Polyphony.backend_send(left, text, 0) }
    snooze
    text.replace('b' * 1_000_000)
    assert_equal 'a' * 1_000_000, receive_all(right, 1_000_000).await
    assert_equal 1_000_000, sender.await
  end

  # See decision 191.
  def test_a_few_bytes_changed_while_they_are_sent_go_out_as_they_were
    [1, 24, 168, 169].each do |length|
      left, right = socket_pair
      filled = 0
      while (count = left.sendmsg_nonblock('x' * 4096, exception: false)) != :wait_writable do filled += count end
      text = +('a' * length)
      sender = spin { Polyphony.backend_send(left, text, 0) }
      snooze
      text.replace('b' * length)
      GC.start
      assert_equal 'x' * filled + 'a' * length, receive_all(right, filled + length).await
      assert_equal length, sender.await
    end
  end

  def test_a_closed_socket_is_not_sent_to_by_its_number
    left, = socket_pair
    left.close
    assert_raises(IOError) { Polyphony.backend_send(left, 'text', 0) }
    other, = socket_pair
    closing = Object.new
    closing.define_singleton_method(:to_s) { other.close; 'text' }
    assert_raises(IOError) { Polyphony.backend_send(other, closing, 0) }
  end

  def test_sendv_joins_what_has_different_encodings
    left, right = socket_pair
    assert_equal 5, Polyphony.backend_sendv(left, ["\u00e9", "\xff".b, :ab], 0)
    assert_equal "\xC3\xA9\xFFab".b, Polyphony.backend_recv(right, String.new, 10, 0)
  end

  def test_sendv_takes_an_array_only
    left, = socket_pair
    assert_raises(TypeError) { Polyphony.backend_sendv(left, 'text', 0) }
  end

  def test_an_io_buffer_is_sent_and_unlocked
    left, right = socket_pair
    buffer = without_announcement { IO::Buffer.for('bytes') }
    assert_equal 5, Polyphony.backend_send(left, buffer, 0)
    assert_equal 'bytes', Polyphony.backend_recv(right, +'', 10, 0)
    refute buffer.locked?
  end

  def test_sending_to_a_peer_that_is_gone_is_epipe
    left, right = socket_pair
    right.close
    assert_raises(Errno::EPIPE) { Polyphony.backend_send(left, 'text', 0) }
  end

  def test_sending_on_a_connection_that_was_reset_is_an_error
    client, server = tcp_pair
    server.setsockopt(Socket::Option.linger(true, 0))
    server.close
    error = assert_raises(Errno::ECONNRESET, Errno::EPIPE) do
      3.times { Polyphony.backend_send(client, 'text', 0) }
    end
    assert_match(/send/, error.message)
  end

  def test_sending_through_what_is_no_socket_is_an_error
    _, writer = pipe_pair
    assert_raises(Errno::ENOTSOCK) { Polyphony.backend_send(writer, 'text', 0) }
    assert_raises(Errno::EBADF) { Polyphony.backend_send(1_000_000, 'text', 0) }
    writer.close
    assert_raises(IOError) { Polyphony.backend_send(writer, 'text', 0) }
  end

  def test_closing_ends_a_waiting_send_with_io_error
    left, = socket_pair
    sender = waiting { Polyphony.backend_send(left, 'a' * 5_000_000, 0) }
    Polyphony.backend_close(left)
    assert_kind_of IOError, sender.await
  end
end

class TestMessages < Polyphony::TestCase
  include SocketHelpers
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  def udp
    socket = UDPSocket.new
    socket.bind('127.0.0.1', 0)
    track(socket)
  end

  def receive(socket, maxlen = 100, flags: 0, buffer: +'', pos: 0)
    Polyphony.backend_recvmsg(socket, buffer, maxlen, pos, flags, 0, nil)
  end

  def test_a_message_comes_with_the_address_it_came_from
    here = udp
    there = udp
    receiver = spin { receive(here) }
    snooze
    assert_equal 4, Polyphony.backend_sendmsg(there, 'text', 0, here.connect_address, nil)
    text, address, flags = receiver.await
    assert_equal ['text', ['AF_INET', there.addr[1], '127.0.0.1', '127.0.0.1'], 0], [text, address, flags]
  end

  def test_a_destination_may_be_packed
    here = udp
    there = udp
    Polyphony.backend_sendmsg(there, 'text', 0, here.connect_address.to_sockaddr, nil)
    assert_equal 'text', receive(here).first
  end

  def test_each_receive_takes_one_datagram
    here = udp
    there = udp
    %w[one two].each { |text| Polyphony.backend_sendmsg(there, text, 0, here.connect_address, nil) }
    assert_equal %w[one two], [receive(here).first, receive(here).first]
  end

  def test_an_empty_datagram_is_no_end
    left, right = track(*UNIXSocket.pair(:DGRAM))
    Polyphony.backend_sendmsg(left, '', 0, nil, nil)
    assert_equal ['', nil, 0], receive(right)
  end

  def test_a_datagram_that_is_too_long_is_cut_and_says_so
    left, right = track(*UNIXSocket.pair(:DGRAM))
    Polyphony.backend_sendmsg(left, 'text', 0, nil, nil)
    assert_equal ['te', nil, Socket::MSG_TRUNC], receive(right, 2)
  end

  def test_a_unix_address_is_a_path
    Dir.mktmpdir do |folder|
      here, there = [1, 2].map do |i|
        socket = track(Socket.new(:UNIX, :DGRAM))
        socket.bind(Addrinfo.unix("#{folder}/#{i}", :DGRAM))
        socket
      end
      Polyphony.backend_sendmsg(there, 'text', 0, here.local_address, nil)
      assert_equal ['AF_UNIX', "#{folder}/2"], receive(here)[1]
    end
  end

  def test_the_end_of_a_stream_is_nil
    left, right = socket_pair
    left.close
    assert_nil receive(right)
  end

  def test_a_message_goes_to_its_position_in_the_buffer
    left, right = socket_pair
    Polyphony.backend_send(left, 'text', 0)
    buffer = +'before behind'
    assert_equal 'before text', receive(right, buffer: buffer, pos: 7).first
    assert_equal 'before text', buffer
  end

  def test_what_a_cancelled_read_had_taken_comes_first
    left, right = socket_pair
    cancel_everywhere do |run|
      run.scenario do
        text = Polyphony.backend_recv(right, +'', 2, 0)
        Polyphony.backend_send(left, text, 0)
      end
      run.beside { Polyphony.backend_send(left, 'ab', 0) }
      run.check { assert_equal 'ab', receive(right).first }
    end
  end

  def test_a_cancelled_receive_loses_no_datagram
    left, right = track(*UNIXSocket.pair(:DGRAM))
    cancel_everywhere do |run|
      got = []
      run.scenario { 2.times { got << receive(right).first } }
      run.beside { %w[one two].each { |text| Polyphony.backend_sendmsg(left, text, 0, nil, nil); snooze } }
      run.check do
        got << receive(right).first while got.size < 2
        assert_equal %w[one two], got
      end
    end
  end

  def test_descriptors_that_nobody_asked_for_are_not_kept
    left, right = socket_pair
    rights = Socket::AncillaryData.unix_rights($stdout)
    Polyphony.backend_sendmsg(left, 'text', 0, nil, [rights])
    before = Dir.children(fd_folder).size
    text, _, flags = receive(right)
    assert_equal ['text', Socket::MSG_CTRUNC], [text, flags & Socket::MSG_CTRUNC]
    assert_equal before, Dir.children(fd_folder).size
  end

  def test_control_data_is_sent_along
    left, right = socket_pair
    control = [Socket::SOL_SOCKET, Socket::SCM_RIGHTS, [1].pack('i')]
    Polyphony.backend_sendmsg(left, 'text', 0, nil, [control])
    text, _, _, sent = right.recvmsg(scm_rights: true)
    assert_equal 'text', text
    assert_equal 1, track(*sent.unix_rights).then { |io| [io].flatten.size }
  end

  def test_control_data_that_makes_no_sense_is_refused
    left, = socket_pair
    [[[1]], [['a', 2, '']], [:rights]].each do |controls|
      assert_raises(ArgumentError) { Polyphony.backend_sendmsg(left, 'text', 0, nil, controls) }
    end
  end

  def test_a_long_message_on_a_stream_is_sent_whole
    left, right = socket_pair
    text = Random.new(2).bytes(1_000_000)
    reader = receive_all(right, text.size)
    assert_equal text.size, Polyphony.backend_sendmsg(left, text, 0, nil, nil)
    assert_equal text, reader.await
  end

  def test_not_to_wait_is_a_wish_that_is_granted
    _, right = socket_pair
    assert_raises(Errno::EAGAIN) { receive(right, flags: Socket::MSG_DONTWAIT) }
  end

  def test_an_io_buffer_is_filled_and_unlocked
    left, right = socket_pair
    Polyphony.backend_send(left, 'text', 0)
    buffer = without_announcement { IO::Buffer.new(3) }
    assert_equal 3, receive(right, buffer: buffer).first
    assert_equal 'tex', buffer.get_string
    refute buffer.locked?
  end

  def test_closing_ends_a_waiting_receive_with_io_error
    _, right = socket_pair
    receiver = waiting { receive(right) }
    Polyphony.backend_close(right)
    assert_kind_of IOError, receiver.await
  end

  def test_closing_ends_a_waiting_sendmsg_with_io_error
    left, = socket_pair
    sender = waiting { Polyphony.backend_sendmsg(left, 'a' * 5_000_000, 0, nil, nil) }
    Polyphony.backend_close(left)
    assert_kind_of IOError, sender.await
  end

  def test_errors_of_the_socket_are_raised
    left, right = socket_pair
    right.close
    assert_raises(Errno::EPIPE) { Polyphony.backend_sendmsg(left, 'text', 0, nil, nil) }
    reader, = pipe_pair
    assert_raises(Errno::ENOTSOCK) { receive(reader) }
    assert_raises(IOError) { receive(right) }
  end

  def test_a_refused_datagram_is_an_error_at_the_next_call
    here = udp
    there = udp
    here.connect('127.0.0.1', there.addr[1])
    there.close
    Polyphony.backend_sendmsg(here, 'text', 0, nil, nil)
    assert_raises(Errno::ECONNREFUSED) { receive(here) }
  end
end

class TestAccept < Polyphony::TestCase
  include SocketHelpers
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  def accept(server, klass = TCPSocket)
    track(Polyphony.backend_accept(server, klass))
  end

  def test_a_socket_is_as_stock_accept_makes_it
    server = listener
    client_of(server)
    stock = track(server.accept_nonblock)
    client_of(server)
    ours = accept(server)
    assert_equal traits(stock), traits(ours)
  end

  def traits(socket)
    [socket.class, socket.sync, socket.binmode?, socket.close_on_exec?,
     socket.do_not_reverse_lookup, socket.fcntl(Fcntl::F_GETFL)]
  end

  def test_a_plain_io_will_do
    server = listener
    client_of(server)
    socket = accept(server, IO)
    assert_equal [IO, true], [socket.class, socket.sync]
  end

  def test_unix_servers_and_numbers_will_do
    Dir.mktmpdir do |folder|
      server = track(UNIXServer.new("#{folder}/socket"))
      2.times { track(UNIXSocket.new("#{folder}/socket")) }
      assert_kind_of UNIXSocket, accept(server, UNIXSocket)
      assert_kind_of UNIXSocket, accept(server.fileno, UNIXSocket)
    end
  end

  def test_accept_waits_while_others_run
    server = listener
    accepted = spin { accept(server) }
    snooze until accepted.state == :waiting
    client = client_of(server)
    assert_equal own_ports([client]), ports([accepted.await])
  end

  def test_who_waits_longest_is_not_forgotten
    server = listener
    fibers = Array.new(5) { spin { accept(server) } }
    clients = Array.new(5) { client_of(server) }
    assert_equal own_ports(clients).sort, ports(fibers.map(&:await)).sort
  end

  # A connection that the kernel hands over while the accept is being cancelled is kept.
  def test_a_cancelled_accept_loses_no_connection
    server = listener
    cancel_everywhere do |run|
      got = []
      clients = []
      run.scenario { 2.times { got << accept(server) } }
      run.beside { 2.times { clients << client_of(server); 2.times { snooze } } }
      run.check do
        got << accept(server) while got.size < 2
        assert_equal own_ports(clients).sort, ports(got).sort
      end
    end
  end

  def test_a_cancelled_accept_passes_its_connection_to_another_who_waits
    server = listener
    cancel_everywhere do |run|
      got = []
      run.scenario { got << accept(server) }
      other = nil
      run.beside { other = accept(server) }
      run.beside { 2.times { client_of(server); snooze } }
      run.check do
        assert other
        got << accept(server) while got.empty?
      end
    end
  end

  def test_what_is_no_listener_is_an_error
    left, = socket_pair
    reader, = pipe_pair
    assert_raises(Errno::EINVAL) { Polyphony.backend_accept(left, UNIXSocket) }
    assert_raises(Errno::ENOTSOCK, Errno::EINVAL) { Polyphony.backend_accept(reader, UNIXSocket) }
    assert_raises(Errno::EBADF) { Polyphony.backend_accept(1_000_000, UNIXSocket) }
  end

  def test_a_closed_server_is_an_io_error
    server = listener
    server.close
    assert_raises(IOError) { Polyphony.backend_accept(server, TCPSocket) }
  end

  def test_closing_ends_a_waiting_accept_with_io_error
    server = listener
    accepted = waiting { accept(server) }
    Polyphony.backend_close(server)
    assert_kind_of IOError, accepted.await
  end

  # The harness counts descriptors.
  def test_a_socket_that_cannot_be_wrapped_is_closed
    server = listener
    client_of(server)
    broken = Class.new(TCPSocket) { def self.for_fd(_fd) = raise('broken') }
    assert_equal 'broken', assert_raises(RuntimeError) { Polyphony.backend_accept(server, broken) }.message
  end
end

class TestAcceptLoop < Polyphony::TestCase
  include SocketHelpers
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  def accept_loop(server, &block)
    Polyphony.backend_accept_loop(server, TCPSocket) do |socket|
      track(socket)
      block.call(socket)
    end
  end

  def take(server, count)
    taken = []
    accept_loop(server) do |socket|
      taken << socket
      break taken if taken.size == count
    end
  end

  def test_each_connection_is_yielded_once
    server = listener
    clients = Array.new(20) { client_of(server) }
    assert_equal own_ports(clients).sort, ports(take(server, 20)).sort
  end

  def test_connections_that_come_later_are_yielded
    server = listener
    taken = spin { take(server, 10) }
    clients = Array.new(10) { 2.times { snooze }; client_of(server) }
    assert_equal own_ports(clients).sort, ports(taken.await).sort
  end

  def test_what_a_loop_did_not_come_to_is_there_for_the_next_who_accepts
    server = listener
    clients = Array.new(6) { client_of(server) }
    taken = take(server, 2) + take(server, 2)
    2.times { taken << track(Polyphony.backend_accept(server, TCPSocket)) }
    assert_equal own_ports(clients).sort, ports(taken).sort
  end

  # The harness counts descriptors.
  def test_what_a_loop_did_not_come_to_is_closed_with_the_server
    server = listener
    clients = Array.new(6) { client_of(server) }
    take(server, 1)
    Polyphony.backend_close(server)
    clients.drop(1).each { |client| assert_peer_gone(client) }
  end

  def assert_peer_gone(client)
    assert_nil Polyphony.backend_recv(client, +'', 1, 0)
  rescue Errno::ECONNRESET
    pass
  end

  def test_every_socket_is_a_switchpoint
    server = listener
    20.times { client_of(server) }
    turns = 0
    other = spin { loop { turns += 1; snooze } }
    take(server, 20)
    other.stop
    assert_operator turns, :>=, 19
  end

  def test_a_cancelled_loop_loses_no_connection
    server = listener
    cancel_everywhere do |run|
      got = []
      clients = []
      run.scenario { accept_loop(server) { |socket| got << socket; break if got.size == 3 } }
      run.beside { 3.times { clients << client_of(server); 2.times { snooze } } }
      run.check do
        got.concat(take(server, 3 - got.size)) if got.size < 3
        assert_equal own_ports(clients).sort, ports(got).sort
        assert_equal 0, Thread.current.backend.stats[:pending_ops]
      end
    end
  end

  def test_whatever_leaves_the_block_ends_the_loop
    server = listener
    2.times { client_of(server) }
    assert_equal 'out', assert_raises(RuntimeError) { accept_loop(server) { raise 'out' } }.message
    assert_equal :out, catch(:tag) { accept_loop(server) { throw :tag, :out } }
    assert_equal 0, Thread.current.backend.stats[:pending_ops]
  end

  def test_waiting_in_the_block_is_not_disturbed_by_the_next_connection
    server = listener
    woken = Polyphony::Event.new
    order = []
    taker = spin do
      accept_loop(server) do |socket|
        order << :block
        order << woken.await
        break socket
      end
    end
    client_of(server)
    snooze until order == [:block]
    3.times { client_of(server); snooze }
    assert_equal [:block], order
    woken.signal(:signal)
    taker.await
    assert_equal %i[block signal], order
  end

  # Who is busy with a socket must not sit on those of others.
  def test_loops_on_the_same_server_share_its_connections
    server = listener
    gate = Polyphony::WaitList.new
    busy = []
    workers = Array.new(4) { |i| spin { accept_loop(server) { |_| busy << i; gate.park } } }
    4.times { client_of(server) }
    snooze until busy.size == 4
    assert_equal [0, 1, 2, 3], busy.sort
    workers.each(&:stop)
    workers.each(&:await)
  end

  def test_a_loop_may_take_several_before_others_run
    server = listener
    clients = Array.new(20) { track(Socket.new(:INET, :STREAM)) }
    clients.each { |client| client.connect_nonblock(server.local_address, exception: false) }
    turns = [0]
    accepting = spin { Polyphony.backend_accept_loop(server, TCPSocket, 5) { |socket| (turns[-1] += 1) && socket.close } }
    (turns << 0) && snooze until turns.sum == 20
    assert_operator turns.max, :>, 1
    accepting.stop
    accepting.await
    error = assert_raises(ArgumentError) { Polyphony.backend_accept_loop(server, TCPSocket, 0) { nil } }
    assert_equal 'batch must be between 1 and 1024, got 0', error.message
  end

  # They cost descriptors: those that a busy thread does not come to stay in the kernel's queue.
  def test_a_loop_that_does_not_keep_up_is_given_few_sockets_ahead
    server = listener
    ports = []
    accepting = spin { accept_loop(server) { |socket| ports << socket.remote_address.ip_port and socket.close } }
    snooze
    clients = []
    before = Dir.children('/proc/self/fd').size
    20.times do
      clients.concat(Array.new(20) { track(Socket.new(:INET, :STREAM)) })
      clients.last(20).each { |client| client.connect_nonblock(server.local_address, exception: false) }
      Thread.current.backend.poll(false) # nobody else runs meanwhile
    end
    assert_operator Dir.children('/proc/self/fd').size - before - clients.size, :<, 150
    snooze until ports.size == clients.size
    assert_equal own_ports(clients).sort, ports.sort
    accepting.stop
    accepting.await
  end

  def test_an_accept_beside_a_busy_loop_is_served
    server = listener
    gate = Polyphony::Event.new
    looper = spin { accept_loop(server) { gate.await } }
    client_of(server)
    snooze until looper.state == :waiting && server.wait_readable(0).nil?
    clients = Array.new(3) { client_of(server) }
    3.times { snooze }
    others = Array.new(3) { track(Polyphony.backend_accept(server, TCPSocket)) }
    assert_equal own_ports(clients).sort, ports(others).sort
    looper.stop
    looper.await
  end

  def test_a_loop_and_an_accept_take_turns
    server = listener
    taken = []
    looper = spin { accept_loop(server) { |socket| taken << socket } }
    clients = Array.new(10) do
      client = client_of(server)
      one = spin { taken << track(Polyphony.backend_accept(server, TCPSocket)) }
      2.times { snooze }
      one.stop
      one.await
      client
    end
    snooze until taken.size == 10
    assert_equal own_ports(clients).sort, ports(taken).sort
    looper.stop
    looper.await
  end

  def test_closing_ends_a_waiting_loop_with_io_error
    server = listener
    looper = waiting { accept_loop(server) { nil } }
    Polyphony.backend_close(server)
    assert_kind_of IOError, looper.await
  end

  def test_closing_in_the_block_ends_the_loop_with_io_error
    server = listener
    3.times { client_of(server) }
    yielded = 0
    assert_raises(IOError) do
      accept_loop(server) { yielded += 1; Polyphony.backend_close(server) }
    end
    assert_equal 1, yielded
  end

  def test_closing_from_another_thread_ends_the_loop_with_io_error
    server = listener
    looper = waiting { accept_loop(server) { nil } }
    Thread.new { Polyphony.backend_close(server) }.join
    assert_kind_of IOError, looper.await
  end

  def test_what_is_no_listener_is_an_error
    left, = socket_pair
    assert_raises(Errno::EINVAL) { accept_loop(left) { nil } }
    assert_raises(Errno::EBADF) { accept_loop(1_000_000) { nil } }
  end

  def test_an_interjection_does_not_end_the_loop
    server = listener
    ran = []
    taken = spin { take(server, 1) }
    snooze until taken.state == :waiting
    taken.interject { ran << :interjection }
    snooze until ran.any?
    client = client_of(server)
    assert_equal own_ports([client]), ports(taken.await)
  end

  def test_a_child_forked_in_the_block_goes_on_without_the_parents_operation
    server = listener
    client = client_of(server)
    3.times { client_of(server) }
    pid = nil
    accept_loop(server) do |socket|
      pid = fork do
        Polyphony.backend_send(socket, 'from the child', 0)
        exit!(0)
      end
      break
    end
    assert_equal 'from the child', Polyphony.backend_recv(client, +'', 100, 0)
    assert_equal [pid, 0], Polyphony.backend_waitpid(pid)
  end

  LIMITED = <<~RUBY
    require 'socket'
    require 'polyphony'
    server = TCPServer.new('127.0.0.1', 0)
    clients = Array.new(30) { Socket.new(:INET, :STREAM) }
    clients.each { |client| client.connect(server.local_address) }
    Process.setrlimit(:NOFILE, Dir.children('/proc/self/fd').size + 10)
    accepted = []
    looper = spin { Polyphony.backend_accept_loop(server, TCPSocket) { |socket| accepted << socket } }
    sleep 0.01 until accepted.size >= 5
    busy = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sleep 0.5
    busy = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - busy
    first = accepted.size
    until accepted.size == 30
      accepted.each { |socket| socket.close unless socket.closed? }
      sleep 0.01
    end
    looper.stop
    p(paused: first < 30, spun: busy > 0.1, all: accepted.size)
  RUBY

  def test_a_lack_of_descriptors_is_waited_out_without_spinning
    out, err, status = run_ruby(LIMITED, timeout: 60)
    assert status.success?, err
    assert_equal({ paused: true, spun: false, all: 30 }.inspect, out.strip)
    assert_equal 1, err.scan('ulimit -n').size, err
  end
end

class TestConnect < Polyphony::TestCase
  include SocketHelpers
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  def tcp
    track(Socket.new(:INET, :STREAM))
  end

  def test_a_socket_is_connected_and_returned
    server = listener
    socket = tcp
    assert_same socket, Polyphony.backend_connect(socket, '127.0.0.1', port_of(server))
    assert_equal port_of(server), socket.remote_address.ip_port
  end

  def test_names_are_resolved_for_the_family_of_the_socket
    server = listener
    socket = tcp
    Polyphony.backend_connect(socket, 'localhost', port_of(server))
    assert_equal '127.0.0.1', socket.remote_address.ip_address
  end

  def test_others_run_while_a_name_is_resolved
    server = listener
    turns = 0
    other = spin { loop { turns += 1; snooze } }
    Polyphony.backend_connect(tcp, 'localhost', port_of(server))
    other.stop
    assert_operator turns, :>, 0
  end

  def test_a_port_may_be_text
    server = listener
    assert Polyphony.backend_connect(tcp, '127.0.0.1', port_of(server).to_s)
  end

  def test_packed_addresses_and_addrinfos_will_do
    server = listener
    assert Polyphony.backend_connect(tcp, server.local_address, nil)
    assert Polyphony.backend_connect(tcp, server.local_address.to_sockaddr, nil)
  end

  def test_a_path_will_do_for_a_unix_socket
    Dir.mktmpdir do |folder|
      path = "#{folder}/socket"
      track(UNIXServer.new(path))
      [path, Addrinfo.unix(path), Socket.sockaddr_un(path)].each do |address|
        assert Polyphony.backend_connect(track(Socket.new(:UNIX, :STREAM)), address, nil)
      end
    end
  end

  def test_a_refused_connection_names_the_address
    server = listener
    port = port_of(server)
    server.close
    error = assert_raises(Errno::ECONNREFUSED) { Polyphony.backend_connect(tcp, '127.0.0.1', port) }
    assert_includes error.message, "connect(2) for 127.0.0.1:#{port}"
  end

  def test_a_socket_that_is_not_there_is_an_error
    socket = track(Socket.new(:UNIX, :STREAM))
    assert_raises(Errno::ENOENT) { Polyphony.backend_connect(socket, '/nowhere/socket', nil) }
  end

  def test_a_name_nobody_knows_is_a_socket_error
    error = assert_raises(SocketError) { Polyphony.backend_connect(tcp, 'name with spaces', 80) }
    assert_includes error.message, 'name with spaces'
  end

  def test_nonsense_is_refused
    assert_raises(ArgumentError) { Polyphony.backend_connect(tcp, '127.0.0.1', 65_536) }
    assert_raises(ArgumentError) { Polyphony.backend_connect(tcp, '127.0.0.1', -1) }
    assert_raises(ArgumentError) { Polyphony.backend_connect(tcp, "127.0.0.1\0", 80) }
    assert_raises(TypeError) { Polyphony.backend_connect(tcp, 127, 80) }
    assert_raises(ArgumentError) { Polyphony.backend_connect(tcp, 'x', nil) }
    assert_raises(IOError) { Polyphony.backend_connect(tcp.tap(&:close), '127.0.0.1', 80) }
  end

  def test_a_cancelled_connect_leaves_nothing_behind
    server = listener
    cancel_everywhere do |run|
      run.scenario { Polyphony.backend_connect(tcp, 'localhost', port_of(server)) }
      run.check { assert_equal 0, Thread.current.backend.stats[:pending_ops] }
    end
  end

  def test_an_interjection_does_not_end_the_resolving
    server = listener
    ran = []
    connected = spin { Polyphony.backend_connect(tcp, 'localhost', port_of(server)) }
    snooze
    connected.interject { ran << :interjection }
    assert_kind_of Socket, connected.await
    assert_equal [:interjection], ran
  end

  # The backlog is full, so it cannot come to its end.
  def test_closing_ends_a_waiting_connect_with_io_error
    server = track(Socket.new(:INET, :STREAM))
    server.bind(Addrinfo.tcp('127.0.0.1', 0))
    server.listen(0)
    3.times { client_of(server) }
    socket = tcp
    connecting = spin { outcome { Polyphony.backend_connect(socket, '127.0.0.1', port_of(server)) } }
    5.times { snooze }
    skip 'this kernel takes more connections than it was told' if connecting.dead?

    Polyphony.backend_close(socket)
    assert_kind_of IOError, connecting.await
  end

  def test_receiving_for_some_time
    client, server = socket_pair
    buffer = +'>'
    assert_equal false, Polyphony.backend_recv_within(server, buffer, 10, -1, 0.001)
    client << 'hello'
    assert_same buffer, Polyphony.backend_recv_within(server, buffer, 3, -1, patient(10))
    assert_equal '>hel', buffer
    assert_equal 'lo', Polyphony.backend_recv_within(server, nil, 10, 0, nil)
    client.close
    assert_nil Polyphony.backend_recv_within(server, buffer, 10, 0, patient(10))
    assert_raises(ArgumentError) { Polyphony.backend_recv_within(server, buffer, -1, 0, 1) }
  end

  def test_sending_for_some_time
    client, server = socket_pair
    assert_equal 5, Polyphony.backend_send_within(client, 'hello', 0, patient(10))
    assert_equal 'hello', server.readpartial(10)
    assert_equal false, Polyphony.backend_send_within(client, 'x' * 10_000_000, 0, 0.001)
    received = spin { server.read.bytesize }
    assert_equal 1_000_000, Polyphony.backend_send_within(client, 'y' * 1_000_000, 0, nil)
    client.close
    assert_operator received.await, :>, 1_000_000
  end
end
