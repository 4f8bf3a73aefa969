# frozen_string_literal: true

require 'test_helper'
require 'support/beside'
require 'io/nonblock'
require 'tmpdir'

# What the tests below share.
module SocketTests
  include Polyphony::Beside

  def listener
    track(TCPServer.new('127.0.0.1', 0))
  end

  def everywhere
    Polyphony::Beside::WHERE.each_value do |where|
      yield ->(&wait) { instance_exec(wait, &where) }
    end
  end

  # @return [Fiber] that has what it waits for, and does not know yet
  def woken(waiting)
    yield
    snooze until waiting.state == :runnable
    waiting
  end

  # Bytes that nobody waits for any more.
  # @return [Array(BasicSocket, BasicSocket)]
  def pair_with_bytes_given_back(pair = socket_pair)
    left, right = pair
    woken(waiting { left.recv(100) }) { right.write('hello') }.stop
    snooze
    [left, right]
  end
end

# Servers and clients in plain Ruby.
class TestSocketServers < Polyphony::TestCase
  include SocketTests

  # While others are at work, a fiber that does nothing but snooze has its turn: at least one for so many
  # of their steps.
  def with_heartbeat
    beats = 0
    heart = spin { loop { snooze; beats += 1 } }
    yield
    beats
  ensure
    heart&.stop
    heart&.await
  end

  def many(descriptors)
    soft, hard = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, [descriptors + 200, hard].min, hard) if soft < descriptors + 200
    skip "at most #{hard} descriptors may be open" if Process.getrlimit(:NOFILE).first < descriptors + 200
    yield
  ensure
    Process.setrlimit(:NOFILE, soft, hard)
  end

  def echo(socket)
    while (line = socket.gets)
      socket.puts(line)
    end
  ensure
    socket.close
  end

  # All clients are connected before the first of them speaks.
  def assert_echoes(server, count)
    echo = spin { loop { server.accept.then { |socket| spin { echo(socket) } } } }
    clients = Array.new(count) { |i| spin { [i, yield] } }.map(&:await)
    talks = clients.map do |i, socket|
      spin do
        3.times { |round| socket.puts("#{i} #{round}"); assert_equal "#{i} #{round}\n", socket.gets }
        socket.close_write
        assert_nil socket.gets
        socket.close
      end
    end
    Fiber.await(*talks)
  ensure
    echo&.stop
    echo&.await
  end

  def test_a_thousand_tcp_connections
    heavy
    many(2000) do
      server = listener
      beats = with_heartbeat { assert_echoes(server, 1000) { TCPSocket.new('127.0.0.1', server.addr[1]) } }
      assert_operator beats, :>, 10
    end
  end

  def test_a_thousand_unix_connections
    heavy
    Dir.mktmpdir do |folder|
      many(2000) do
        server = track(UNIXServer.new("#{folder}/socket"))
        beats = with_heartbeat { assert_echoes(server, 1000) { UNIXSocket.new("#{folder}/socket") } }
        assert_operator beats, :>, 10
      end
    end
  end

  def test_a_hundred_udp_clients
    server = track(UDPSocket.new.tap { |socket| socket.bind('127.0.0.1', 0) })
    echo = spin { loop { text, from = server.recvfrom(100); server.send(text, 0, from[3], from[1]) } }
    beats = with_heartbeat do
      clients = Array.new(100) do |i|
        spin do
          socket = track(UDPSocket.new)
          socket.connect('127.0.0.1', server.addr[1])
          3.times { |round| socket.send("#{i} #{round}", 0); assert_equal "#{i} #{round}", socket.recv(100) }
        end
      end
      Fiber.await(*clients)
    end
    assert_operator beats, :>, 10
    echo.stop
  end

  # --- the loops of Socket --------------------------------------------------------------------

  def assert_serves(loop_of, connect)
    everywhere do |here|
      server = spin(&loop_of)
      answer = here.call { connect.call { |socket| socket.puts('hello'); socket.gets } }
      assert_equal "HELLO\n", answer
      server.stop
      server.await
    end
  end

  def free_port
    TCPServer.open('127.0.0.1', 0) { |server| server.addr[1] }
  end

  # Whoever comes before the listener is there tries again.
  def patiently
    yield
  rescue Errno::ECONNREFUSED, Errno::ENOENT
    snooze
    retry
  end

  SHOUT = ->(socket, _from) { socket.puts(socket.gets.upcase); socket.close }

  def test_tcp_server_loop
    port = free_port
    assert_serves(-> { Socket.tcp_server_loop('localhost', port, &SHOUT) },
                  ->(&block) { patiently { Socket.tcp('localhost', port, &block) } })
  end

  def test_unix_server_loop
    Dir.mktmpdir do |folder|
      assert_serves(-> { Socket.unix_server_loop("#{folder}/socket", &SHOUT) },
                    ->(&block) { patiently { Socket.unix("#{folder}/socket", &block) } })
    end
  end

  def test_an_abstract_name
    name = "\0polyphony #{Process.pid}"
    assert_serves(-> { Socket.unix_server_loop(name, &SHOUT) },
                  ->(&block) { patiently { UNIXSocket.open(name, &block) } })
  end

  def test_udp_server_loop
    port = free_port
    everywhere do |here|
      server = spin { Socket.udp_server_loop('127.0.0.1', port) { |text, from| from.reply(text.upcase) } }
      snooze
      answer = here.call do
        Addrinfo.udp('127.0.0.1', port).connect { |socket| socket.send('hello', 0); socket.recv(100) }
      end
      assert_equal 'HELLO', answer
      server.stop
      server.await
    end
  end

  def test_accept_loop_of_several
    listeners = Array.new(3) { track(Addrinfo.tcp('127.0.0.1', 0).listen) }
    server = spin { Socket.accept_loop(listeners, &SHOUT) }
    answers = listeners.map do |listener|
      listener.connect_address.connect { |socket| socket.puts('hello'); socket.gets }
    end
    assert_equal ["HELLO\n"] * 3, answers
    server.stop
  end

  def test_tcp_server_sockets
    Socket.tcp_server_sockets('localhost', 0) do |sockets|
      server = spin { Socket.accept_loop(sockets, &SHOUT) }
      sockets.each do |socket|
        assert_equal "HELLO\n", socket.connect_address.connect { |client| client.puts('hello'); client.gets }
      end
      server.stop
      server.await
    end
  end
end

# Connecting.
class TestSocketConnect < Polyphony::TestCase
  include SocketTests

  # A port at which nobody answers: the queue of its listener is full.
  def silent_port
    server = track(Socket.new(:INET, :STREAM))
    server.bind(Addrinfo.tcp('127.0.0.1', 0))
    server.listen(0)
    address = server.local_address
    3.times { track(Socket.new(:INET, :STREAM)).connect_nonblock(address, exception: false) }
    address.ip_port
  end

  # TCPSocket.new has a class of its own for that, since Ruby 3.3.
  TIMED_OUT = [Errno::ETIMEDOUT, (IO::TimeoutError if defined?(IO::TimeoutError))].compact.freeze

  def assert_times_out(here)
    beats = 0
    heart = spin { loop { snooze; beats += 1 } }
    error = assert_raises(*TIMED_OUT) { here.call { yield } }
    assert_operator beats, :>, 0
    error
  ensure
    heart&.stop
  end

  def test_connect_timeout
    port = silent_port
    everywhere do |here|
      assert_times_out(here) { Socket.tcp('127.0.0.1', port, connect_timeout: 0.02) }
      assert_times_out(here) { TCPSocket.new('127.0.0.1', port, connect_timeout: 0.02) }
      assert_times_out(here) { Addrinfo.tcp('127.0.0.1', port).connect(timeout: 0.02) }
    end
  end

  def test_a_time_limit_around_it
    port = silent_port
    everywhere do |here|
      [-> { Socket.tcp('127.0.0.1', port) }, -> { TCPSocket.new('127.0.0.1', port) },
       -> { track(Socket.new(:INET, :STREAM)).connect(Addrinfo.tcp('127.0.0.1', port)) }].each do |connect|
        assert_equal :over, here.call { move_on_after(0.01, with_value: :over, &connect) }
      end
    end
  end

  # Ruby 3.4 does not know what to make of a local address when it tries several at once.
  def one_by_one
    Socket.respond_to?(:tcp_fast_fallback) ? { fast_fallback: false } : {}
  end

  # localhost is ::1 first on most machines.
  def test_the_next_address_is_tried
    server = listener
    everywhere do |here|
      [-> { TCPSocket.new('localhost', server.addr[1]) }, -> { Socket.tcp('localhost', server.addr[1]) },
       -> { Socket.tcp('localhost', server.addr[1], connect_timeout: 5, resolv_timeout: 5) },
       -> { TCPSocket.new('localhost', server.addr[1], '127.0.0.1', 0) },
       -> { Socket.tcp('localhost', server.addr[1], '127.0.0.1', 0, **one_by_one) }].each do |connect|
        socket = here.call(&connect)
        assert_equal server.addr[1], socket.remote_address.ip_port
        [socket, server.accept].each(&:close)
      end
    end
  end

  def test_errors_are_stock
    port = TCPServer.open('127.0.0.1', 0) { |server| server.addr[1] }
    missing = "#{Dir.tmpdir}/polyphony-no-such-socket"
    blocking = -> { track(Socket.new(:INET, :STREAM)).tap { |socket| socket.nonblock = false } }
    calls = [-> { TCPSocket.new('127.0.0.1', port) }, -> { Socket.tcp('127.0.0.1', port) },
             -> { UNIXSocket.new(missing) }, -> { Socket.unix(missing) },
             -> { blocking.call.connect(Addrinfo.tcp('127.0.0.1', port)) },
             -> { blocking.call.connect(Socket.sockaddr_in(port, '127.0.0.1')) }, -> { UNIXSocket.new("x\0y") },
             -> { UNIXSocket.new('x' * 200) }, -> { listener.accept_nonblock }, -> { listener.recv(10) },
             -> { track(UDPSocket.new).send('x', 0) }, -> { socket_pair.first.recv(-1) },
             -> { socket_pair.first.send('x') }, -> { socket_pair.first.recv('x') },
             -> { track(Socket.new(:INET, :STREAM)).accept }, -> { socket_pair.first.tap(&:close).recv(1) }]
    calls.each do |call|
      expected = Thread.new { assert_raises(StandardError, &call) }.value
      everywhere do |here|
        actual = assert_raises(expected.class) { here.call(&call) }
        assert_equal expected.message, actual.message, call.source_location.last
      end
    end
  end

  def test_addrinfo
    server = track(Addrinfo.tcp('127.0.0.1', 0).listen)
    everywhere do |here|
      from = Addrinfo.tcp('127.0.0.1', 0)
      [-> { server.local_address.connect }, -> { server.local_address.connect_from(from) },
       -> { server.local_address.connect_from('127.0.0.1', 0, timeout: 5) },
       -> { from.connect_to(server.local_address) },
       -> { from.family_addrinfo('127.0.0.1', server.local_address.ip_port).connect }].each do |connect|
        socket = here.call(&connect)
        accepted, address = here.call { server.accept }
        assert_equal socket.local_address.to_sockaddr, address.to_sockaddr
        [socket, accepted].each(&:close)
      end
    end
  end

  def test_ipv6
    server = TCPServer.new('::1', 0)
    echo = spin { loop { server.accept.then { |socket| socket.puts(socket.gets); socket.close } } }
    everywhere do |here|
      answer = here.call { TCPSocket.open('::1', server.addr[1]) { |socket| socket.puts('hello'); socket.gets } }
      assert_equal "hello\n", answer
    end
    udp = track(UDPSocket.new(:INET6))
    udp.bind('::1', 0)
    udp.send('to myself', 0, '::1', udp.addr[1])
    assert_equal ['to myself', ['AF_INET6', udp.addr[1], '::1', '::1']], udp.recvfrom(100)
  rescue Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT
    skip 'this machine has no IPv6'
  ensure
    echo&.stop
    server&.close
  end

  # What a TCPSocket does since Ruby 3.4, tried with the Socket.tcp of today.
  def test_several_addresses_at_once
    klass = Class.new(TCPSocket) { prepend Polyphony.const_get(:TCPSocketExtensions) }
    fallback = Module.new { def tcp_fast_fallback = true }
    Socket.extend(fallback)
    server = listener
    everywhere do |here|
      socket = here.call { klass.new('localhost', server.addr[1]) }
      stock = TCPSocket.new('localhost', server.addr[1])
      looks = [socket, stock].map do |each|
        [each.sync, each.close_on_exec?, each.nonblock?, each.do_not_reverse_lookup, each.external_encoding,
         each.autoclose?, each.remote_address.ip_port, each.binmode?]
      end
      assert_equal looks[1], looks[0]
      GC.start
      socket.puts('hello')
      assert_equal "hello\n", server.accept.then { |accepted| track(accepted).gets }
      [socket, stock, server.accept].each(&:close)
    end
    server.close
    refused = assert_raises(Errno::ECONNREFUSED) { spin { klass.new('localhost', 1) }.await }
    assert_equal assert_raises(Errno::ECONNREFUSED) { TCPSocket.new('localhost', 1) }.message, refused.message
  ensure
    fallback&.send(:remove_method, :tcp_fast_fallback)
  end
end

# Ends of sockets while somebody waits.
class TestSocketEnds < Polyphony::TestCase
  include SocketTests

  WAITS = {
    recv: ->(socket) { socket.recv(1) }, recv_peek: ->(socket) { socket.recv(1, Socket::MSG_PEEK) },
    recvfrom: ->(socket) { socket.recvfrom(1) }, recvmsg: ->(socket) { socket.recvmsg },
    recv_io: ->(socket) { socket.recv_io }, gets: ->(socket) { socket.gets },
    readpartial: ->(socket) { socket.readpartial(1) }
  }.freeze

  def test_closing_wakes_whoever_waits
    WAITS.each_value do |wait|
      [true, false].each do |mode|
        everywhere do |here|
          left, = socket_pair
          left.nonblock = mode
          spin { left.close }
          assert_raises(IOError) { here.call { wait.call(left) } }
        end
      end
    end
  end

  def test_closing_a_listener
    [-> { listener }, -> { track(Addrinfo.tcp('127.0.0.1', 0).listen) }].each do |open|
      everywhere do |here|
        server = open.call
        spin { server.close }
        assert_raises(IOError) { here.call { server.accept } }
      end
    end
  end

  def test_shutting_down_ends_a_wait
    everywhere do |here|
      [->(socket) { socket.shutdown(:RD) }, lambda(&:close_read)].each do |shut|
        left, = socket_pair
        spin { shut.call(left) }
        assert_includes [nil, ''], here.call { left.recv(1) }
      end
    end
  end

  def test_the_other_side_closes_for_writing
    left, right = tcp_pair
    right.write('last words')
    right.close_write
    everywhere { |here| assert_includes [nil, 'last words'], here.call { left.gets } }
    left.write('and an answer')
    left.close
    assert_equal 'and an answer', right.read
  end

  def test_both_halves_closed_close_it
    left, right = socket_pair
    left.close_read
    left.close_write
    assert_predicate left, :closed?
    assert_equal '', right.read
  end

  def test_a_lingering_half_is_closed_at_once
    left, right = tcp_pair
    left.setsockopt(Socket::Option.linger(true, 60))
    left.write('hello')
    left.close_write
    refute_predicate left, :closed?
    assert_equal 'hello', right.read
    right.close
    assert_equal '', left.read
    left.close_read
    assert_predicate left, :closed?
  end
end

# What a cancelled operation had got already is there for every method.
class TestSocketRemains < Polyphony::TestCase
  include SocketTests

  def test_bytes_are_there_for_every_method
    { recv: ->(s) { s.recv(3) }, recv_nonblock: ->(s) { s.recv_nonblock(3) },
      read_nonblock: ->(s) { s.read_nonblock(3) }, readpartial: ->(s) { s.readpartial(3) },
      recvfrom: ->(s) { s.recvfrom(3).first }, recvmsg: ->(s) { s.recvmsg(3).first },
      recvmsg_nonblock: ->(s) { s.recvmsg_nonblock(3).first }, read: ->(s) { s.read(3) },
      peek: ->(s) { s.recv(3, Socket::MSG_PEEK); s.recv(3, Socket::MSG_PEEK).tap { s.recv(3) } },
      buffer: ->(s) { buffer = +'a much longer text'; s.recv_nonblock(3, 0, buffer); buffer },
      select: ->(s) { IO.select([s]); s.recv_nonblock(3) }, wait: ->(s) { s.wait_readable; s.recv_nonblock(3) },
      thread: ->(s) { Thread.new { s.recv(3) }.value } }.each do |name, method|
      left, = pair_with_bytes_given_back
      assert_equal 'hel', method.call(left), name
      assert_equal 'lo', left.recv_nonblock(100), name
    end
  end

  # The address is what stock Ruby says of a stream.
  def test_their_sender
    { -> { tcp_pair } => ->(socket) { socket.recvfrom(100) }, -> { socket_pair } => ->(socket) { socket.recvfrom(100) },
      -> { track(*Socket.pair(:UNIX, :STREAM)) } => ->(socket) { socket.recvfrom_nonblock(100) },
      -> { track(*UNIXSocket.pair) } => ->(socket) { socket.recvmsg } }.each do |pair, method|
      stock, writer = pair.call
      writer.write('hello')
      stock.wait_readable
      expected = method.call(stock)
      left, = pair_with_bytes_given_back(pair.call)
      assert_equal expected.inspect, method.call(left).inspect
    end
  end

  def kept_connection(server)
    client = track(Socket.new(:INET, :STREAM))
    waiting = waiting { Polyphony.backend_accept(server, Socket) }
    woken(waiting) { client.connect_nonblock(server.local_address, exception: false) }.stop
    snooze
    client
  end

  def test_a_connection_is_there_for_every_method
    { accept: ->(s) { s.accept }, accept_nonblock: ->(s) { s.accept_nonblock },
      select: ->(s) { IO.select([s]); s.accept_nonblock }, wait: ->(s) { s.wait_readable; s.accept_nonblock },
      sysaccept: ->(s) { s.sysaccept.then { |fd, from| [Socket.for_fd(fd), from] } },
      accept_loop: ->(s) { Socket.accept_loop(s) { |*connection| break connection } },
      thread: ->(s) { Thread.new { s.accept }.value } }.each do |name, method|
      server = track(Addrinfo.tcp('127.0.0.1', 0).listen)
      client = kept_connection(server)
      socket, from = method.call(server)
      assert_equal client.local_address.inspect_sockaddr, from.inspect_sockaddr, name
      track(socket).write('x')
      assert_equal 'x', client.recv(1)
    end
  end

  def test_a_connection_is_there_for_a_tcp_server
    { accept: ->(s) { s.accept }, accept_nonblock: ->(s) { s.accept_nonblock },
      sysaccept: ->(s) { TCPSocket.for_fd(s.sysaccept) }, thread: ->(s) { Thread.new { s.accept }.value } }
      .each_value do |method|
      server = listener
      client = kept_connection(server)
      socket = track(method.call(server))
      assert_instance_of TCPSocket, socket
      assert_equal client.local_address.ip_port, socket.remote_address.ip_port
    end
  end
end

# What there is beside stock Ruby's methods.
class TestSocketAdditions < Polyphony::TestCase
  include SocketTests

  def test_accept_loop
    Dir.mktmpdir do |folder|
      { TCPSocket => listener, UNIXSocket => track(UNIXServer.new("#{folder}/socket")),
        Socket => track(Addrinfo.tcp('127.0.0.1', 0).listen) }.each do |klass, server|
        got = []
        serving = spin { server.accept_loop { |socket| got << track(socket) } }
        2.times { track(server.connect_address.connect) }
        snooze until got.size == 2
        assert_equal [klass] * 2, got.map(&:class)
        serving.stop
      end
    end
  end

  def test_accept_loop_ends_with_its_listener
    server = listener
    spin { server.close }
    assert_raises(IOError) { server.accept_loop { flunk } }
    assert_raises(ArgumentError) { listener.accept_loop }
  end

  def test_recv_loop_and_read_loop
    %i[recv_loop read_loop].each do |loop|
      [-> { tcp_pair }, -> { socket_pair }, -> { track(*Socket.pair(:UNIX, :STREAM)) }].each do |pair|
        left, right = pair.call
        spin { %w[one two].each { |word| right.write(word); snooze }; right.close }
        got = +''
        assert_same left, left.public_send(loop, 2) { |data| assert_operator data.size, :<=, 2; got << data }
        assert_equal 'onetwo', got
      end
    end
  end

  def test_feed_loop
    left, right = socket_pair
    right.write('hello')
    right.close
    got = []
    left.feed_loop(got, :push)
    assert_equal ['hello'], got
    left, right = socket_pair
    right.write('hello')
    right.close
    left.feed_loop(->(data, &block) { block.call(data.upcase) }) { |data| got << data }
    assert_equal %w[hello HELLO], got
  end

  def test_options
    socket = track(Socket.new(:INET, :STREAM))
    socket.setsockopt(Socket::Option.linger(true, 5))
    assert_same socket, socket.dont_linger.no_delay.reuse_addr.reuse_port
    refute socket.getsockopt(:SOCKET, :LINGER).linger.first
    [[:TCP, :NODELAY], [:SOCKET, :REUSEADDR], [:SOCKET, :REUSEPORT]].each do |option|
      refute_equal 0, socket.getsockopt(*option).int
    end
    assert_raises(Errno::EOPNOTSUPP) { socket_pair.first.no_delay }
    assert_predicate Socket::ZERO_LINGER, :frozen?
    assert_equal %i[backend_recv backend_send], [socket.__read_method__, socket.__write_method__]
  end

  def test_what_is_sent_need_not_be_a_string
    text = Struct.new(:to_str).new('hello')
    left, right = socket_pair
    left.nonblock = false
    [-> { left.send(text, 0) }, -> { left.sendmsg(text) }].each do |send|
      assert_equal 5, send.call
      assert_equal 'hello', right.recv(10)
    end
    assert_raises(TypeError) { left.sendmsg(5) }
    assert_raises(TypeError) { left.send(nil, 0) }
  end

  # Names that Polyphony 1.x gave other meanings.
  def test_stock_methods_keep_their_meaning
    server = track(Addrinfo.tcp('127.0.0.1', 0).listen)
    assert_equal 0, track(Socket.new(:INET, :STREAM)).connect(server.local_address)
    assert_equal [Socket, Addrinfo], server.accept.tap { |socket, _| track(socket) }.map(&:class)
    udp = track(UDPSocket.new.tap { |socket| socket.bind('127.0.0.1', 0) })
    udp.sendmsg('hello', 0, udp.local_address)
    assert_equal ['hello', Addrinfo], udp.recvmsg.first(2).then { |text, from| [text, from.class] }
  end

  def test_they_are_there_whenever_socket_is_loaded
    [%w[socket polyphony], %w[polyphony socket], %w[polyphony]].each do |names|
      out, err, = run_ruby(names.map { |name| "require '#{name}'\n" }.join + <<~RUBY)
        server = TCPServer.new('127.0.0.1', 0)
        beats = 0
        spin { loop { snooze; beats += 1 } }
        spin { snooze until beats > 5; TCPSocket.new('127.0.0.1', server.addr[1]).puts 'hello' }
        print server.accept.gets
      RUBY
      assert_equal "hello\n", out, err
    end
  end

  def test_a_thread_that_has_never_waited_opens_no_backend
    refute(Thread.new do
      TCPServer.open('127.0.0.1', 0) do |server|
        client = TCPSocket.new('127.0.0.1', server.addr[1])
        accepted = server.accept
        client.send('x', 0)
        accepted.recv(1)
        [client, accepted].each(&:close)
      end
      Thread.current.__polyphony_backend?
    end.value)
  end

  # A fiber that always finds something does not keep others from running.
  def test_busy_sockets_are_fair
    left, right = track(*UNIXSocket.pair(:DGRAM))
    turns = 0
    spin { loop { turns += 1; snooze } }
    200.times { left.send('x', 0); right.recv(1) }
    assert_operator turns, :>, 5
    turns = 0
    200.times { left.sendmsg('x'); right.recvmsg }
    assert_operator turns, :>, 5
  end
end
