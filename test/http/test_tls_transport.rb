# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require 'polyphony/http'

# The bytes of a connection in TLS, by themselves: no HTTP here.
class TestHTTPTLSTransport < Polyphony::TestCase
  include Polyphony::Certificates
  on_every_driver

  HTTP = Polyphony::HTTP
  TLS = HTTP::TLS.new(**%i[cert key].zip(Polyphony::Certificates.certificate('a.test')).to_h)

  # As much of a connection as a transport knows.
  class Peer
    attr_reader :limits, :refusals

    def initialize(**limits)
      @limits = HTTP::Limits.new(**limits)
      @refusals = []
    end

    def refuse(error)
      @refusals << error.message
    end
  end

  def outcome
    yield
  rescue HTTP::Error, SystemCallError, IOError, OpenSSL::SSL::SSLError => e
    e
  end

  # @return [Array(BasicSocket, BasicSocket)] ours and theirs, over TCP
  def bare
    theirs, ours = tcp_pair
    [ours, theirs]
  end

  # @return [Array(TLSTransport, OpenSSL::SSL::SSLSocket)] after a handshake
  def pair(limits: {}, **settings)
    ours, theirs = bare
    @peer = Peer.new(**limits)
    server = spin { outcome { HTTP::TLSTransport.accept(ours, TLS, @peer) } }
    context = OpenSSL::SSL::SSLContext.new
    settings.each { |setting, value| context.public_send(:"#{setting}=", value) }
    client = OpenSSL::SSL::SSLSocket.new(theirs, context)
    client.hostname = 'a.test'
    client.connect
    [server.await, client]
  end

  def buffer(text = '')
    String.new(text, encoding: Encoding::BINARY, capacity: HTTP::Transport::READ_SIZE)
  end

  def accept(ours, **limits)
    @peer = Peer.new(**limits)
    outcome { HTTP::TLSTransport.accept(ours, TLS, @peer) }
  end

  # --- reading ---------------------------------------------------------------------------------

  def test_fill_appends_what_has_come
    transport, client = pair
    text = buffer
    client.syswrite('one')
    assert_equal 3, transport.fill(text)
    client.syswrite('two')
    assert_equal 3, transport.fill(text, 10)
    assert_equal ['onetwo', Encoding::BINARY], [text, text.encoding]
  end

  def test_fill_says_when_the_time_is_over_and_the_buffer_can_be_used_again
    transport, client = pair
    ['', 'before'].each do |start|
      text = buffer(start)
      assert_equal false, transport.fill(text, 0.01)
      text << '!'
      client.syswrite('x')
      assert_equal 1, transport.fill(text, 10)
      assert_equal "#{start}!x", text
    end
  end

  def test_a_fill_that_is_stopped_leaves_the_buffer_to_be_used
    transport, client = pair
    text = buffer
    fiber = waiting { transport.fill(text, 10) }
    fiber.stop
    fiber.await
    client.syswrite('x')
    assert_equal 1, transport.fill(text, 10)
    assert_equal 'x', text
  end

  def test_a_good_bye_is_the_end
    transport, client = pair
    client.syswrite('x')
    client.__send__(:stop)
    text = buffer
    assert_equal [1, nil], [transport.fill(text), transport.fill(text)]
    assert_nil transport.fill(buffer, 10)
  end

  def test_an_end_without_a_good_bye_is_none
    transport, client = pair
    client.syswrite('part of a body')
    client.io.close
    text = buffer
    transport.fill(text)
    assert_raises(HTTP::ClientGone) { transport.fill(text) }
    assert_empty @peer.refusals
  end

  TCP_CLOSE = 7

  # The end comes first, and then OpenSSL cannot even tell the client that it is none: newer versions report only that.
  # @return [TLSTransport]
  def abandoned
    transport, client = pair
    transport.write('x')
    client.sysread(1) # and the tickets: to close with something unread would be a reset
    client.io.close
    transport.write('y')
    sleep 0.01 until transport.socket.getsockopt(:TCP, :INFO).data.getbyte(0) == TCP_CLOSE
    transport
  end

  def test_an_end_without_a_good_bye_is_none_either_if_we_said_something_after_it
    transport = abandoned
    assert_raises(HTTP::ClientGone) { transport.fill(buffer, 10) }
    assert_empty @peer.refusals
  end

  def test_the_short_way_for_requests_tells_such_an_end_from_broken_tls
    transport = abandoned
    parser = HTTP::HTTP1.const_get(:Parser).new(@peer.limits)
    error = assert_raises(OpenSSL::SSL::SSLError) { parser.request(nil, transport.socket, transport.io, buffer) }
    assert_raises(HTTP::ClientGone) { transport.gone(error) }
    assert_empty @peer.refusals
  end

  def test_a_reset_is_the_client_gone
    transport, client = pair
    client.io.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    client.io.close
    assert_raises(HTTP::ClientGone) { transport.fill(buffer, 10) }
    assert_raises(HTTP::ClientGone) { 3.times { transport.write('x') } }
  end

  def test_broken_records_are_told_once_and_are_the_end
    transport, client = pair
    client.io.write("\x17\x03\x03\x00\x20#{'rubbish ' * 4}")
    2.times { assert_raises(HTTP::ClientGone) { transport.fill(buffer, 10) } }
    assert_match(/\ATLS: (?!SSL_read)/, @peer.refusals.first)
    assert_match(/bad record mac/, @peer.refusals.first) if OpenSSL::OpenSSLError.method_defined?(:errors)
    assert_raises(HTTP::ClientGone) { transport.write('x') }
    assert_equal 1, @peer.refusals.size
    transport.close
  end

  # Neither Ruby's openssl nor every version of its command line can ask for new keys one time after the other.
  KEYS_CLIENT = <<~'RUBY'
    require 'fcntl'
    require 'fiddle'
    require 'openssl'
    require 'socket'
    library = Fiddle.dlopen(File.read('/proc/self/maps')[%r{/\S*/libssl\S*}])
    pointer = Fiddle::TYPE_VOIDP
    int = Fiddle::TYPE_INT
    call = lambda do |name, types, result, *arguments|
      Fiddle::Function.new(library[name], types, result).call(*arguments)
    end
    context = call.('SSL_CTX_new', [pointer], pointer, call.('TLS_client_method', [], pointer))
    ssl = call.('SSL_new', [pointer], pointer, context)
    socket = TCPSocket.new('127.0.0.1', Integer(ARGV.first))
    socket.fcntl(Fcntl::F_SETFL, 0) # OpenSSL waits by itself then
    call.('SSL_set_fd', [pointer, int], int, ssl, socket.fileno)
    call.('SSL_connect', [pointer], int, ssl)
    loop do
      call.('SSL_key_update', [pointer, int], int, ssl, 1)
      call.('SSL_do_handshake', [pointer], int, ssl)
    end
  RUBY

  # A client that asks for new keys (TLS 1.3) and nothing else, stopped after a while.
  def with_requests_for_keys
    server = track(TCPServer.new('127.0.0.1', 0))
    alone = { 'RUBYOPT' => nil, 'LD_PRELOAD' => nil }
    skip 'fiddle is not installed' unless system(alone, RbConfig.ruby, '-rfiddle', '-e', '', err: File::NULL)

    pid = Process.spawn(alone, RbConfig.ruby, '-e', KEYS_CLIENT, server.local_address.ip_port.to_s,
                        out: File::NULL, err: File::NULL, pgroup: true)
    transport = HTTP::TLSTransport.accept(track(server.accept), TLS, Peer.new)
    sleep 0.05 until waiting_bytes(transport.socket) > 30_000
    Process.kill(:STOP, -pid)
    yield transport
  ensure
    if pid
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    end
  end

  FIONREAD = 0x541B

  def waiting_bytes(socket)
    [0].pack('i').tap { |count| socket.ioctl(FIONREAD, count) }.unpack1('i')
  end

  def test_requests_for_new_keys_let_others_run_and_have_a_time_limit
    with_requests_for_keys do |transport|
      turns = 0
      others = spin { loop { snooze.then { turns += 1 unless waiting_bytes(transport.socket).zero? } } }
      assert_equal false, transport.fill(buffer, 0.5)
      others.stop
      assert_operator turns, :>, 20
    end
  end

  # --- writing ---------------------------------------------------------------------------------

  def test_pieces_of_any_size_and_encoding_arrive
    transport, client = pair
    pieces = [['é', "\xff".b, ''], ['x' * 16_385], ['y' * 100_000, 'é' * 50_000], ['']]
    reader = spin { client.read }
    pieces.each { |strings| transport.write(*strings) }
    transport.close
    assert_equal pieces.flatten.map(&:b).join, reader.await.b
  end

  def test_small_pieces_go_out_in_one_record
    transport, client = pair
    transport.write('head', 'body')
    assert_equal 'headbody', client.sysread(100)
  end

  def test_a_part_of_a_file_arrives
    transport, client = pair
    content = Random.bytes(400_000)
    Tempfile.create do |file|
      file.binmode
      file.write(content)
      file.flush
      reader = spin { client.read }
      transport.write_file(file, 1_000, 390_000)
      transport.close
      assert reader.await == content[1_000, 390_000], 'not the same bytes'
    end
  end

  def test_a_file_that_is_too_short_is_an_error
    transport, client = pair
    Tempfile.create do |file|
      file.write('short')
      file.flush
      assert_raises(EOFError) { transport.write_file(file, 0, 10) }
      assert_equal 'short', client.sysread(100)
    end
  end

  def test_a_client_that_takes_nothing_is_too_slow_and_is_not_written_to_again
    transport, client = pair(limits: { write_stall: 0.1 })
    assert_raises(HTTP::TooSlow) { transport.write('x' * 50_000_000) }
    assert_raises(HTTP::ClientGone) { transport.write('more') }
    transport.close
    assert_predicate transport, :closed?
    assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { nil while client.readpartial(65_536) }
  end

  def test_a_client_that_takes_some_is_not_too_slow
    transport, client = pair(limits: { write_stall: 0.3 })
    total = 3_000_000
    reader = spin do
      got = 0
      while got < total
        got += client.readpartial(40_000).bytesize
        sleep 0.005
      end
      got
    end
    transport.write('x' * total)
    assert_equal total, reader.await
  end

  def test_a_write_that_is_stopped_ends_the_connection
    transport, client = pair
    fiber = waiting { transport.write('x' * 50_000_000) }
    fiber.stop
    fiber.await
    assert_raises(HTTP::ClientGone) { transport.write('more') }
    transport.close
    assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { nil while client.readpartial(65_536) }
  end

  def test_several_fibers_that_write_take_turns
    transport, client = pair
    sizes = { 'a' => 20_000_000, 'b' => 100_000, 'c' => 100_000 }
    writers = sizes.map { |letter, size| spin { transport.write(letter * size) } }
    snooze until writers.all? { |writer| writer.state == :waiting }
    reader = spin { client.read }
    writers.each(&:await)
    transport.close
    assert_equal sizes.to_a, reader.await.scan(/a+|b+|c+/).map { |run| [run[0], run.size] }
  end

  def test_who_waits_for_a_turn_learns_that_the_connection_broke
    transport, = pair
    first = waiting { transport.write('x' * 20_000_000) }
    second = waiting { transport.write('y') }
    first.stop
    assert_kind_of HTTP::ClientGone, second.await
    transport.close
  end

  def test_who_gives_up_waiting_for_a_turn_breaks_nothing
    transport, client = pair
    first = waiting { transport.write('x' * 20_000_000) }
    second = waiting { transport.write('y') }
    second.stop
    second.await
    reader = spin { client.read }
    first.await
    transport.write('z')
    transport.close
    assert_equal [20_000_000, 'z'], reader.await.then { |all| [all.count('x'), all.delete('x')] }
  end

  def test_what_goes_at_once_is_written_and_the_rest_comes_next
    transport, client = pair
    data = Random.bytes(20_000_000)
    written = transport.try_write(data)
    assert_operator written, :<, data.bytesize
    assert_equal 0, transport.try_write(data.byteslice(written..))
    reader = spin { client.read }
    transport.write(data.byteslice(written..))
    assert_equal 3, transport.try_write('end')
    transport.close
    assert reader.await == "#{data}end".b, 'not the same bytes'
  end

  def test_what_was_begun_and_not_ended_is_no_good_bye
    transport, client = pair
    transport.try_write('x' * 20_000_000)
    transport.close
    assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { nil while client.readpartial(65_536) }
  end

  def test_reading_takes_no_more_than_is_asked_for
    transport, client = pair
    client.syswrite('abcdef')
    text = buffer
    assert_equal [2, 4], [transport.fill(text, 10, 2), transport.fill(text, 10, 5)]
    assert_equal 'abcdef', text
    assert_nil transport.detach
  end

  def test_reading_and_writing_go_on_at_the_same_time
    transport, client = pair
    echo = spin do
      text = buffer
      while transport.fill(text, 10)
        transport.write(text)
        text.clear
      end
    end
    got = spin { client.read(2_000_000) }
    20.times { client.write('x' * 100_000) }
    assert_equal 2_000_000, got.await.bytesize
    client.__send__(:stop)
    echo.await
  end

  # --- the end ---------------------------------------------------------------------------------

  def test_closing_says_good_bye_without_waiting_for_the_client
    transport, client = pair
    transport.write('bye')
    transport.close
    assert_equal %w[bye], [client.sysread(10)]
    assert_raises(EOFError) { client.sysread(10) }
    assert_predicate transport, :closed?
  end

  def test_closing_one_direction_leaves_the_other
    transport, client = pair
    transport.close_write
    assert_raises(EOFError) { client.sysread(10) }
    client.syswrite('still')
    text = buffer
    assert_equal 5, transport.fill(text, 10)
  end

  def test_a_reset_is_no_good_bye
    transport, client = pair
    transport.write('not all')
    transport.reset
    assert_raises(Errno::ECONNRESET, OpenSSL::SSL::SSLError) { 2.times { client.sysread(10) } }
  end

  # --- the handshake ---------------------------------------------------------------------------

  def test_what_was_agreed_upon_can_be_asked
    transport, = pair(alpn_protocols: %w[http/1.1])
    assert_equal %w[https http/1.1 TLSv1.3], [transport.scheme, transport.alpn, transport.version]
    assert_match(/AES|CHACHA/, transport.cipher)
    assert_nil transport.peer_certificate
    assert_equal 'http/1.1', pair.first.alpn
  end

  def test_a_handshake_that_takes_too_long_is_given_up
    ours, theirs = bare
    hello = spin do
      "\x16\x03\x01\x02\x00\x01".each_char do |byte|
        theirs.write(byte)
        sleep 0.02
      end
    end
    error = accept(ours, handshake_time: 0.2)
    assert_equal [HTTP::TooSlow, 'no TLS handshake within 0.2 s'], [error.class, error.message]
    hello.await
  end

  def test_junk_is_refused_and_no_address_is_in_the_reason
    [Random.new(1).bytes(16_384).sub(/\A./n, 'x'), "\x16\x03\x01\x40\x00#{'x' * 16_384}", "\x80\x2e\x01\x00\x02"].each do |junk|
      ours, theirs = bare
      theirs.write(junk)
      theirs.close_write
      error = accept(ours, handshake_time: 5)
      assert_kind_of HTTP::Error, error
      refute_match(/127\.0\.0\.1|errno/, error.message)
    end
  end

  def test_plain_http_gets_an_answer_it_can_read
    ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n#{'x' * 30_000}"].each do |request|
      ours, theirs = bare
      theirs.write(request)
      answer = spin { theirs.read.tap { theirs.close } }
      error = accept(ours)
      ours.close
      assert_equal 'TLS handshake: http request', error.message
      assert_match(%r{\AHTTP/1\.1 400 Bad Request\r\n.*\r\n\r\nThis port speaks HTTPS: use an https:// URL\.\z}m, answer.await)
    end
  end

  def test_who_hangs_up_during_the_handshake_is_gone
    ours, theirs = bare
    theirs.close
    assert_kind_of HTTP::ClientGone, accept(ours)
    ours, theirs = bare
    theirs.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    theirs.write("\x16\x03")
    fiber = spin { accept(ours) }
    snooze
    theirs.close
    assert_kind_of HTTP::ClientGone, fiber.await
  end

  def test_a_socket_that_is_closed_meanwhile_ends_the_handshake
    ours, = bare
    fiber = spin { accept(ours) }
    snooze until fiber.state == :waiting
    ours.close
    assert_kind_of HTTP::ClientGone, fiber.await
  end

  def test_a_client_cannot_negotiate_anew
    transport, client = pair(max_version: :TLS1_2)
    reader = spin { outcome { transport.fill(buffer, patient(5)) } }
    # Ruby cannot ask for it; openssl can: see test_https.rb. Here, that the option is set.
    assert_operator TLS.context.options & OpenSSL::SSL::OP_NO_RENEGOTIATION, :>, 0
    client.syswrite('x')
    assert_equal 1, reader.await
  end
end
