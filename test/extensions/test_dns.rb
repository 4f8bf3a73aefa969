# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require_relative '../support/slow_names'

# Lookups: stock Ruby's answers, by the system's resolver, while other fibers run.
class TestDNS < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  include Polyphony::SlowNames

  on_every_driver
  time_limit 120

  # --- the same answers as stock Ruby ---------------------------------------------------------------

  STREAM = [nil, :STREAM].freeze
  CASES = {
    'a name' => -> { Addrinfo.getaddrinfo('localhost', 80) },
    'a name and a service' => -> { Addrinfo.getaddrinfo('localhost', 'http', *STREAM) },
    'a service as a number in a String' => -> { Addrinfo.getaddrinfo('localhost', '80', *STREAM) },
    'no service' => -> { Addrinfo.getaddrinfo('localhost', nil) },
    'port zero' => -> { Addrinfo.getaddrinfo('localhost', 0, *STREAM) },
    'a family by its name' => -> { Addrinfo.getaddrinfo('localhost', 80, 'AF_INET', 'SOCK_DGRAM') },
    'a family by its short name' => -> { Addrinfo.getaddrinfo('localhost', 80, :PF_INET, :RAW) },
    'constants' => -> { Addrinfo.getaddrinfo('localhost', 80, Socket::AF_INET, Socket::SOCK_STREAM, Socket::IPPROTO_TCP) },
    'a family that is none' => -> { Addrinfo.getaddrinfo('localhost', 80, :FOO) },
    'a family in lower case' => -> { Addrinfo.getaddrinfo('localhost', 80, :inet) },
    'a type that is none' => -> { Addrinfo.getaddrinfo('localhost', 80, nil, 'nonsense') },
    'a family that does not fit' => -> { Addrinfo.getaddrinfo('127.0.0.1', 80, :INET6) },
    'a type that does not fit' => -> { Addrinfo.getaddrinfo('127.0.0.1', 80, nil, :STREAM, Socket::IPPROTO_UDP) },
    'a family that does not fit, for Socket' => -> { Socket.getaddrinfo('::1', 80, :INET) },
    'canonical name' => -> { Addrinfo.getaddrinfo('localhost', 80, nil, nil, nil, Socket::AI_CANONNAME) },
    'canonical name of a number' => -> { Addrinfo.getaddrinfo('127.0.0.1', 80, nil, nil, nil, Socket::AI_CANONNAME) },
    'passive' => -> { Addrinfo.getaddrinfo(nil, 'http', nil, :STREAM, nil, Socket::AI_PASSIVE) },
    'numbers only' => -> { Addrinfo.getaddrinfo('localhost', 80, nil, nil, nil, Socket::AI_NUMERICHOST) },
    'configured addresses' => -> { Addrinfo.getaddrinfo('localhost', 80, *STREAM, nil, Socket::AI_ADDRCONFIG) },
    'mapped addresses' => lambda {
      Addrinfo.getaddrinfo('localhost', 80, :INET6, :STREAM, nil, Socket::AI_V4MAPPED | Socket::AI_ALL)
    },
    'flags that are none' => -> { Addrinfo.getaddrinfo('localhost', 80, nil, nil, nil, 1 << 20) },
    'IPv6' => -> { Addrinfo.getaddrinfo('::1', 80) },
    'IPv6 and a service' => -> { Addrinfo.getaddrinfo('::1', 'http', *STREAM) },
    'a scope' => -> { Addrinfo.getaddrinfo('fe80::1%lo', 80, *STREAM) },
    'a scope that is none' => -> { Addrinfo.getaddrinfo('fe80::1%nonsense', 80, nil, nil, nil, Socket::AI_NUMERICHOST) },
    'a short number' => -> { Addrinfo.getaddrinfo('127.1', 80, *STREAM) },
    'a number and a service' => -> { Addrinfo.getaddrinfo('127.0.0.1', 'http', *STREAM) },
    'an Integer' => -> { Addrinfo.getaddrinfo(0x7f000001, 80, *STREAM) },
    'nobody' => -> { Addrinfo.getaddrinfo(nil, 80) },
    'nobody and a service' => -> { Addrinfo.getaddrinfo(nil, 'http') },
    'nothing' => -> { Addrinfo.getaddrinfo(nil, nil) },
    'anywhere' => -> { Addrinfo.getaddrinfo('', 80, *STREAM) },
    'anywhere by name' => -> { Addrinfo.getaddrinfo('<any>', 'http', *STREAM) },
    'everywhere' => -> { Addrinfo.getaddrinfo('<broadcast>', 80, *STREAM) },
    'a service nobody knows' => -> { Addrinfo.getaddrinfo('localhost', 'nosuchserv') },
    'a name with a NUL' => -> { Addrinfo.getaddrinfo("local\0host", 80) },
    'a name that is too long' => -> { Addrinfo.getaddrinfo('x' * 2000, 80) },
    'a service that is too long' => -> { Addrinfo.getaddrinfo('localhost', 'x' * 200) },
    'a name of another type' => -> { Addrinfo.getaddrinfo(:localhost, 80) },
    'a service of another type' => -> { Addrinfo.getaddrinfo('localhost', :http) },
    'too few arguments' => -> { Addrinfo.getaddrinfo('localhost') },
    'a time limit' => -> { Addrinfo.getaddrinfo('localhost', 80, *STREAM, timeout: 60) },
    'Addrinfo.foreach' => -> { Addrinfo.foreach('localhost', 'http', *STREAM).to_a },
    'Addrinfo.tcp' => -> { Addrinfo.tcp('localhost', 'http') },
    'Addrinfo.udp' => -> { Addrinfo.udp('localhost', 'domain') },
    'Addrinfo.ip' => -> { Addrinfo.ip('localhost') },
    'Addrinfo.ip of a number' => -> { Addrinfo.ip('127.0.0.1') },
    'Addrinfo#family_addrinfo' => -> { Addrinfo.tcp('127.0.0.1', 80).family_addrinfo('localhost', 81) },
    'Socket.getaddrinfo' => -> { Socket.getaddrinfo('localhost', 'http') },
    'Socket.getaddrinfo without service' => -> { Socket.getaddrinfo('localhost', nil, nil, :STREAM) },
    'Socket.getaddrinfo and the name' => -> { Socket.getaddrinfo('127.0.0.1', 80, nil, :STREAM, nil, nil, true) },
    'Socket.getaddrinfo and :hostname' => -> { Socket.getaddrinfo('localhost', 80, nil, :STREAM, nil, nil, :hostname) },
    'Socket.getaddrinfo and :numeric' => -> { Socket.getaddrinfo('localhost', 80, nil, :STREAM, nil, nil, :numeric) },
    'Socket.getaddrinfo and nonsense' => -> { Socket.getaddrinfo('localhost', 80, nil, :STREAM, nil, nil, :foo) },
    'Socket.getaddrinfo and a number' => -> { Socket.getaddrinfo('localhost', 80, nil, :STREAM, nil, nil, 1) },
    'Socket.sockaddr_in' => -> { Socket.sockaddr_in(80, 'localhost') },
    'Socket.sockaddr_in of a service' => -> { Socket.sockaddr_in('http', 'localhost') },
    'Socket.sockaddr_in without a port' => -> { Socket.sockaddr_in(nil, 'localhost') },
    'Socket.pack_sockaddr_in' => -> { Socket.pack_sockaddr_in('80', 'localhost') },
    'IPSocket.getaddress' => -> { IPSocket.getaddress('localhost') },
    'IPSocket.getaddress of a number' => -> { IPSocket.getaddress('::1') },
    'Socket.gethostbyname' => -> { Socket.gethostbyname('localhost') },
    'Socket.gethostbyname of a number' => -> { Socket.gethostbyname('127.0.0.1') },
    'TCPSocket.gethostbyname' => -> { TCPSocket.gethostbyname('localhost') },
    'Socket.gethostbyaddr' => -> { Socket.gethostbyaddr([127, 0, 0, 1].pack('C4')) },
    'Socket.gethostbyaddr of a family' => -> { Socket.gethostbyaddr([127, 0, 0, 1].pack('C4'), Socket::AF_INET) },
    'Socket.gethostbyaddr of nonsense' => -> { Socket.gethostbyaddr('x') },
    'Socket.gethostbyaddr of another type' => -> { Socket.gethostbyaddr(1) },
    'Socket.getservbyname' => -> { [Socket.getservbyname('http'), Socket.getservbyname('domain', 'udp')] },
    'Socket.getservbyname of nonsense' => -> { Socket.getservbyname('nonsense') },
    'Socket.getservbyname of another protocol' => -> { Socket.getservbyname('http', 'nonsense') },
    'Socket.getservbyname of a number' => -> { [Socket.getservbyname('80'), Socket.getservbyname('0x50')] },
    'Socket.getservbyname of a near number' => -> { Socket.getservbyname('80x') },
    'Socket.getservbyname of another type' => -> { Socket.getservbyname(:http) },
    'Socket.getservbyport' => -> { Socket.getservbyport(80) },
    'Socket.getservbyport of nonsense' => -> { Socket.getservbyport(4) },
    'Socket.getservbyport of another type' => -> { Socket.getservbyport('80') },
    'Socket.getnameinfo' => -> { Socket.getnameinfo(Socket.sockaddr_in(80, '127.0.0.1')) },
    'Socket.getnameinfo with a number' => -> { Socket.getnameinfo(Socket.sockaddr_in(80, '127.0.0.1'), Socket::NI_NUMERICSERV) },
    'Socket.getnameinfo with numbers' => lambda {
      Socket.getnameinfo(Socket.sockaddr_in(80, '127.0.0.1'), Socket::NI_NUMERICSERV | Socket::NI_NUMERICHOST)
    },
    'Socket.getnameinfo of three' => -> { Socket.getnameinfo(['AF_INET', 80, 'localhost']) },
    'Socket.getnameinfo of four' => -> { Socket.getnameinfo(['AF_INET', 'domain', 'nonsense', '127.0.0.1'], Socket::NI_DGRAM) },
    'Socket.getnameinfo of two' => -> { Socket.getnameinfo(['AF_INET', 80]) },
    'Socket.getnameinfo of a name for a number' => -> { Socket.getnameinfo(['AF_INET', 80, nil, 'localhost']) },
    'Socket.getnameinfo of nil' => -> { Socket.getnameinfo(nil) },
    'Socket.getnameinfo of nonsense' => -> { Socket.getnameinfo('xx') },
    'Socket.getnameinfo of much' => -> { Socket.getnameinfo('x' * 300) },
    'Socket.getnameinfo of nothing' => -> { Socket.getnameinfo('') },
    'Socket.getnameinfo of a path' => -> { Socket.getnameinfo(Socket.sockaddr_un('/some/where')) },
    'Addrinfo#getnameinfo' => -> { Addrinfo.tcp('127.0.0.1', 80).getnameinfo },
    'Addrinfo#getnameinfo of a datagram' => -> { Addrinfo.udp('127.0.0.1', 53).getnameinfo },
    'Addrinfo#getnameinfo with a number' => -> { Addrinfo.tcp('127.0.0.1', 80).getnameinfo(Socket::NI_NUMERICHOST) },
    'Addrinfo#getnameinfo of a path' => -> { Addrinfo.unix('/some/where').getnameinfo },
    'IPSocket#addr' => -> { server { |s| [s.addr, s.addr(true), s.addr(:hostname), s.addr(false), s.addr(nil), s.addr(:numeric)] } },
    'IPSocket#addr with nonsense' => -> { server { |s| s.addr(:nonsense) } },
    'IPSocket#addr with two arguments' => -> { server { |s| s.addr(true, true) } },
    'IPSocket#addr of a socket that is to look up' => lambda {
      server { |s| s.do_not_reverse_lookup = false; [s.addr, s.addr(false), s.addr(nil)] }
    },
    'IPSocket#addr when closed' => -> { server { |s| s.close; s.addr(true) } },
    'IPSocket#peeraddr' => lambda {
      server { |s| TCPSocket.open('127.0.0.1', s.addr[1]) { |c| [c.peeraddr, c.peeraddr(true), c.peeraddr(:hostname)] } }
    },
    'IPSocket#peeraddr of nobody' => -> { server { |s| s.peeraddr(true) } },
    'UDPSocket#recvfrom' => -> { letters { |socket| socket.recvfrom(10) } },
    'UDPSocket#recvfrom into a buffer' => -> { letters { |socket| buffer = +''; [socket.recvfrom(10, 0, buffer), buffer] } },
    'UDPSocket#recvfrom with flags' => -> { letters { |socket| [socket.recvfrom(2, Socket::MSG_PEEK), socket.recvfrom(10, 0)] } },
    'UDPSocket#recvfrom_nonblock' => -> { letters { |socket| socket.wait_readable; socket.recvfrom_nonblock(10) } },
    'UDPSocket#recvfrom_nonblock of nothing' => lambda {
      letters { |socket| socket.recvfrom(9); socket.recvfrom_nonblock(9, exception: false) }
    },
    'UDPSocket#recvfrom_nonblock that raises' => lambda {
      letters { |socket| socket.recvfrom(9); socket.recvfrom_nonblock(9) }
    },
    'TCPServer.new with a service' => -> { TCPServer.new('127.0.0.1', 'nosuchserv') },
    'TCPSocket.new with a service' => -> { TCPSocket.new('127.0.0.1', 'nosuchserv') },
    'UDPSocket#bind with a service' => -> { udp { |socket| socket.bind('127.0.0.1', 'nosuchserv') } },
    'UDPSocket#connect with a service' => -> { udp { |socket| [socket.connect('127.0.0.1', 'domain'), socket.peeraddr] } },
    'UDPSocket#send with a service' => -> { udp { |socket| socket.send('', 0, '127.0.0.1', 'discard') } },
    'UDPSocket#send to an address' => -> { udp { |socket| socket.send('', 0, Socket.sockaddr_in(9, '127.0.0.1')) } },
    'UDPSocket#send to nobody' => -> { udp { |socket| socket.send('x', 0) } }
  }.freeze

  # What the cases use; ports are different each time, so they are left out.
  module Helpers
    module_function

    def server
      TCPServer.open('127.0.0.1', 0) { |socket| portless(yield(socket)) }
    end

    def udp
      socket = UDPSocket.new
      portless(yield(socket))
    ensure
      socket.close
    end

    def letters
      udp do |socket|
        socket.do_not_reverse_lookup = false
        socket.bind('127.0.0.1', 0)
        socket.send('letter', 0, '127.0.0.1', socket.local_address.ip_port)
        yield socket
      end
    end

    def portless(value)
      case value
      when Array then value[0].to_s.start_with?('AF_') ? [value[0], :port, *value[2..]] : value.map { |v| portless(v) }
      else value
      end
    end
  end
  CASES.each_value { |code| code.binding.receiver.extend(Helpers) }

  # Everything there is to see.
  def shown(value)
    case value
    when Array then value.map { |each| shown(each) }
    when Addrinfo then [value.inspect, value.canonname, shown(value.to_sockaddr), value.pfamily, value.socktype, value.protocol]
    when String then [value, value.encoding]
    when Exception then [value.class, value.message.sub(/0x\h+/, '')]
    else value
    end
  end

  def result
    shown(yield)
  rescue StandardError => e
    shown(e)
  end

  def quietly
    before, $VERBOSE = $VERBOSE, nil
    yield
  ensure
    $VERBOSE = before
  end

  # A thread that has never waited has no backend, and so stock Ruby's methods.
  def stock(&code)
    Thread.new { Thread.__polyphony_may_wait? ? flunk('has a backend') : result(&code) }.value
  end

  CASES.each do |name, code|
    define_method("test_as_stock_#{name.gsub(/\W+/, '_')}") do
      quietly do
        expected = stock(&code)
        assert_equal expected, result(&code), "#{name}, main fiber"
        assert_equal expected, spin { result(&code) }.await, "#{name}, spun fiber"
        assert_equal expected, Enumerator.new { |y| y << result(&code) }.next, "#{name}, generator"
      end
    end
  end

  def test_the_older_functions_warn_as_stock_does
    code = -> { Socket.gethostbyname('localhost'); Socket.gethostbyaddr([127, 0, 0, 1].pack('C4')); TCPSocket.gethostbyname('localhost') }
    ours, stock = [-> { code.call }, -> { Thread.new(&code).value }].map do |call|
      capture_io(&call).last.lines
    end
    assert_equal 3, ours.size
    assert_equal stock.map { |line| line[/warning: .*/] }, ours.map { |line| line[/warning: .*/] }
    ours.each { |line| assert_match(/\A#{__FILE__}:\d+:/, line) }
  end

  # --- the operations of the backend ----------------------------------------------------------------

  def test_a_name_has_addresses
    assert_includes Polyphony.backend_address_resolve('localhost') & %w[127.0.0.1 ::1], IPSocket.getaddress('localhost')
    assert_equal ['127.0.0.1'], Polyphony.backend_address_resolve('127.0.0.1')
    assert_equal ['::1'], Polyphony.backend_address_resolve('0:0::1')
    assert_equal ['fe80::1%lo'], Polyphony.backend_address_resolve('fe80::1%lo')
  end

  def test_addresses_come_packed_with_all_there_is_to_know
    address, family, socktype, protocol, canonical = Polyphony.backend_getaddrinfo('127.0.0.1', 80, 0, Socket::SOCK_STREAM).first
    assert_equal Socket.sockaddr_in(80, '127.0.0.1'), address
    assert_equal [Socket::AF_INET, Socket::SOCK_STREAM, Socket::IPPROTO_TCP, nil], [family, socktype, protocol, canonical]
  end

  def test_an_address_has_a_name
    assert_equal %w[127.0.0.1 80], Polyphony.backend_getnameinfo(Socket.sockaddr_in(80, '127.0.0.1'), 3)
    expected = Thread.new { Socket.getnameinfo(Socket.sockaddr_in(80, '127.0.0.1')) }.value
    assert_equal expected, Polyphony.backend_getnameinfo(Socket.sockaddr_in(80, '127.0.0.1'))
  end

  def test_wrong_arguments_are_refused
    assert_raises(TypeError) { Polyphony.backend_getaddrinfo(1, 80) }
    assert_raises(TypeError) { Polyphony.backend_getaddrinfo('localhost', :http) }
    assert_raises(ArgumentError) { Polyphony.backend_address_resolve("a\0b") }
    assert_raises(TypeError) { Polyphony.backend_getnameinfo(nil) }
    assert_match(/200 bytes/, assert_raises(ArgumentError) { Polyphony.backend_getnameinfo('x' * 200) }.message)
  end

  def test_a_lookup_takes_its_turn_also_for_a_number
    %w[127.0.0.1 localhost].each do |host|
      turns = 0
      spin { turns += 1 }
      Polyphony.backend_address_resolve(host)
      assert_equal 1, turns, host
    end
  end

  def test_a_lookup_can_be_ended_at_every_wait
    cancel_everywhere do |run|
      found = nil
      run.scenario { found = [Addrinfo.tcp('localhost', 80).ip_port, Socket.getnameinfo(['AF_INET', 80, '127.0.0.1']).size] }
      run.check { |finished| assert_equal [80, 2], found if finished }
    end
  end

  # --- a resolver that hangs ------------------------------------------------------------------------

  # What is called, and what it gives when the resolver has answered.
  SLOW = {
    "Addrinfo.getaddrinfo('hang', 80, nil, :STREAM).map(&:inspect)" => ['#<Addrinfo: 127.0.0.1:80 TCP (hang)>'],
    "Addrinfo.tcp('hang', 80).inspect" => '#<Addrinfo: 127.0.0.1:80 TCP (hang)>',
    "Addrinfo.udp('hang', 80).inspect" => '#<Addrinfo: 127.0.0.1:80 UDP (hang)>',
    "Addrinfo.ip('hang').inspect" => '#<Addrinfo: 127.0.0.1 (hang)>',
    "Addrinfo.tcp('127.0.0.1', 'hangserv').inspect" => '#<Addrinfo: 127.0.0.1:7 TCP (:hangserv)>',
    "Addrinfo.tcp(nil, 'hangserv').ip_port" => 7,
    "Socket.getaddrinfo('hang', 80, nil, :STREAM)" => [['AF_INET', 80, '127.0.0.1', '127.0.0.1', 2, 1, 6]],
    "Socket.getaddrinfo('127.9.9.1', 80, nil, :STREAM, nil, nil, true)" => [['AF_INET', 80, 'slow.test', '127.9.9.1', 2, 1, 6]],
    "Socket.sockaddr_in(80, 'hang')" => Socket.sockaddr_in(80, '127.0.0.1'),
    "Socket.pack_sockaddr_in(80, 'hang')" => Socket.sockaddr_in(80, '127.0.0.1'),
    "IPSocket.getaddress('hang')" => '127.0.0.1',
    "Socket.gethostbyname('hang')[2..]" => [2, [127, 0, 0, 1].pack('C4')],
    "TCPSocket.gethostbyname('hang')[2..]" => [2, '127.0.0.1'],
    "Socket.gethostbyaddr([127, 9, 9, 1].pack('C4'))[0]" => 'localhost',
    "Socket.getservbyname('hangserv')" => 7,
    'Socket.getservbyport(9999)' => 'echo',
    "Socket.getnameinfo(Socket.sockaddr_in(7, '127.9.9.1'))" => ['slow.test', '7'],
    "Socket.getnameinfo(['AF_INET', 7, '127.9.9.1'])" => ['slow.test', '7'],
    "Addrinfo.tcp('127.9.9.1', 7).getnameinfo" => ['slow.test', '7'],
    "TCPServer.open('127.9.9.1', 0) { |s| s.addr(true)[2] }" => 'slow.test',
    "TCPServer.open('127.9.9.1', 0) { |s| TCPSocket.open('127.9.9.1', s.local_address.ip_port) { |c| c.peeraddr(true)[2] } }" => 'slow.test',
    "UDPSocket.new.tap { |s| s.do_not_reverse_lookup = false; s.bind('127.9.9.1', 0); s.send('hi', 0, '127.9.9.1', " \
      's.local_address.ip_port) }.recvfrom(9).then { |text, sender| [text, sender[2]] }' => ['hi', 'slow.test'],
    "Polyphony.backend_address_resolve('hang')" => ['127.0.0.1'],
    "UDPSocket.new.then { |s| s.connect('127.0.0.1', 'hangserv'); s.remote_address.ip_port }" => 7,
    "UDPSocket.new.then { |s| s.connect('hang', 9); s.remote_address.ip_address }" => '127.0.0.1',
    "UDPSocket.new.then { |s| s.bind('hang', 0); s.local_address.ip_address }" => '127.0.0.1',
    "UDPSocket.new.send('', 0, 'hang', 9)" => 0,
    "TCPServer.open('hang', 0) { |s| s.local_address.ip_address }" => '127.0.0.1',
    "TCPServer.open('127.0.0.1', 0) { |s| TCPSocket.open('hang', s.local_address.ip_port) { |c| c.remote_address.ip_address } }" => '127.0.0.1',
    "TCPServer.open('127.0.0.1', 0) { |s| Socket.tcp('hang', s.local_address.ip_port) { |c| c.remote_address.ip_address } }" => '127.0.0.1'
  }.freeze

  def test_other_fibers_go_on_while_the_resolver_hangs
    out = with_slow_names(<<~'RUBY', SLOW.keys.join("\n"))
      ARGV[0].lines(chomp: true).each do |code|
        found = [-> { eval(code) }, -> { spin { eval(code) }.await }].map do |call|
          new_gate
          gate = meanwhile
          call.call.tap { gate.await }
        end
        p found
      end
    RUBY
    SLOW.zip(out.lines) { |(code, expected), line| assert_equal [expected, expected].inspect, line.to_s.chomp, code }
  end

  def test_a_connect_goes_on_when_the_name_is_known
    assert_equal "hello\n", with_slow_names(<<~'RUBY')
      server = TCPServer.new('127.0.0.1', 0)
      port = server.local_address.ip_port
      spin { Polyphony.backend_accept(server, TCPSocket).then { |peer| Polyphony.backend_write(peer, 'hello') } }
      meanwhile
      socket = Socket.new(:INET, :STREAM)
      Polyphony.backend_connect(socket, 'hang', port)
      puts Polyphony.backend_read(socket, nil, 5, true, 0)
    RUBY
  end

  def test_a_connect_of_stock_ruby_is_ended_while_it_asks_for_the_name
    assert_equal "[:late, :late]\n", with_slow_names(<<~'RUBY')
      connect = lambda do
        move_on_after(60, with_value: :late) do |scope|
          spin { began; scope.cancel }
          TCPSocket.new('hang', 9)
        end
      end
      p [connect.call, spin(&connect).await]
    RUBY
  end

  def test_a_cancel_does_not_wait_for_the_resolver
    assert_equal "[:late, :stopped, :raised, \"user specified timeout\"]\n", with_slow_names(<<~'RUBY')
      late = move_on_after(60, with_value: :late) do |scope|
        spin { began; scope.cancel }
        Addrinfo.tcp('hang', 80)
      end
      fiber = spin { Socket.getnameinfo(Socket.sockaddr_in(7, '127.9.9.1')) }
      began
      fiber.stop(:stopped)
      raised = spin { IPSocket.getaddress('hang') rescue :raised }
      began
      raised.raise('enough')
      error = Addrinfo.getaddrinfo('hang', 80, timeout: 0.001) rescue $!
      p [late, fiber.await, raised.await, error.message[/user.*/]]
    RUBY
  end

  def test_the_program_ends_although_the_resolver_hangs
    assert_equal "bye\n", with_slow_names(<<~'RUBY')
      spin { Addrinfo.tcp('hang', 80) }
      began
      puts 'bye'
    RUBY
    assert_equal "bye\n", with_slow_names(<<~'RUBY')
      thread = Thread.new { Addrinfo.tcp('hang', sleep(0)) rescue nil; sleep 0; Socket.getservbyname('hangserv') }
      began
      thread.kill
      thread.join
      puts 'bye'
    RUBY
  end

  def test_a_hundred_lookups_and_files_meanwhile
    assert_equal "[64, 100, [\"127.0.0.1\"], 0]\n", with_slow_names(<<~'RUBY')
      fibers = 100.times.map { |i| spin { IPSocket.getaddress("hang#{i}") } }
      began(64)                                # the others are in the queue
      beats
      file = File.open(__FILE__ == '-e' ? '/proc/self/status' : __FILE__)
      size = Polyphony.backend_stat(file)[:size] - file.size
      Polyphony.backend_read(file, nil, 10, false, 0)
      let_go(100)
      found = fibers.map(&:await)
      p [64, found.size, found.uniq, size]
    RUBY
  end

  def test_lookups_given_up_do_not_keep_out_others
    assert_equal "[100, true]\n", with_slow_names(<<~'RUBY')
      given_up = 100.times.map { |i| spin { IPSocket.getaddress("hang#{i}") } }
      began(64)
      given_up.each(&:stop)
      count = given_up.count { |fiber| fiber.await.nil? }
      p [count, %w[127.0.0.1 ::1].include?(IPSocket.getaddress('localhost'))]
    RUBY
  end

  def test_one_that_is_given_up_in_the_queue_never_begins
    assert_equal "[\"127.0.0.1\"] 64 \n", with_slow_names(<<~'RUBY')
      fibers = 64.times.map { |i| spin { IPSocket.getaddress("hang#{i}") } }
      began(64)
      spin { IPSocket.getaddress('hang-queued') }.then { |fiber| snooze; fiber.stop; fiber.await }
      let_go(64)
      found = fibers.map(&:await)
      print found.uniq, ' ', found.size, ' ', move_on_after(0.02) { began; 'began' }, "\n"
    RUBY
  end

  def test_an_interjection_runs_while_the_resolver_hangs
    assert_equal "[[:interjected], \"127.0.0.1\"]\n", with_slow_names(<<~'RUBY')
      seen = []
      fiber = spin { IPSocket.getaddress('hang') }
      began
      fiber.interject { seen << :interjected }
      began                                    # it asks again: the first one's answer is nobody's
      let_go(2)
      p [seen, fiber.await]
    RUBY
  end

  def test_a_child_looks_up_for_itself
    assert_equal "child 127.0.0.1\nparent 127.0.0.1\n", with_slow_names(<<~'RUBY')
      fiber = spin { IPSocket.getaddress('hang') }
      began
      $stdout.sync = true
      pid = fork do
        new_gate
        gate = meanwhile
        puts "child #{IPSocket.getaddress('hang')}"
        gate.await
      end
      Polyphony.backend_waitpid(pid)
      let_go
      puts "parent #{fiber.await}"
    RUBY
  end

  def test_errors_are_those_of_stock_ruby
    out = with_slow_names(<<~'RUBY')
      calls = [-> { Addrinfo.tcp('nosuch', 80) }, -> { IPSocket.getaddress('again') }, -> { Socket.getaddrinfo('nosuch', 'http') },
               -> { Addrinfo.getaddrinfo('broken', 80) }, -> { Socket.gethostbyname('again') },
               -> { Socket.sockaddr_in(80, "nosuch\n") }, -> { Addrinfo.tcp('again', 'http') }]
      calls.each do |call|
        stock, ours = [Thread.new { call.call rescue $! }.value, (call.call rescue $!)].map do |error|
          [error.class, error.message, (error.error_code if error.respond_to?(:error_code))]
        end
        puts stock == ours ? ours[1] : [stock, ours].inspect
      end
      puts((Polyphony.backend_connect(Socket.new(:INET, :STREAM), 'nosuch', 80) rescue $!).message)
    RUBY
    unknown, late = Socket.const_defined?(:EAI_NONAME) && ['Name or service not known', 'Temporary failure in name resolution']
    expected = [unknown, late, unknown, 'Too many open files in system', late, 'newline at the end of hostname', late, "#{unknown} (nosuch:80)"]
    out.lines(chomp: true).zip(expected) { |line, text| assert_includes line, text }
    assert_equal expected.size, out.lines.size
  end

  def test_a_name_may_have_many_addresses
    assert_equal "[60, \"127.0.1.60\", 180, 60]\n", with_slow_names(<<~'RUBY')
      p [Polyphony.backend_address_resolve('many.test').size, Polyphony.backend_address_resolve('many.test').last,
         Addrinfo.getaddrinfo('many.test', 80).size, Socket.gethostbyname('many.test')[3..].size]
    RUBY
  end

  def test_an_address_with_many_names_is_refused_as_by_stock
    assert_equal "sockaddr resolved to multiple nodename\n" * 2, with_slow_names(<<~'RUBY')
      code = -> { Socket.getnameinfo(['AF_INET', 80, 'many.test'], Socket::NI_NUMERICSERV) rescue puts $!.message }
      let_go(2)
      code.call
      Thread.new(&code).value
    RUBY
  end

  def test_several_threads_look_up
    assert_equal "4 [\"127.0.0.1\"]\n", with_slow_names(<<~'RUBY')
      threads = 4.times.map { Thread.new { sleep 0; 3.times.map { spin { IPSocket.getaddress('hang') } }.map(&:await) } }
      began(12)
      let_go(12)
      found = threads.map(&:value)
      puts "#{found.size} #{found.flatten.uniq}"
    RUBY
  end

  def test_a_signal_handler_gets_stock_lookups
    assert_equal "true\n", with_slow_names(<<~'RUBY')
      trap(:USR1) { $found = IPSocket.getaddress('localhost') }
      Process.kill(:USR1, $$)
      sleep 0.001 until $found
      puts %w[127.0.0.1 ::1].include?($found)
    RUBY
  end

  # --- beside a scheduler ---------------------------------------------------------------------------

  # What the block returns in a fiber whose hooks Ruby calls.
  def with_scheduler(&block)
    spin { Fiber.current_scheduler ? result(&block) : flunk('no scheduler') }.await
  end

  def test_a_name_goes_through_the_scheduler
    server = track(TCPServer.new('127.0.0.1', 0))
    port = server.local_address.ip_port
    assert_equal port, with_scheduler { track(TCPSocket.new('localhost', port)).remote_address.ip_port }
  end

  # Ruby alone takes only numbers for a service then.
  def test_a_service_is_known_where_there_is_a_scheduler
    port = Socket.getservbyname('domain')
    assert_equal [0, port], with_scheduler { Helpers.udp { |socket| [socket.connect('127.0.0.1', 'domain'), socket.remote_address.ip_port] } }
    assert_equal 0, with_scheduler { Helpers.udp { |socket| socket.send('', 0, 'localhost', 'discard') } }
    assert_equal [Errno::ECONNREFUSED], with_scheduler { TCPSocket.new('127.0.0.1', 'tcpmux').class }.first(1)
    bound = with_scheduler { TCPServer.open('127.0.0.1', 'tcpmux') { 1 } } # port 1, which only root may use
    assert_includes [1, Errno::EACCES], Array(bound).first
  rescue SocketError
    skip 'there is no table of services'
  end

  # Somebody else's scheduler has the lookups of its fibers.
  def test_another_scheduler_is_asked
    other = Class.new do
      def address_resolve(host) = host == 'elsewhere.test' ? ['127.0.0.7'] : []
      def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
      %i[io_wait kernel_sleep block unblock close].each { |hook| define_method(hook) { |*| nil } }
    end
    found = nil
    Thread.new do
      sleep 0 # now there is a backend
      Fiber.set_scheduler(other.new)
      Fiber.schedule { found = IPSocket.getaddress('elsewhere.test') }
    end.join
    assert_equal '127.0.0.7', found
  end

  # And no scope.
  def test_a_scope_is_known_where_there_is_a_scheduler
    expected = stock { Addrinfo.getaddrinfo('fe80::1%lo', 9, :INET6, :DGRAM) }
    skip 'there is no IPv6' if expected.first == SocketError
    assert_equal expected, with_scheduler { Addrinfo.getaddrinfo('fe80::1%lo', 9, :INET6, :DGRAM) }
    socket = -> { track(UDPSocket.new(:INET6)) }
    calls = [-> { socket.call.connect('fe80::1%lo', 9) }, -> { socket.call.send('', 0, 'fe80::1%lo', 9) },
             -> { socket.call.bind('fe80::1%lo', 0) }, -> { TCPServer.new('fe80::1%lo', 0) }, -> { TCPSocket.new('fe80::1%lo', 9) }]
    calls.each { |call| assert_equal stock(&call), with_scheduler(&call) }
  end

  def test_a_deadlock_report_knows_no_lookup_but_a_limit_names_it
    out = with_slow_names(<<~'RUBY')
      begin
        cancel_after(0.05) { IPSocket.getaddress('hang.example') }
      rescue Polyphony::Cancel => e
        puts e.message
      end
    RUBY
    assert_match(/a name to be looked up \("hang\.example"\)/, out)
  end
end
