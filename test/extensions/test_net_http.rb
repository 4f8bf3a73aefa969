# frozen_string_literal: true

require 'net/http'
require 'open-uri'
require 'zlib'
require_relative '../test_helper'
require_relative '../support/tls'
require_relative '../support/http_server'

# Net::HTTP and open-uri, unchanged. The server is in fibers of the same thread: whoever stopped that while
# waiting would wait for ever.
class TestNetHTTP < Polyphony::TestCase
  on_every_driver

  TLS = Polyphony::TLS
  OK = ->(_) { [200, {}, 'ok'] }

  def serving(tls: nil, &answer)
    @servers ||= []
    server = Polyphony::HTTPServer.new(tls: tls, &(answer || OK))
    @servers << server
    server.start
    server
  end

  def proxying
    @servers << (proxy = Polyphony::HTTPProxy.new)
    proxy.start
    proxy
  end

  def teardown
    @servers&.each(&:stop)
  end

  # In the main fiber and in a spun one.
  def everywhere
    yield
    spin { yield }.await
  end

  def with_heartbeat
    beats = 0
    heart = spin { loop { beats += 1; snooze } }
    result = yield
    assert_operator beats, :>, 0, 'nobody ran meanwhile'
    result
  ensure
    heart.stop
  end

  def get(server, path = '/')
    Net::HTTP.get(URI(server.url(path)))
  end

  def test_a_request_and_its_answer
    server = serving { |request| [201, { 'X-Seen' => request.verb }, "#{request.path} #{request.body}"] }
    everywhere do
      response = with_heartbeat { Net::HTTP.post(URI(server.url('/there')), 'hello', 'Content-Type' => 'text/plain') }
      assert_equal ['201', 'POST', '/there hello'], [response.code, response['X-Seen'], response.body]
      assert_equal '/back ', get(server, '/back')
    end
    server.wait_until_unused
  end

  def test_connections_are_kept
    server = serving { |request| [200, {}, request.path] }
    everywhere do
      before = server.accepted
      Net::HTTP.start('127.0.0.1', server.port) do |http|
        5.times { |i| assert_equal "/#{i}", http.get("/#{i}").body }
      end
      assert_equal before + 1, server.accepted
    end
    server.wait_until_unused
  end

  def test_each_fiber_has_its_connection
    heavy
    server = serving { |request| sleep 0.001; [200, {}, request.path] }
    answers = Array.new(10) do |i|
      spin do
        Net::HTTP.start('127.0.0.1', server.port) { |http| Array.new(3) { |j| http.get("/#{i}-#{j}").body } }
      end
    end
    assert_equal Array.new(10) { |i| Array.new(3) { |j| "/#{i}-#{j}" } }, Fiber.await(*answers)
    assert_equal 10, server.accepted
  end

  # Nobody is answered before all have asked.
  def test_two_hundred_at_once
    heavy
    arrived = 0
    everyone = Polyphony::WaitList.new
    server = serving do
      arrived += 1
      arrived == 200 ? everyone.wake_all : everyone.park
      [200, {}, 'slow']
    end
    fibers = Array.new(200) { spin { get(server) } }
    assert_equal %w[slow], Fiber.await(*fibers).uniq
    assert_equal 200, arrived
    server.wait_until_unused
  end

  def test_chunks_and_compressed_bodies
    heavy
    server = serving do |request|
      body = 'some text ' * 1000
      case request.path
      when '/chunks' then [200, {}, body.scan(/.{1,999}/)]
      when '/gzip' then [200, { 'Content-Encoding' => 'gzip' }, Zlib.gzip(body)]
      else [200, { 'Content-Encoding' => 'gzip' }, Zlib.gzip(body).scan(/.{1,7}/mn)]
      end
    end
    everywhere { %w[/chunks /gzip /both].each { |path| assert_equal 'some text ' * 1000, get(server, path), path } }
  end

  # The next piece is sent when the one before has been seen.
  def test_a_body_is_read_while_it_comes
    seen = Polyphony::Queue.new
    server = serving { [200, {}, Enumerator.new { |y| 3.times { |i| y << "piece #{i}"; seen.shift } }] }
    everywhere do
      pieces = []
      Net::HTTP.start('127.0.0.1', server.port) do |http|
        http.request_get('/') { |response| response.read_body { |piece| pieces << piece; seen << true } }
      end
      assert_equal ['piece 0', 'piece 1', 'piece 2'], pieces
    end
  end

  def test_bodies_are_sent_as_streams
    heavy
    server = serving { |request| [200, {}, request.body.hash.to_s] }
    text = Random.new(1).bytes(1_000_000)
    everywhere do
      request = Net::HTTP::Put.new('/', 'Content-Type' => 'text/plain', 'Content-Length' => text.bytesize.to_s)
      request.body_stream = StringIO.new(text)
      assert_equal text.hash.to_s, Net::HTTP.start('127.0.0.1', server.port) { |http| http.request(request).body }
      request = Net::HTTP::Put.new('/', 'Content-Type' => 'text/plain', 'Transfer-Encoding' => 'chunked', 'Expect' => '100-continue')
      request.body_stream = StringIO.new(text)
      assert_equal text.hash.to_s, Net::HTTP.start('127.0.0.1', server.port) { |http| http.request(request).body }
    end
  end

  # --- time limits ------------------------------------------------------------------------------------

  def test_a_read_limit_is_that_of_its_fiber
    release = Polyphony::WaitList.new
    server = serving { release.park; [200, {}, 'late'] }
    patient_one = spin { get(server) }
    everywhere do
      Net::HTTP.start('127.0.0.1', server.port, read_timeout: 0.02, max_retries: 0) do |http|
        assert_raises(Net::ReadTimeout) { http.get('/') }
      end
    end
    release.wake_all
    assert_equal 'late', patient_one.await
  end

  def test_a_write_limit
    heavy
    listener = track(TCPServer.new('127.0.0.1', 0))
    everywhere do
      Net::HTTP.start('127.0.0.1', listener.local_address.ip_port, write_timeout: 0.02, max_retries: 0) do |http|
        assert_raises(Net::WriteTimeout) { http.post('/', 'x' * 20_000_000, 'Content-Type' => 'text/plain') }
      end
    end
  end

  # The queue of the listener is full: the kernel does not answer.
  def test_a_limit_for_opening
    listener = track(Socket.new(:INET, :STREAM))
    listener.bind(Addrinfo.tcp('127.0.0.1', 0))
    listener.listen(0)
    address = listener.local_address
    waiting = Array.new(3) do
      track(Socket.new(:INET, :STREAM)).tap { |socket| socket.connect_nonblock(address, exception: false) }
    end
    everywhere do
      error = assert_raises(Net::OpenTimeout) do
        Net::HTTP.start('127.0.0.1', address.ip_port, open_timeout: 0.02) { flunk 'it opened' }
      end
      assert_match(/Failed to open TCP connection|execution expired/, error.message)
    end
    waiting.each(&:close)
  end

  def test_a_limit_for_the_handshake
    listener = track(TCPServer.new('127.0.0.1', 0))
    everywhere do
      assert_raises(Net::OpenTimeout) do
        Net::HTTP.start('127.0.0.1', listener.local_address.ip_port, use_ssl: true, open_timeout: 0.02) { flunk }
      end
    end
  end

  def test_limits_of_ours_around_it
    server = serving { sleep }
    everywhere do
      assert_equal :over, move_on_after(0.02, with_value: :over) { get(server) }
      assert_raises(Timeout::Error) { Timeout.timeout(0.02) { get(server) } }
      assert_raises(Polyphony::Cancel) { cancel_after(0.02) { get(server) } }
      server.connections.each_key(&:close)
    end
  end

  # --- cancelling ---------------------------------------------------------------------------------------

  # While it waits for the answer, for the end of the answer, in the handshake.
  def test_a_stop_closes_the_connection_at_once
    ['', "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome", nil].each do |answer|
      listener = track(TCPServer.new('127.0.0.1', 0))
      client = spin { Net::HTTP.get(URI("http#{'s' unless answer}://127.0.0.1:#{listener.local_address.ip_port}/")) }
      socket = track(Polyphony.backend_accept(listener, TCPSocket))
      socket.readpartial(100_000) # a handshake may begin with more than a thousand
      socket << answer if answer
      20.times { snooze }
      client.stop
      client.await
      ended = outcome { socket.read }
      assert ended.is_a?(Errno::ECONNRESET) || ended.empty?, ended.inspect
    end
  end

  def test_a_persistent_connection_does_not_mix_up_answers
    server = serving { |request| sleep 0.05 if request.path == '/slow'; [200, {}, request.path] }
    everywhere do
      http = Net::HTTP.start('127.0.0.1', server.port)
      assert_equal '/first', http.get('/first').body
      assert_nil(move_on_after(0.01) { http.get('/slow') })
      assert_equal '/next', http.get('/next').body
      assert_equal '/last', http.get('/last').body
      http.finish
    end
    server.wait_until_unused
  end

  def test_who_is_stopped_leaves_nothing
    heavy
    server = serving { sleep }
    fibers = Array.new(50) { spin { get(server) } }
    sleep 0.001 until server.connections.size == 50
    fibers.each(&:stop).each(&:await)
    sockets = ObjectSpace.each_object(Socket).reject(&:closed?).select { |socket| connected_to?(socket, server.port) }
    assert_empty sockets
  end

  def connected_to?(socket, port)
    socket.remote_address.ip_port == port
  rescue SystemCallError
    false
  end

  # --- TLS, proxies, redirects ------------------------------------------------------------------------------

  def https(server, **options, &block)
    Net::HTTP.start('127.0.0.1', server.port, use_ssl: true, cert_store: TLS.store, **options, &block)
  end

  def test_https
    heavy
    server = serving(tls: TLS.server) { |request| [200, {}, request.path * 1000] }
    everywhere do
      before = server.accepted
      https(server) { |http| 3.times { |i| assert_equal "/#{i}" * 1000, with_heartbeat { http.get("/#{i}").body } } }
      assert_equal before + 1, server.accepted
      error = assert_raises(OpenSSL::SSL::SSLError) { Net::HTTP.get(URI(server.url)) }
      assert_match(/certificate verify failed/, error.message)
    end
    fibers = Array.new(20) { |i| spin { https(server) { |http| http.get("/#{i}").body[0, 3] } } }
    assert_equal Array.new(20) { |i| "/#{i}"[0, 3].ljust(3, '/') }, Fiber.await(*fibers)
  end

  def test_a_stopped_https_client_closes_its_connection
    server = serving(tls: TLS.server) { sleep }
    client = spin { https(server) { |http| http.get('/') } }
    sleep 0.001 until server.requests.size == 1
    connection = server.connections.keys.first
    client.stop
    client.await
    assert_nil outcome { connection.read(1) }
  end

  def test_a_proxy
    heavy
    plain = serving { |request| [200, {}, "plain #{request.target}"] }
    secret = serving(tls: TLS.server) { [200, {}, 'secret'] }
    proxy = proxying
    everywhere do
      http = Net::HTTP.new('127.0.0.1', plain.port, '127.0.0.1', proxy.port)
      assert_equal 'plain /there', http.get('/there').body
      https = Net::HTTP.new('127.0.0.1', secret.port, '127.0.0.1', proxy.port)
      https.use_ssl = true
      https.cert_store = TLS.store
      assert_equal 'secret', https.get('/').body
    end
    assert_equal [['GET', plain.url('/there')], ['CONNECT', "127.0.0.1:#{secret.port}"]] * 2, proxy.passed
  end

  def test_open_uri_follows_redirects
    heavy
    server = serving do |request|
      request.path == '/a' ? [302, { 'Location' => server.url('/b') }, 'elsewhere'] : [200, { 'Content-Type' => 'text/plain' }, 'here']
    end
    everywhere do
      URI.open(server.url('/a'), read_timeout: patient(5)) do |io|
        assert_equal ['here', 'text/plain', URI(server.url('/b'))], [io.read, io.content_type, io.base_uri]
      end
      assert_equal 'here', with_heartbeat { URI(server.url('/b')).read }
    end
    fibers = Array.new(20) { spin { URI.open(server.url('/a'), &:read) } }
    assert_equal %w[here], Fiber.await(*fibers).uniq
  end

  def test_open_uri_with_https
    server = serving(tls: TLS.server) { [200, {}, 'secret'] }
    Tempfile.create('ca') do |file|
      file.write(TLS.authority.cert.to_pem)
      file.close
      everywhere { assert_equal 'secret', URI.open(server.url, ssl_ca_cert: file.path, &:read) }
    end
  end

  # What is read comes from another process, faster than it can be used.
  def test_who_downloads_a_lot_lets_others_run
    heavy
    code = <<~RUBY
      require 'socket'
      server = TCPServer.new('127.0.0.1', 0)
      puts server.local_address.ip_port
      $stdout.flush
      socket = server.accept
      nil until socket.gets == "\\r\\n"
      socket << "HTTP/1.1 200 OK\\r\\nContent-Length: 100000000\\r\\n\\r\\n"
      100.times { socket << 'x' * 1_000_000 }
    RUBY
    reader, writer = pipe_pair
    pid = Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, '--disable-gems', '-e', code, out: writer)
    port = reader.gets.to_i
    beats = 0
    heart = spin { loop { beats += 1; snooze } }
    size = 0
    Net::HTTP.start('127.0.0.1', port) { |http| http.request_get('/') { |r| r.read_body { |part| size += part.size } } }
    assert_equal 100_000_000, size
    assert_operator beats, :>=, 100
    heart.stop
    Polyphony.backend_waitpid(pid)
  end
end
