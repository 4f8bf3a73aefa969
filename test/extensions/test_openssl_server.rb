# frozen_string_literal: true

require 'open3'
require_relative '../test_helper'
require_relative '../support/tls'
require 'polyphony/testing'

# SSLServer: stock accept, and accept_loop.
class TestOpenSSLServer < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  on_every_driver

  TLS = Polyphony::TLS
  SSL = OpenSSL::SSL

  def listen(context = TLS.server)
    @listener = track(TCPServer.new('127.0.0.1', 0))
    SSL::SSLServer.new(@listener, context)
  end

  def tcp
    track(TCPSocket.new('127.0.0.1', @listener.local_address.ip_port))
  end

  def connect(context = TLS.client)
    socket = track(SSL::SSLSocket.new(tcp, context))
    socket.sync_close = true
    socket.hostname = 'localhost'
    socket.connect
  end

  # Answers every line in capitals, in a fiber for each connection.
  def serve(server, **options)
    server.accept_loop(**options) do |socket|
      spin do
        track(socket).each_line { |line| socket << line.upcase }
      ensure
        socket.close
      end
    end
  end

  def ask(socket, question)
    socket.puts question
    socket.gets
  end

  def test_stock_accept
    server = listen
    asking = spin { ask(connect, 'one') }
    spin { socket = server.accept; socket << socket.gets.upcase; socket.close }.await
    assert_equal "ONE\n", asking.await
  end

  def test_stock_accept_in_the_main_fiber
    server = listen
    asking = spin { ask(connect, 'one') }
    socket = server.accept
    socket << socket.gets.upcase
    assert_equal "ONE\n", asking.await
    socket.close
  end

  def test_the_context
    context = TLS.server
    assert_same context, listen(context).ctx
  end

  def test_clients_that_say_nothing_keep_nobody_waiting
    server = listen
    spin { serve(server) }
    silent = Array.new(20) { tcp }
    assert_equal "HELLO\n", ask(connect, 'hello')
    answers = Array.new(10) { |i| spin { ask(connect, "line #{i}") } }.map(&:await)
    assert_equal Array.new(10) { |i| "LINE #{i}\n" }, answers
    silent.each(&:close)
  end

  def test_in_the_main_fiber
    server = listen
    spin { assert_equal "HELLO\n", ask(connect, 'hello'); server.close }
    assert_raises(IOError) { serve(server) }
  end

  def test_the_block_is_called_in_the_fiber_that_accepts
    server = listen
    fibers = []
    serving = spin do
      server.accept_loop { |socket| fibers << Fiber.current; spin { socket << 'hello'; socket.close } }
    end
    assert_equal %w[hello hello], Array.new(2) { connect.read }
    assert_equal [serving, serving], fibers
  end

  # The server has closed it, with an alert maybe.
  def assert_ended(&read)
    answer = outcome(&read)
    assert answer.is_a?(Errno::ECONNRESET) || answer.empty? || answer.start_with?("\x15".b), answer.inspect
  end

  def test_clients_that_fail_are_forgotten
    server = listen
    spin { serve(server) }
    tcp.close
    garbage = tcp
    garbage << "GET / HTTP/1.1\r\n\r\n"
    assert_ended { garbage.read }
    stranger = TLS.client { |context| context.cert_store = OpenSSL::X509::Store.new }
    assert_raises(SSL::SSLError) { connect(stranger) }
    assert_equal "HELLO\n", ask(connect, 'hello')
  end

  def test_or_their_errors_are_raised
    server = listen
    serving = spin { assert_raises(SSL::SSLError) { serve(server, ignore_errors: false) } }
    snooze
    tcp << "GET / HTTP/1.1\r\n\r\n"
    assert_match(/http request|wrong version|unsupported/i, serving.await.message)
  end

  def test_errors_of_callbacks_are_raised_always
    server = listen(TLS.server { |context| context.servername_cb = ->(_) { raise KeyError, 'which certificate?' } })
    serving = spin { assert_raises(KeyError) { serve(server) } }
    assert_raises(SSL::SSLError, SystemCallError) { connect }
    serving.await
  end

  def test_a_handshake_has_a_time_limit
    server = listen
    serving = spin { serve(server, handshake_timeout: patient(0.3)) }
    assert_ended { tcp.read }
    assert_equal "HELLO\n", ask(connect, 'hello')
    serving.stop
    serving.await

    failing = spin { assert_raises(SSL::SSLError) { serve(server, handshake_timeout: 0.01, ignore_errors: false) } }
    tcp
    assert_equal 'no TLS handshake within 0.01 s', failing.await.message
  end

  # The others are in the kernel's queue, and are accepted when there is a place.
  def test_not_too_many_at_once
    server = listen
    spin { serve(server, most_handshakes: 2) }
    silent = Array.new(2) { tcp }
    asking = spin { ask(connect, 'hello') }
    silent.each { |socket| socket.wait_writable }
    20.times { snooze }
    assert_equal :waiting, asking.state
    silent.each(&:close)
    assert_equal "HELLO\n", asking.await
  end

  def test_the_handshake_may_be_the_blocks
    server = listen
    server.start_immediately = false
    states = []
    spin do
      server.accept_loop do |socket|
        spin { states << socket.state; socket.accept; states << socket.state; socket << 'hello'; socket.close }
      end
    end
    assert_equal 'hello', connect.read
    assert_match(/\A(PINIT|UNKWN|TWCH)/, states.first)
    assert_match(/\ASSLOK/, states.last)
  end

  def test_a_stop_closes_what_was_not_handed_out
    server = listen
    busy = Polyphony::Event.new
    serving = spin do
      server.accept_loop { |socket| track(socket); busy.signal; sleep }
    end
    connect
    busy.await
    waiting = connect # its handshake is over, but the block is busy
    silent = tcp
    settle
    serving.stop
    serving.await
    assert_ended { silent.read }
    assert_raises(SSL::SSLError, Errno::ECONNRESET) { waiting.read }
  end

  # Whoever was not handed out is closed, and nothing else is.
  def test_a_loop_may_be_ended_anywhere
    heavy
    server = listen
    cancel_everywhere do |run|
      got = []
      run.scenario { server.accept_loop { |socket| break if (got << socket).size == 2 } }
      clients = Array.new(2) { spin { outcome_of_tls { connect } } }
      run.check do |finished|
        assert_equal 2, got.size if finished
        refute(got.any?(&:closed?))
        got.each { |socket| outcome_of_tls { socket << 'hello' } }
        got.each(&:close)
        clients.each(&:stop).each(&:await)
        drain
      end
    end
  end

  def outcome_of_tls
    yield
  rescue SSL::SSLError, SystemCallError, IOError => e
    e
  end

  # Clients that nobody has accepted.
  def drain
    loop { @listener.accept_nonblock.close }
  rescue IO::WaitReadable
    @ios.each { |io| io.close unless io.closed? || io == @listener }
  end

  def settle
    50.times { snooze }
  end

  def test_leaving_the_block_ends_the_loop
    server = listen
    asking = spin { connect.read }
    socket = server.accept_loop { |one| break one }
    socket << 'hello'
    socket.close
    assert_equal 'hello', asking.await
    asking = spin { connect.read }
    error = assert_raises(StopIteration) { server.accept_loop { |one| one.close; raise StopIteration } }
    assert_kind_of StopIteration, error
    asking.await
  end

  def test_closing_the_server_ends_the_loop
    server = listen
    serving = spin { assert_raises(IOError) { serve(server) } }
    snooze until serving.state == :waiting
    settle
    server.close
    serving.await
  end

  def test_other_servers
    folder = Dir.mktmpdir
    unix = track(UNIXServer.new("#{folder}/socket"))
    odd = Struct.new(:listener) do # as one that reads a PROXY line first
      def accept
        socket, = listener.accept
        socket
      end
    end
    [unix, odd.new(unix)].each do |listener|
      serving = spin { serve(SSL::SSLServer.new(listener, TLS.server)) }
      client = track(SSL::SSLSocket.new(track(UNIXSocket.new("#{folder}/socket")), TLS.client))
      assert_equal "HELLO\n", ask(client.connect, 'hello')
      serving.stop
      serving.await
    end
  ensure
    FileUtils.rm_rf(folder)
  end

  def test_a_loop_needs_a_block
    assert_raises(ArgumentError) { listen.accept_loop }
  end

  # "R" makes s_client ask for another handshake. OpenSSL 3 refuses by itself, older ones by the option.
  def test_renegotiation_is_refused
    program = ENV['PATH'].split(':').map { |folder| "#{folder}/openssl" }.find { |path| File.executable?(path) }
    skip 'there is no openssl program to renegotiate with' unless program

    server = listen(TLS.server(version: SSL::TLS1_2_VERSION) { |context| context.options |= SSL::OP_NO_RENEGOTIATION })
    got = []
    serving = spin do
      server.accept_loop do |socket|
        spin { assert_raises(SSL::SSLError) { track(socket).each_line { |line| got << line } } }
      end
    end
    reader, writer = pipe_pair
    output = track(Tempfile.new)
    pid = Process.spawn(program, 's_client', '-connect', "127.0.0.1:#{@listener.local_address.ip_port}",
                        in: reader, out: output.path, err: output.path)
    writer.puts 'before'
    snooze until got.size == 1
    writer.puts 'R'
    Polyphony.backend_waitpid(pid)
    assert_match(/no renegotiation/, File.read(output.path))
    assert_equal ["before\n"], got
    assert_equal :waiting, serving.state
  ensure
    output&.close!
  end
end
