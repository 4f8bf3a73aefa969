# frozen_string_literal: true

require 'test_helper'
require 'support/beside'
require 'io/nonblock'
require 'tmpdir'

# Every stock method of sockets that may wait: the stock result, and others run meanwhile; in the main
# fiber, in a spun one and in that of Enumerator#next, in both modes of the socket.
class TestSocketMethods < Polyphony::TestCase
  include Polyphony::Beside

  SAME = ->(result) { result }

  class << self
    # @param again [Boolean] whether nothing has happened when it is ended by a time limit
    # @yield returns [wait, satisfy, look]
    def waits(name, again: true, &prepare)
      Polyphony::Beside::WHERE.each_key do |where|
        define_method("test_#{name}_in_#{where}") { assert_like_stock(where, &prepare) }
        next unless again

        define_method("test_#{name}_again_after_a_time_limit_in_#{where}") do
          assert_like_stock(where) { end_once(where, *instance_exec(&prepare)) }
        end
      end
    end

    # @yield [mode] gets a Proc that sets the mode of sockets and returns the first
    def waits_in_both_modes(name, **options, &prepare)
      { nonblocking: true, blocking: false }.each do |mode, flag|
        waits("#{name}_#{mode}", **options) do
          instance_exec(->(*sockets) { sockets.each { |socket| socket.nonblock = flag }.first }, &prepare)
        end
      end
    end
  end

  # The first try is ended while it waits, except in stock Ruby.
  def end_once(where, wait, satisfy, look)
    return [wait, satisfy, look] if @ended.nil? && (@ended = false) == false

    limit = -> { move_on_after(0.001, with_value: :over) { wait.call } }
    assert_equal :over, instance_exec(limit, &Polyphony::Beside::WHERE.fetch(where))
    [wait, satisfy, look]
  end

  def listener
    track(TCPServer.new('127.0.0.1', 0))
  end

  # @return [Integer] how many bytes went into it
  def fill(socket)
    count = 0
    loop { count += socket.write_nonblock('x' * 65_536) }
  rescue IO::WaitWritable
    count
  end

  def fill_with_datagrams(socket, address = nil)
    count = 0
    loop { socket.sendmsg_nonblock('x', 0, address) && count += 1 }
  rescue IO::WaitWritable
    count
  end

  def drain(socket, count)
    count -= socket.readpartial(count).bytesize while count.positive?
  end

  # Stock Ruby, which is asked first, may send less: its threads live on the kernel's threads of others that have ended, and when
  # the kernel tidies up the ring of one of these it breaks off what the thread does.
  def sends_all(left, right, size: 1_000_000)
    asked = @asked
    @asked = true
    send = -> { yield('x' * size).tap { |count| left.write('x' * (size - count)) } }
    [send, -> { drain(right, size) }, ->(count) { asked ? count : size }]
  end

  def udp
    track(UDPSocket.new.tap { |socket| socket.bind('127.0.0.1', 0) })
  end

  def path
    @path ||= Dir.mktmpdir('polyphony')
    @number = @number.to_i + 1
    "#{@path}/#{@number}"
  end

  def teardown
    FileUtils.rm_rf(@path) if @path
    super
  end

  # --- receiving ------------------------------------------------------------------------------

  waits_in_both_modes(:recv) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.recv(10) }, -> { right.write 'hello' }, ->(text) { [text, text.encoding] }]
  end

  waits_in_both_modes(:recv_into_a_buffer) do |mode|
    left, right = socket_pair
    mode.(left)
    buffer = 'what was there before'.encode('UTF-16LE')
    [-> { left.recv(3, 0, buffer) }, -> { right.write 'hello' },
     ->(text) { [text, text.encoding, text.equal?(buffer)] }]
  end

  waits_in_both_modes(:recv_at_the_end) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.recv(10) }, -> { right.close }, SAME]
  end

  waits_in_both_modes(:recv_of_a_peek) do |mode|
    left, right = socket_pair
    mode.(left)
    [-> { [left.recv(4, Socket::MSG_PEEK), left.recv(10)] }, -> { right.write 'hello' }, SAME]
  end

  waits(:recv_of_all_in_blocking_mode) do
    left, right = tcp_pair
    left.nonblock = false
    [-> { left.recv(5, Socket::MSG_WAITALL) }, -> { right.write 'hel'; right.write 'lo!' }, SAME]
  end

  waits(:recv_of_all_and_the_end) do
    left, right = tcp_pair
    left.nonblock = false
    [-> { left.recv(5, Socket::MSG_WAITALL) }, -> { right.write 'hel'; right.close }, SAME]
  end

  waits(:recvfrom_of_all_in_blocking_mode) do
    left, right = tcp_pair
    left.nonblock = false
    [-> { left.recvfrom(5, Socket::MSG_WAITALL) }, -> { right.write 'hel'; right.write 'lo!' }, SAME]
  end

  waits(:recvmsg_of_all_in_blocking_mode) do
    left, right = socket_pair
    left.nonblock = false
    [-> { left.recvmsg(5, Socket::MSG_WAITALL).first }, -> { right.write 'hel'; right.write 'lo!' }, SAME]
  end

  waits_in_both_modes(:recv_of_a_datagram) do |mode|
    left, right = track(*UNIXSocket.pair(:DGRAM))
    mode.(left)
    [-> { [left.recv(3), left.recv(10)] }, -> { right.send 'hello', 0; right.send 'again', 0 }, SAME]
  end

  waits_in_both_modes(:recvfrom_of_udp) do |mode|
    socket, sender = udp, udp
    mode.(socket)
    [-> { socket.recvfrom(10) }, -> { sender.send 'hello', 0, '127.0.0.1', socket.addr[1] },
     ->((text, from)) { [text, from[0], from[1] == sender.addr[1], from[2..]] }]
  end

  waits_in_both_modes(:recvfrom_of_tcp) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.recvfrom(10) }, -> { right.write 'hello' }, SAME]
  end

  waits_in_both_modes(:recvfrom_of_unix) do |mode|
    left, right = socket_pair
    mode.(left)
    [-> { left.recvfrom(10) }, -> { right.write 'hello' }, SAME]
  end

  waits_in_both_modes(:recvfrom_of_socket) do |mode|
    left, right = track(*Socket.pair(:UNIX, :STREAM))
    mode.(left)
    [-> { left.recvfrom(10) }, -> { right.write 'hello' }, ->((text, from)) { [text, from.inspect] }]
  end

  waits_in_both_modes(:recvmsg) do |mode|
    left, right = socket_pair
    mode.(left)
    [-> { left.recvmsg }, -> { right.write 'hello' }, :inspect.to_proc]
  end

  waits_in_both_modes(:recvmsg_of_udp) do |mode|
    socket, sender = udp, udp
    mode.(socket)
    [-> { socket.recvmsg(3) }, -> { sender.send 'hello', 0, '127.0.0.1', socket.addr[1] },
     ->((text, from, flags)) { [text, from.ip_port == sender.addr[1], flags] }]
  end

  waits_in_both_modes(:recvmsg_with_descriptors) do |mode|
    left, right = socket_pair
    reader, writer = pipe_pair
    mode.(left)
    send = -> { right.sendmsg('take', 0, nil, Socket::AncillaryData.unix_rights(reader, writer)) }
    [-> { left.recvmsg(scm_rights: true) }, send,
     lambda do |(text, from, _flags, control)|
       ios = track(*control.unix_rights)
       [text, from.inspect, ios.map { |io| [io.class, io.close_on_exec?] }]
     end]
  end

  waits_in_both_modes(:recv_io) do |mode|
    left, right = socket_pair
    reader, writer = pipe_pair
    mode.(left)
    [-> { left.recv_io }, -> { right.send_io reader },
     ->(io) { track(io); writer << 'x'; [io.class, io.close_on_exec?, io.readpartial(1)] }]
  end

  waits_in_both_modes(:recv_io_as_a_class) do |mode|
    left, right = socket_pair
    mode.(left)
    [-> { left.recv_io(UNIXSocket) }, -> { right.send_io right }, ->(io) { [track(io).class, io.sync] }]
  end

  waits_in_both_modes(:readpartial) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.readpartial(10) }, -> { right.write 'hello' }, SAME]
  end

  waits_in_both_modes(:gets) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.gets }, -> { right.puts 'hello' }, SAME]
  end

  # --- sending --------------------------------------------------------------------------------

  waits(:send_when_it_is_full) do
    left, right = socket_pair
    count = fill(left)
    [-> { left.send('hello', 0) }, -> { drain(right, count) }, SAME]
  end

  waits(:send_of_all_in_blocking_mode, again: false) do
    left, right = socket_pair
    left.nonblock = false
    sends_all(left, right) { |text| left.send(text, 0) }
  end

  waits(:sendmsg_when_it_is_full) do
    left, right = socket_pair
    count = fill(left)
    [-> { left.sendmsg('hello') }, -> { drain(right, count) }, SAME]
  end

  waits(:sendmsg_of_all_in_blocking_mode, again: false) do
    left, right = socket_pair
    left.nonblock = false
    sends_all(left, right) { |text| left.sendmsg(text) }
  end

  waits_in_both_modes(:send_of_a_datagram) do |mode|
    left, right = track(*UNIXSocket.pair(:DGRAM))
    count = fill_with_datagrams(left)
    mode.(left)
    [-> { left.send('hello', 0) }, -> { count.times { right.recv(10) } }, SAME]
  end

  waits_in_both_modes(:sendto_when_nobody_takes) do |mode|
    name = "\0polyphony #{Process.pid} #{rand}"
    target = track(Socket.new(:UNIX, :DGRAM))
    target.bind(Addrinfo.unix(name, :DGRAM))
    sender = track(Socket.new(:UNIX, :DGRAM))
    count = fill_with_datagrams(sender, target.local_address)
    mode.(sender)
    [-> { sender.send('hello', 0, target.local_address) }, -> { count.times { target.recv(10) } }, SAME]
  end

  waits_in_both_modes(:send_io) do |mode|
    left, right = socket_pair
    count = fill(left)
    mode.(left)
    [-> { left.send_io($stdin) }, -> { drain(right, count) }, SAME]
  end

  waits_in_both_modes(:write, again: false) do |mode|
    left, right = tcp_pair
    mode.(left)
    [-> { left.write('x' * 8_000_000) }, -> { drain(right, 8_000_000) }, SAME]
  end

  # --- connections ----------------------------------------------------------------------------

  ACCEPTED = lambda do |socket|
    [socket.class, socket.close_on_exec?, socket.nonblock?, socket.sync, socket.do_not_reverse_lookup,
     socket.external_encoding, socket.local_address.ip_address]
  end

  waits_in_both_modes(:accept_of_tcp) do |mode|
    server = mode.(listener)
    [-> { server.accept }, -> { track(TCPSocket.new('127.0.0.1', server.addr[1])) },
     ->(socket) { ACCEPTED.(track(socket)) }]
  end

  waits_in_both_modes(:sysaccept_of_tcp) do |mode|
    server = mode.(listener)
    [-> { server.sysaccept }, -> { track(TCPSocket.new('127.0.0.1', server.addr[1])) },
     ->(fd) { [fd.class, ACCEPTED.(track(TCPSocket.for_fd(fd)))] }]
  end

  waits_in_both_modes(:accept_of_unix) do |mode|
    place = path
    server = mode.(track(UNIXServer.new(place)))
    [-> { server.accept }, -> { track(UNIXSocket.new(place)) },
     ->(socket) { track(socket); [socket.class, socket.close_on_exec?, socket.nonblock?, socket.peeraddr, socket.addr[0]] }]
  end

  waits_in_both_modes(:accept_of_socket) do |mode|
    server = mode.(track(Addrinfo.tcp('127.0.0.1', 0).listen))
    client = nil
    [-> { server.accept }, -> { client = track(server.connect_address.connect) },
     lambda do |(socket, from)|
       client.local_address # it has connected by now
       [ACCEPTED.(track(socket)), from.class, from.ip_address, from.ip_port == client.local_address.ip_port,
        from.socktype, from.pfamily, from.protocol, from.inspect.sub(/:\d+/, '')]
     end]
  end

  waits(:accept_of_an_unnamed_unix_client) do
    server = track(Addrinfo.unix(path).listen)
    [-> { server.accept }, -> { track(server.local_address.connect) },
     ->((socket, from)) { track(socket); [socket.class, from.inspect, from.to_sockaddr] }]
  end

  waits_in_both_modes(:sysaccept_of_socket) do |mode|
    server = mode.(track(Addrinfo.tcp('127.0.0.1', 0).listen))
    [-> { server.sysaccept }, -> { track(server.connect_address.connect) },
     ->((fd, from)) { track(Socket.for_fd(fd)); [fd.class, from.inspect.sub(/:\d+/, '')] }]
  end

  waits_in_both_modes(:accept_through_ipv6) do |mode|
    server = mode.(track(ipv6_server))
    [-> { server.accept }, -> { track(TCPSocket.new('::1', server.addr[1])) },
     ->(socket) { [track(socket).class, socket.peeraddr[0], socket.peeraddr[3]] }]
  end

  def ipv6_server
    TCPServer.new('::1', 0)
  rescue Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT
    skip 'this machine has no IPv6'
  end

  # --- what has no stock result to compare ----------------------------------------------------

  # In stock Ruby this one is not connected.
  def assert_connects_in_the_end(where)
    place = path
    server = track(UNIXServer.new(place))
    server.listen(0)
    track(UNIXSocket.new(place))
    accepted = []
    client = beside(-> { 2.times { accepted << track(server.accept) } }) do
      instance_exec(-> { yield place }, &Polyphony::Beside::WHERE.fetch(where))
    end
    track(client).write('hello')
    assert_equal 'hello', accepted.last.readpartial(10)
  end

  Polyphony::Beside::WHERE.each_key do |where|
    define_method("test_a_unix_socket_waits_for_room_in_the_queue_in_#{where}") do
      assert_connects_in_the_end(where) { |place| UNIXSocket.new(place) }
    end

    define_method("test_connect_waits_for_room_in_the_queue_in_#{where}") do
      assert_connects_in_the_end(where) { |place| Socket.unix(place) }
    end

    define_method("test_connect_waits_in_blocking_mode_in_#{where}") do
      assert_connects_in_the_end(where) do |place|
        socket = Socket.new(:UNIX, :STREAM)
        socket.nonblock = false
        assert_equal 0, socket.connect(Addrinfo.unix(place))
        refute socket.nonblock?
        socket
      end
    end

    define_method("test_a_lingering_close_lets_others_run_in_#{where}") do
      left, right = tcp_pair
      left.setsockopt(Socket::Option.linger(true, 60))
      fill(left)
      beside(-> { right.read }) { instance_exec(-> { left.close }, &Polyphony::Beside::WHERE.fetch(where)) }
      assert_predicate left, :closed?
    end
  end
end
