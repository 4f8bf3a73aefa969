# frozen_string_literal: true

require 'fcntl'
require_relative '../test_helper'
require_relative '../support/tls'
require 'polyphony/testing'

# TLS sockets of stock Ruby. Both ends are in one thread, so whoever waited there with the whole thread
# would wait for ever.
class TestOpenSSL < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  TLS = Polyphony::TLS
  SSL = OpenSSL::SSL
  VERSIONS = { '1.2' => SSL::TLS1_2_VERSION, '1.3' => SSL::TLS1_3_VERSION }.freeze

  # @return [Array(SSLSocket, SSLSocket)] client and server before their handshake
  def tls_pair(tcp: false, **contexts)
    track(*TLS.wrap(*(tcp ? tcp_pair : socket_pair), **contexts))
  end

  # The same after it.
  def connected(**options)
    client, server = tls_pair(**options)
    accepting = spin { server.accept }
    client.connect
    accepting.await
    [client, server]
  end

  # In the main fiber, in a spun one, and in the fiber of Enumerator#next.
  def everywhere
    yield
    spin { yield }.await
    Enumerator.new { |yielder| yielder << yield }.next
  end

  # What the block returns, and that another fiber ran while it waited.
  def with_heartbeat
    beats = 0
    heart = spin { loop { beats += 1; snooze } }
    result = yield
    assert_operator beats, :>, 0, 'nobody ran meanwhile'
    result
  ensure
    heart.stop
  end

  # --- the stock methods --------------------------------------------------------------------------

  VERSIONS.each do |name, version|
    define_method("test_a_client_waits_for_every_answer_with_tls_#{name}") do
      everywhere do
        client, server = tls_pair(client_context: TLS.client(version: version), server_context: TLS.server)
        serving = spin { answer_everything(server.accept) }
        with_heartbeat { client.connect }
        assert_equal "TLSv#{name}", client.ssl_version
        ask_everything(client)
        serving.await
        [client, server].each(&:close)
      end
    end

    define_method("test_a_server_waits_for_every_question_with_tls_#{name}") do
      everywhere do
        client, server = tls_pair(client_context: TLS.client(version: version), server_context: TLS.server)
        asking = spin { ask_everything(client.connect) }
        with_heartbeat { server.accept }
        answer_everything(server)
        asking.await
        [client, server].each(&:close)
      end
    end
  end

  def ask_everything(socket)
    ask = ->(&read) { settle; socket << '?'; with_heartbeat(&read) }
    assert_equal "one\n", ask.call { socket.gets }
    assert_equal "two\n", ask.call { socket.readline }
    assert_equal 'rea', ask.call { socket.read(3) }
    assert_equal 'dpart', ask.call { socket.readpartial(100) }
    assert_equal 'sys', ask.call { socket.sysread(100) }
    lines = []
    ask.call { socket.each_line { |line| lines << line } }
    assert_equal %W[a\n b\n c], lines
    assert_nil socket.gets
    assert_predicate socket, :eof?
    assert_equal '', socket.read
    assert_raises(EOFError) { socket.readpartial(1) }
  end

  # Each answer is sent when the other has come to wait for it.
  def answer_everything(socket)
    answers = [-> { socket.puts 'one' }, -> { socket.print 'two', "\n" }, -> { socket.write 'rea' },
               -> { socket << 'dpart' }, -> { socket.syswrite('sys') }, -> { socket << "a\nb\nc" }]
    answers.each do |answer|
      assert_equal '?', with_heartbeat { socket.read(1) }
      settle
      answer.call
    end
    half_close(socket)
  end

  # Long enough for the other side to begin to wait.
  def settle
    50.times { snooze }
  end

  # Says that nothing more will come, and goes on reading.
  def half_close(socket)
    socket.sync_close = false
    socket.sysclose
    socket.sync_close = true
  end

  def test_read_nonblock_does_not_wait
    client, server = connected(client_context: TLS.client(version: SSL::TLS1_2_VERSION))
    everywhere do
      assert_equal :wait_readable, client.read_nonblock(5, exception: false)
      assert_raises(SSL::SSLErrorWaitReadable) { client.read_nonblock(5) }
      assert_equal 5, server.write_nonblock('hello')
      client.to_io.wait_readable
      assert_equal 'hello', client.read_nonblock(5)
    end
  end

  def test_connect_nonblock_and_accept_nonblock_do_not_wait
    everywhere do
      client, server = tls_pair
      assert_equal :wait_readable, server.accept_nonblock(exception: false)
      assert_equal :wait_readable, client.connect_nonblock(exception: false)
      turns = 0
      until [server.accept_nonblock(exception: false), client.connect_nonblock(exception: false)] == [server, client]
        turns += 1
        assert_operator turns, :<, 10
      end
      [client, server].each(&:close)
    end
  end

  def test_who_always_finds_something_to_read_lets_others_run
    heavy
    client, server = connected
    everywhere do
      server << 'x' * 1000
      server << 'y' * 1000
      turns = 0
      other = spin { loop { turns += 1; snooze } }
      1000.times { client.sysread(1) }
      assert_operator turns, :>=, 25
      before = turns
      1000.times { client.read_nonblock(1) }
      assert_operator turns, :>=, before + 25
      other.stop
    end
  end

  def test_who_always_finds_room_to_write_lets_others_run
    client, server = connected
    everywhere do
      turns = 0
      other = spin { loop { turns += 1; snooze } }
      100.times { client.syswrite('x') }
      assert_operator turns, :>=, 2
      other.stop
      assert_equal 'x' * 100, server.read(100)
    end
  end

  # --- features of TLS ----------------------------------------------------------------------------

  def test_a_protocol_is_agreed_on
    offered = nil
    server = TLS.server { |context| context.alpn_select_cb = ->(list) { (offered = list).last } }
    client = TLS.client { |context| context.alpn_protocols = %w[h2 http/1.1] }
    everywhere do
      ends = connected(client_context: client, server_context: server)
      assert_equal %w[http/1.1 http/1.1], ends.map(&:alpn_protocol)
      assert_equal %w[h2 http/1.1], offered
    end
  end

  def test_a_server_name_chooses_the_certificate
    other = TLS.server('other.test')
    names = []
    server = TLS.server { |context| context.servername_cb = ->((_, name)) { names << name; other if name == 'other.test' } }
    everywhere do
      client, tls = tls_pair(server_context: server)
      client.hostname = 'other.test'
      accepting = spin { tls.accept }
      client.connect
      accepting.await
      assert_equal '/CN=other.test', client.peer_cert.subject.to_s
      assert client.post_connection_check('other.test')
    end
    assert_equal ['other.test'] * 3, names
  end

  def test_a_session_is_resumed_by_ticket_and_by_id_with_tls_12
    heavy
    [0, SSL::OP_NO_TICKET].each do |options|
      server = TLS.server(version: SSL::TLS1_2_VERSION) do |context|
        context.options |= options
        context.session_id_context = 'test'
      end
      session = connected(server_context: server).first.session
      refute_predicate session.id, :empty? if options.positive?
      everywhere { assert_equal [true, true], resumed(session, server).map(&:session_reused?) }
    end
  end

  # The tickets come behind the handshake, with the first bytes.
  def test_a_session_is_resumed_with_tls_13
    sessions = []
    server = TLS.server(version: SSL::TLS1_3_VERSION) { |context| context.session_id_context = 'test' }
    client = TLS.client do |context|
      context.session_cache_mode = SSL::SSLContext::SESSION_CACHE_CLIENT
      context.session_new_cb = ->((_, session)) { sessions << session }
    end
    everywhere do
      ends = connected(client_context: client, server_context: server)
      ends.last.puts 'hello'
      assert_equal "hello\n", ends.first.gets
      assert_equal [true, true], resumed(sessions.pop, server).map(&:session_reused?)
    end
  end

  def resumed(session, server_context)
    client, server = tls_pair(server_context: server_context)
    client.session = session
    accepting = spin { server.accept }
    client.connect
    accepting.await
    [client, server]
  end

  def test_a_client_shows_its_certificate
    identity = TLS.identity('client')
    server = TLS.server do |context|
      context.cert_store = TLS.store
      context.verify_mode = SSL::VERIFY_PEER | SSL::VERIFY_FAIL_IF_NO_PEER_CERT
    end
    client = TLS.client { |context| context.cert, context.key = identity.to_a }
    everywhere do
      _, tls = connected(client_context: client, server_context: server)
      assert_equal '/CN=client', tls.peer_cert.subject.to_s
    end
    bare, tls = tls_pair(client_context: TLS.client(version: SSL::TLS1_2_VERSION), server_context: server)
    refusing = spin { outcome_of_tls { tls.accept } }
    assert_match(/handshake failure|certificate required/, outcome_of_tls { bare.connect }.message)
    assert_match(/did not return a certificate/, refusing.await.message)
  end

  def outcome_of_tls
    yield
  rescue SSL::SSLError, SystemCallError, IOError => e
    e
  end

  def test_a_certificate_of_a_stranger_is_refused
    everywhere do
      client, tls = tls_pair(client_context: TLS.client { |context| context.cert_store = OpenSSL::X509::Store.new })
      refused = spin { outcome_of_tls { tls.accept } }
      error = assert_raises(SSL::SSLError) { client.connect }
      assert_match(/certificate verify failed/, error.message)
      assert_kind_of SSL::SSLError, refused.await
    end
  end

  # --- code of the user's inside of a handshake -----------------------------------------------------

  def test_callbacks_may_wait_and_others_shake_hands_meanwhile
    heavy
    server = TLS.server do |context|
      context.servername_cb = ->(_) { sleep 0.001; nil }
      context.alpn_select_cb = ->(list) { sleep 0.001; list.first }
    end
    client = TLS.client do |context|
      context.alpn_protocols = %w[a]
      context.verify_callback = ->(good, _) { sleep 0.001; good }
    end
    everywhere do
      others = Array.new(5) { spin { connected(client_context: client, server_context: server) } }
      ends = with_heartbeat { connected(client_context: client, server_context: server) }
      [ends, *Fiber.await(*others)].each do |one, two|
        one.puts 'hello'
        assert_equal "hello\n", two.gets
        assert_equal 'a', two.alpn_protocol
      end
    end
  end

  def test_what_a_callback_raises_goes_to_the_caller
    server = TLS.server { |context| context.alpn_select_cb = ->(_) { sleep 0.001; raise KeyError, 'no such protocol' } }
    client = TLS.client { |context| context.alpn_protocols = %w[a] }
    everywhere do
      one, two = tls_pair(client_context: client, server_context: server)
      refused = spin { outcome_of_tls { one.connect } }
      assert_raises(KeyError) { two.accept }
      assert_kind_of SSL::SSLError, refused.await
    end
  end

  def test_a_callback_may_be_cancelled
    server = TLS.server { |context| context.alpn_select_cb = ->(_) { sleep } }
    client = TLS.client { |context| context.alpn_protocols = %w[a] }
    everywhere do
      one, two = tls_pair(client_context: client, server_context: server)
      refused = spin { outcome_of_tls { one.connect } }
      assert_equal :over, move_on_after(0.01, with_value: :over) { two.accept }
      two.close
      assert_kind_of StandardError, refused.await
    end
  end

  def test_a_fiber_spun_in_a_callback_is_a_child_of_the_caller
    spun = nil
    server = TLS.server { |context| context.alpn_select_cb = ->(list) { spun = spin { sleep }; list.first } }
    client = TLS.client { |context| context.alpn_protocols = %w[a] }
    connected(client_context: client, server_context: server).each(&:close) # there, in a spun fiber
    one, two = tls_pair(client_context: client, server_context: server)
    connecting = spin { one.connect }
    two.accept
    connecting.await
    assert_equal :waiting, spun.state
    assert_same Fiber.current, spun.parent
  end

  # --- the end of a connection ----------------------------------------------------------------------

  def test_one_direction_may_be_closed
    heavy
    VERSIONS.each_value do |version|
      everywhere do
        client, server = connected(server_context: TLS.server(version: version))
        serving = spin { server.read.tap { |text| server << text.upcase; half_close(server) } }
        client << 'question'
        half_close(client)
        assert_equal 'QUESTION', with_heartbeat { client.read }
        assert_equal 'question', serving.await
      end
    end
  end

  def test_a_connection_cut_off_is_no_end
    skip 'OpenSSL before 3 takes it for the end' if OpenSSL::OPENSSL_LIBRARY_VERSION.match?(/OpenSSL [01]/)
    client, server = connected
    server.to_io.close
    assert_raises(SSL::SSLError) { client.read }
  end

  def test_closing_wakes_who_reads_and_who_writes
    heavy
    everywhere do
      client, = connected
      reading = spin { assert_raises(IOError) { client.read } }
      snooze until reading.state == :waiting
      client.close
      reading.await

      client, = connected
      writing = spin { assert_raises(IOError) { loop { client.syswrite('x' * 10_000) } } }
      snooze until writing.state == :waiting
      client.close
      writing.await
    end
  end

  # The number of the descriptor is another connection's by then.
  def test_who_was_woken_and_finds_it_closed_takes_nothing_from_the_next
    client, server = connected
    reading = spin { outcome_of_tls { client.sysread(10) } }
    snooze until reading.state == :waiting
    server << 'hello'
    number = client.to_io.fileno
    snooze until reading.state == :runnable
    reader, writer = pipe_pair
    client.to_io.close
    fresh = IO.for_fd(reader.fcntl(Fcntl::F_DUPFD, number))
    assert_equal number, track(fresh).fileno
    writer << 'not for you'
    assert_kind_of IOError, reading.await
    assert_equal 'not for you', reader.readpartial(100)
  end

  # --- both ways at once ----------------------------------------------------------------------------

  def test_a_reader_and_a_writer_share_a_socket
    heavy
    VERSIONS.each_value do |version|
      client, server = connected(tcp: true, server_context: TLS.server(version: version))
      there, back = Array.new(2) { |i| Random.new(i).bytes(3_000_000) }
      spin { server.write(back) }
      received = spin { server.read(there.size) }
      writing = spin { client.write(there) }
      assert_equal back.hash, with_heartbeat { client.read(back.size) }.hash
      writing.await
      assert_equal there.hash, received.await.hash
      [client, server].each(&:close)
    end
  end

  # --- cancelling -------------------------------------------------------------------------------------

  def test_a_cancelled_read_loses_nothing
    heavy
    cancel_everywhere do |run|
      client, server = connected
      text = "first line\n#{'second ' * 5000}\nrest"
      got = []
      read_all = lambda do
        until got.size == 3
          case got.size
          when 0 then got << client.gets
          when 1 then got << client.gets
          else got << client.read(4)
          end
        end
      end
      run.scenario(&read_all)
      run.beside { text.scan(/.{1,9000}/m) { |part| server << part; snooze } }
      run.check do
        read_all.call
        assert_equal text, got.join
        [client, server].each(&:close)
      end
    end
  end

  # What write had not sent goes out with the next write or flush.
  def test_a_cancelled_write_is_finished_by_the_next
    heavy
    client, server = connected
    text = Random.new(1).bytes(2_000_000)
    everywhere do
      move_on_after(0.02) { client.write(text); flunk 'there was room for all of it' }
      reading = spin { server.read(text.size + 3) }
      client << 'end'
      assert_equal (text + 'end').hash, reading.await.hash
    end
  end

  def test_a_cancelled_handshake_goes_on
    everywhere do
      client, server = tls_pair
      assert_equal :over, move_on_after(0.005, with_value: :over) { client.connect }
      assert_equal :over, move_on_after(0.005, with_value: :over) { server.accept }
      accepting = spin { server.accept }
      assert_same client, client.connect
      accepting.await
      client.puts 'hello'
      assert_equal "hello\n", server.gets
    end
  end

  def test_a_handshake_goes_on_wherever_it_was_cancelled
    heavy
    cancel_everywhere do |run|
      client, server = tls_pair
      accepting = spin { server.accept }
      run.scenario { client.connect }
      run.check do
        client.connect
        accepting.await
        client.puts 'hello'
        assert_equal "hello\n", server.gets
        [client, server].each(&:close)
      end
    end
  end

  def test_a_handshake_has_a_time_limit_like_everything_else
    everywhere do
      client, = tls_pair
      assert_raises(Timeout::Error) { Timeout.timeout(0.005) { client.connect } }
      client.close
      assert_predicate client, :closed?
    end
  end

  # OpenSSL wants the same bytes once more: it has made a record of them.
  def test_a_cancelled_syswrite_is_to_be_repeated
    heavy
    client, server = connected
    text = Random.new(1).bytes(2_000_000)
    left = text
    move_on_after(0.02) { left = left.byteslice(client.syswrite(left)..) until left.empty? }
    refute_empty left
    reading = spin { server.read(text.size) }
    left = left.byteslice(client.syswrite(left)..) until left.empty?
    assert_equal text.hash, reading.await.hash
  end

  def test_after_a_cancelled_syswrite_something_else_cannot_be_written
    heavy
    client, = connected
    move_on_after(0.02) { loop { client.syswrite('x' * 10_000) } }
    assert_match(/bad write retry|bad length/, assert_raises(SSL::SSLError) { client.syswrite('y') }.message)
  end

  def test_what_a_cancelled_write_left_does_not_keep_close
    heavy
    everywhere do
      client, server = connected
      writing = spin { client.write('x' * 2_000_000) }
      snooze until writing.state == :waiting
      client.close # while it is being written
      assert_match(/closed/, assert_raises(IOError) { writing.await }.message)

      client, server = connected
      move_on_after(0.02) { client.write('x' * 2_000_000) }
      client.close
      assert_raises(SSL::SSLError, Errno::ECONNRESET) { server.read }
    end
  end

  # A fiber that reads, and one at a time that writes, whichever way it ends.
  def test_who_reads_does_not_see_that_a_write_was_cancelled
    heavy
    client, server = connected
    reading = spin { client.gets }
    move_on_after(0.02) { client.write('x' * 2_000_000) }
    server.puts 'hello'
    assert_equal "hello\n", reading.await
  end

  def test_bytes_of_a_cancelled_read_are_missed_at_the_beginning
    socket, = socket_pair
    Polyphony.__put_back__(socket, 'hello')
    assert_match(/a cancelled read left bytes/, assert_raises(IOError) { SSL::SSLSocket.new(socket) }.message)
    assert_equal 'hello', socket.readpartial(10)
    SSL::SSLSocket.new(socket)
  end

  # --- what is new --------------------------------------------------------------------------------------

  def test_reading_in_a_loop
    everywhere do
      client, server = connected
      spin { 3.times { |i| server << i.to_s; snooze }; server.close }
      assert_equal '012', [].tap { |got| assert_same client, client.read_loop { |data| got << data } }.join
      client, server = connected
      spin { server << 'abc'; server.close }
      assert_equal %w[a b c], [].tap { |got| client.recv_loop(1) { |data| got << data } }
      client, server = connected
      spin { server << 'abc'; server.close }
      got = +''
      client.feed_loop(got, :concat)
      assert_equal 'abc', got
    end
  end

  def test_reading_into_a_part_of_a_buffer
    client, server = connected
    server << 'abcdefgh'
    assert_equal '-ab', client.read(2, +'-----', 1)
    assert_equal '--cd', client.readpartial(2, +'--', -1)
    assert_raises(IndexError) { client.readpartial(2, +'--', 3) }
    assert_equal "\u00e9ef", client.read(2, +"\u00e9\u20ac", 2)
    buffer = +'old'
    assert_same buffer, client.read(2, buffer)
    assert_equal 'gh', buffer
    server.close
    assert_nil client.readpartial(1, nil, 0, false)
    assert_nil client.read(1, +'x', -1)
    assert_raises(EOFError) { client.readpartial(1, +'x', -1) }
  end

  def test_options_of_the_socket_beneath
    client, server = connected(tcp: true)
    assert_same client, client.no_delay
    assert client.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY).bool
    assert_same client, client.reuse_addr
    assert client.getsockopt(Socket::SOL_SOCKET, Socket::SO_REUSEADDR).bool
    client.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 5].pack('ii'))
    assert_same client, client.dont_linger # as of any socket: what is not sent yet is sent
    refute client.getsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER).linger.first
    assert_equal client.io.peeraddr, client.peeraddr
    assert_equal :readpartial, client.__read_method__
    [client, server].each(&:close)
  end

  def test_a_wrapper_around_an_io_is_taken_off
    wrapper = Struct.new(:io)
    one, two = socket_pair
    client, server = TLS.wrap(wrapper.new(one), wrapper.new(two))
    assert_same one, client.io
    assert_raises(TypeError) { SSL::SSLSocket.new(Object.new) }
    accepting = spin { server.accept }
    client.connect
    accepting.await
  end
end
