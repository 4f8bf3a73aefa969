# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'stringio'
require 'tmpdir'

# The ways in: ports, paths, descriptors, and what is said when there is none.
class TestHTTPListener < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP

  def setup
    super
    @folder = Dir.mktmpdir
    @listeners = []
  end

  def teardown
    @server&.stop(within: 0)
    @listeners.each { |listener| listener.close unless listener.socket.closed? }
    FileUtils.rm_rf(@folder)
    super
  end

  def listen(...)
    HTTP::Listener.new(...).tap { |listener| @listeners << listener }
  end

  def serve(*addresses, **options)
    @log = StringIO.new
    @server = HTTP::Server.new(*addresses, log: @log, **options) { |request| request.respond(request.peer.to_s) }.start
  end

  def ask(socket)
    track(socket).write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    socket.read[/\r\n\r\n(.*)\z/m, 1]
  end

  def ipv6?
    TCPServer.new('::1', 0).close
    true
  rescue SystemCallError
    false
  end

  def test_an_address_says_where_and_how
    assert_match(%r{\Ahttp://127\.0\.0\.1:\d+\z}, listen('http://127.0.0.1:0').address)
    assert_match(%r{\Ahttp://127\.0\.0\.1:\d+\z}, listen('tcp://localhost:0/').address)
    assert_match(%r{\Ahttp://0\.0\.0\.0:\d+\z}, listen(0).address)
    assert_match(%r{\Ahttp://0\.0\.0\.0:\d+\z}, listen('*:0').address)
    assert_match(%r{\Ahttp://0\.0\.0\.0:\d+\z}, listen(':0').address)
    assert_equal "unix:#{@folder}/a", listen("unix:#{@folder}/a").address
    assert_equal "unix:#{@folder}/b", listen("unix://#{@folder}/b").address
    assert_nil @listeners.last.port
  end

  def test_addresses_that_are_none_are_told
    ['', 'nowhere', 'http://', 'http://a', 'ftp://127.0.0.1:1', 'http://::1:80', 'http://127.0.0.1:x', nil, :a].each do |address|
      error = assert_raises(ArgumentError, address.inspect) { listen(address) }
      assert_includes error.message, address.inspect
    end
    assert_match(/between 0 and 65535, got 65536/, assert_raises(ArgumentError) { listen('http://127.0.0.1:65536') }.message)
    assert_match(/cannot listen at no\.such\.name\.invalid: /, assert_raises(ArgumentError) { listen('no.such.name.invalid:1') }.message)
  end

  def test_all_addresses_of_both_families
    skip 'there is no IPv6 here' unless ipv6?

    serve('http://[::]:0')
    assert_match(%r{\Ahttp://\[::\]:\d+\z}, @server.url)
    assert_equal '127.0.0.1', ask(TCPSocket.new('127.0.0.1', @server.port))
    assert_equal '::1', ask(TCPSocket.new('::1', @server.port))
  end

  def test_a_unix_socket_has_the_mode_that_is_asked_for
    path = File.join(@folder, 'socket')
    before = File.umask
    serve("unix:#{path}", mode: 0o600)
    assert_equal [0o600, before], [File.stat(path).mode & 0o777, File.umask]
    assert_equal '', ask(UNIXSocket.new(path))
    @server.stop(within: 0)
    refute_path_exists path
  end

  def test_a_unix_socket_that_was_left_over_is_replaced_and_one_in_use_is_not
    path = File.join(@folder, 'socket')
    UNIXServer.new(path).close
    first = listen("unix:#{path}")
    error = assert_raises(Errno::EADDRINUSE) { listen("unix:#{path}") }
    assert_match(/unix:#{path}: somebody listens there already/, error.message)
    File.unlink(path) # as one who takes over would
    second = listen("unix:#{path}")
    first.close
    assert_path_exists path
    second.close
    refute_path_exists path
  end

  def test_paths_that_cannot_be_had_are_told
    file = File.join(@folder, 'file')
    File.write(file, '')
    assert_match(/no socket: move it away/, assert_raises(Errno::EADDRINUSE) { listen("unix:#{file}") }.message)
    assert_equal '', File.read(file)
    assert_match(%r{no folder .*/none: make it first}, assert_raises(Errno::ENOENT) { listen("unix:#{@folder}/none/a") }.message)
    assert_match(/fewer than 108 bytes/, assert_raises(ArgumentError) { listen("unix:/#{'x' * 200}") }.message)
  end

  def test_a_unix_socket_without_a_file
    skip 'only Linux has them' unless RbConfig::CONFIG['host_os'].include?('linux')

    name = "polyphony-test-#{Process.pid}"
    serve("unix:@#{name}")
    assert_equal "unix:@#{name}", @server.url
    socket = Socket.new(:UNIX, :STREAM, 0)
    socket.connect(Addrinfo.unix("\0#{name}"))
    assert_equal '', ask(socket)
  end

  def test_an_address_in_use_is_told_with_the_way_out
    port = listen('http://127.0.0.1:0').port
    error = assert_raises(Errno::EADDRINUSE) { listen("http://127.0.0.1:#{port}") }
    assert_match(/127\.0\.0\.1:#{port}: somebody listens there already \(ss -ltnp .*another port/, error.message)
    error = assert_raises(Errno::EADDRNOTAVAIL) { listen('http://192.0.2.1:0') }
    assert_match(/no such address: ip addr/, error.message)
  end

  def test_a_port_may_be_shared
    port = listen('http://127.0.0.1:0', reuse_port: true).port
    assert_equal port, listen("http://127.0.0.1:#{port}", reuse_port: true).port
  end

  def test_an_inherited_descriptor_and_a_socket_of_any_class
    socket = Socket.new(:INET, :STREAM, 0)
    socket.bind(Addrinfo.tcp('127.0.0.1', 0))
    assert_match(/does not listen: call listen/, assert_raises(ArgumentError) { listen(socket) }.message)
    socket.listen(5)
    serve("fd://#{socket.fileno}")
    socket.autoclose = false
    assert_equal '127.0.0.1', ask(TCPSocket.new('127.0.0.1', @server.port))
    @server.stop(within: 0)
    plain = Socket.new(:INET, :STREAM, 0)
    plain.bind(Addrinfo.tcp('127.0.0.1', 0))
    plain.listen(5)
    serve(HTTP::Listener.new(plain))
    assert_equal '127.0.0.1', ask(TCPSocket.new('127.0.0.1', @server.port))
  end

  def test_a_descriptor_that_is_no_socket_is_told
    reader, = pipe_pair
    [reader.fileno, 9999].each do |number|
      error = assert_raises(Errno::EBADF, Errno::ENOTSOCK) { listen("fd://#{number}") }
      assert_match(/fd:.*whoever starts the server/, error.message)
    end
    refute_predicate reader, :closed?
  end

  def test_https_needs_a_certificate
    error = assert_raises(ArgumentError) { listen('https://127.0.0.1:0') }
    assert_match(/needs a certificate: tls: .*:self_signed for development/, error.message)
  end

  def test_connections_send_at_once
    listener = listen('http://127.0.0.1:0')
    accepted = nil
    spin { listener.accept_loop { |socket| accepted = track(socket) } }
    track(TCPSocket.new('127.0.0.1', listener.port))
    snooze until accepted
    assert_predicate accepted.getsockopt(:TCP, :NODELAY), :bool
  end

  # HOSTILE 44. In a process of its own, for the limit is the process's.
  SHORT = <<~'RUBY'
    require 'polyphony/http'
    Process.setrlimit(Process::RLIMIT_NOFILE, 120) # before: io_uring's accept asks once
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: $stderr, shared: ARGV.first == 'shared') { |request| request.respond('x') }.start
    ask = lambda do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
      socket.read.end_with?('x')
    end
    clients = Array.new(30) { TCPSocket.new('127.0.0.1', server.port) }
    snooze until server.stats.open == 30
    extra = Array.new(3) { Socket.new(:INET, :STREAM, 0) }
    spare = []
    begin
      loop { spare << File.open(File::NULL) }
    rescue Errno::EMFILE
    end
    extra.each { |socket| socket.connect(Addrinfo.tcp('127.0.0.1', server.port)) }
    before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sleep 0.5
    p Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before < 0.05
    p server.stats.open
    p ask.(clients.pop)
    clients.each(&:close)
    p extra.map(&ask)
    spare.each(&:close)
    server.stop(within: 0)
    p server.stats.open
  RUBY

  def test_without_descriptors_accepting_pauses_and_goes_on
    skip 'looks at /proc' unless File.directory?('/proc/self/fd')

    [[], %w[shared]].each do |arguments|
      out, err, = run_ruby(SHORT, *arguments)
      assert_equal "true\n30\ntrue\n[true, true, true]\n0\n", out, err
      assert_equal 1, err.lines.grep(/accept: Too many open files; waiting|pauses: Too many open files/).size, err
    end
  end

  def test_connecting_and_closing_many_times_leaves_nothing
    heavy
    serve('http://127.0.0.1:0')
    1_000.times { TCPSocket.new('127.0.0.1', @server.port).close }
    snooze until @server.stats.connections == 1_000 && @server.stats.open.zero?
    assert_equal '127.0.0.1', ask(TCPSocket.new('127.0.0.1', @server.port))
    assert_empty @log.string
  end
end
