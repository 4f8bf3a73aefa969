# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/tls'
require_relative '../support/http_server'
require 'net/http'

# HTTP clients of others: they let other fibers run, keep their connections, and a request that is stopped leaves nothing behind
# for the next one. The server runs in fibers of the same thread: a client that stopped the thread would never get its answer.
class TestHTTPClients < Polyphony::AdapterCase
  on_every_driver

  TLS = Polyphony::TLS
  # Their own warnings are not ours to show. English and set: httpx uses them and does not ask for them.
  MISSING = %w[set English polyphony/adapters/auto http httpx faraday excon net/http/persistent].to_h do |name|
    verbose, $VERBOSE = $VERBOSE, nil
    require name
    [name, nil]
  rescue LoadError => e
    [name, e.message]
  ensure
    $VERBOSE = verbose
  end.freeze

  # Each: a GET alone; a session, whose get takes a path; a GET with a limit in seconds, or with an authority.
  # keeps: whether a session keeps its connection. shared: whether several fibers may use it at once.
  Session = Struct.new(:get, :close)
  Client = Struct.new(:feature, :limit, :keeps, :shared, :get, :session, :within, :secret, keyword_init: true)

  CLIENTS = {
    net_http: Client.new(
      limit: -> { Net::ReadTimeout }, keeps: true, shared: false,
      get: ->(url) { Net::HTTP.get(URI(url)) },
      session: lambda do |base|
        http = Net::HTTP.start(URI(base).host, URI(base).port)
        Session.new(->(path) { http.get(path).body }, -> { http.finish })
      end,
      within: ->(url, seconds) { Net::HTTP.start(URI(url).host, URI(url).port, read_timeout: seconds, max_retries: 0) { |http| http.get('/').body } },
      secret: ->(url) { Net::HTTP.start(URI(url).host, URI(url).port, use_ssl: true, cert_store: TLS.store) { |http| http.get(URI(url).path).body } }
    ),
    net_http_persistent: Client.new(
      feature: 'net/http/persistent', limit: -> { Net::ReadTimeout }, keeps: true, shared: true,
      get: ->(url) { persistent { |http| http.request(URI(url)).body } },
      session: lambda do |base|
        http = Net::HTTP::Persistent.new
        Session.new(->(path) { http.request(URI(base + path)).body }, -> { http.shutdown })
      end,
      within: ->(url, seconds) { persistent(read_timeout: seconds, max_retries: 0) { |http| http.request(URI(url)).body } },
      secret: ->(url) { persistent(cert_store: TLS.store) { |http| http.request(URI(url)).body } }
    ),
    excon: Client.new(
      feature: 'excon', limit: -> { Excon::Error::Timeout }, keeps: true, shared: true,
      get: ->(url) { Excon.get(url).body },
      session: lambda do |base|
        http = Excon.new(base, persistent: true)
        Session.new(->(path) { http.get(path: path).body }, -> { http.reset })
      end,
      within: ->(url, seconds) { Excon.get(url, read_timeout: seconds).body },
      secret: ->(url) { Excon.get(url, ssl_cert_store: TLS.store).body }
    ),
    http: Client.new(
      feature: 'http', limit: -> { HTTP::TimeoutError }, keeps: true, shared: false,
      get: ->(url) { HTTP.get(url).to_s },
      session: lambda do |base|
        http = HTTP.persistent(base)
        Session.new(->(path) { http.get(path).to_s }, -> { http.close })
      end,
      within: ->(url, seconds) { HTTP.timeout(connect: 5, write: 5, read: seconds).get(url).to_s },
      secret: ->(url) { HTTP.get(url, ssl_context: TLS.client { |context| context.verify_hostname = true }).to_s }
    ),
    httpx: Client.new( # returns errors
      feature: 'httpx', limit: -> { HTTPX::TimeoutError }, keeps: true, shared: true,
      get: ->(url) { HTTPX.get(url).tap(&:raise_for_status).to_s },
      session: lambda do |base|
        http = HTTPX.plugin(:persistent).with(origin: base)
        Session.new(->(path) { http.get(path).tap(&:raise_for_status).to_s }, -> { http.close })
      end,
      within: ->(url, seconds) { HTTPX.with(timeout: { request_timeout: seconds }).get(url).tap(&:raise_for_status).to_s },
      secret: lambda do |url|
        HTTPX.with(ssl: { cert_store: TLS.store, alpn_protocols: %w[http/1.1] }).get(url).tap(&:raise_for_status).to_s
      end
    ),
    faraday: Client.new( # with its adapter for Net::HTTP
      feature: 'faraday', limit: -> { Faraday::TimeoutError }, keeps: false, shared: true,
      get: ->(url) { Faraday.get(url).body },
      session: lambda do |base|
        http = Faraday.new(base)
        Session.new(->(path) { http.get(path).body }, -> { http.close })
      end,
      within: ->(url, seconds) { Faraday.new(request: { read_timeout: seconds }).get(url).body },
      secret: ->(url) { Faraday.new(ssl: { cert_store: TLS.store }).get(url).body }
    )
  }.freeze

  def persistent(**options)
    http = Net::HTTP::Persistent.new
    options.each { |name, value| http.public_send("#{name}=", value) }
    yield http
  ensure
    http&.shutdown
  end

  def self.persistent(**options, &block)
    instance_method(:persistent).bind_call(allocate, **options, &block)
  end

  def serving(tls: nil, &answer)
    @server = Polyphony::HTTPServer.new(tls: tls, &answer)
    @server.start
    @server
  end

  def teardown
    @server&.stop
    super
  end

  def session(client)
    session = client.session.call(@server.url(''))
    yield session.get
  ensure
    session&.close&.call
  end

  def with_client(name)
    heavy
    client = CLIENTS.fetch(name)
    skip "#{client.feature} is not installed: #{MISSING[client.feature]}" if MISSING[client.feature]
    client
  end

  def self.test_each_client(name, both: false, &block)
    CLIENTS.each_key do |client|
      body = proc { instance_exec(with_client(client), client, &block) }
      both ? test_in_both("#{client}_#{name}", &body) : define_method("test_#{client}_#{name}", &body)
    end
  end

  # Of the program's own, for a limit.
  class Enough < StandardError; end

  # What ends a request from outside, after some time.
  CANCELS = {
    move_on_after: ->(request, seconds) { Object.new.instance_exec { move_on_after(seconds, with_value: :over) { request.call } } },
    cancel_after: ->(request, seconds) { Object.new.instance_exec { cancel_after(seconds) { request.call } } },
    an_error: ->(request, seconds) { Object.new.instance_exec { cancel_after(seconds, with_exception: Enough) { request.call } } },
    deadline: ->(request, seconds) { Object.new.instance_exec { deadline(seconds) { request.call } } },
    timeout: ->(request, seconds) { Timeout.timeout(seconds) { request.call } },
    stop: lambda do |request, seconds|
      fiber = Fiber.current.spin { request.call }
      sleep seconds
      fiber.stop(:over)
      fiber.await
    end
  }.freeze
  OVER = [Polyphony::Cancel, Timeout::Error, Enough].freeze
  # Seconds. On a busy machine a request may not have come to the server when the shortest is over.
  LIMITS = [0.02, 0.2, 2, 20].freeze

  # Gives up a request, once the server has begun with it: what it has not seen shows nothing.
  # @return [String] the path
  def give_up(get, path, cancel)
    LIMITS.each do |seconds|
      asked = "#{path}/#{seconds}"
      assert over?(-> { get.call(asked) }, seconds, cancel), asked
      return asked if @server.requests.any? { |request| request.path == asked }
    end
    flunk "no request came to the server within #{LIMITS.last} s"
  end

  def over?(request, seconds, cancel)
    cancel.call(request, seconds) == :over
  rescue *OVER
    true
  rescue StandardError => e
    e.class.name.match?(/timeout/i) || e.cause.is_a?(Enough) || raise # excon takes any error for one of its own
  end

  # --- waiting ----------------------------------------------------------------------------------------------------------

  test_each_client(:lets_others_run, both: true) do |client|
    release = Polyphony::WaitList.new
    server = serving { |request| release.park(5); [200, {}, request.path] }
    assert_equal '/a', assert_yields(-> { release.wake_all }) { client.get.call(server.url('/a')) }
    session(client) { |get| assert_equal '/b', assert_yields(-> { release.wake_all }) { get.call('/b') } }
  end

  # All have to be there before any is answered.
  test_each_client(:in_200_fibers) do |client|
    arrived = 0
    everyone = Polyphony::WaitList.new
    server = serving do |request|
      arrived += 1
      arrived == 200 ? everyone.wake_all : everyone.park
      [200, {}, request.path]
    end
    fibers = Array.new(200) { |i| spin { client.get.call(server.url("/#{i}")) } }
    assert_equal Array.new(200) { |i| "/#{i}" }, Fiber.await(*fibers)
  end

  test_each_client(:with_a_connection_in_each_fiber) do |client|
    server = serving { |request| sleep 0.001; [200, {}, request.path.scan(/.{1,2}/)] }
    paths = Array.new(10) { |i| Array.new(3) { |j| "/#{i}/#{j}" } }
    got = paths.map { |list| spin { session(client) { |get| list.map { |path| get.call(path) } } } }
    assert_equal paths, Fiber.await(*got)
    assert_equal client.keeps ? 10 : 30, server.accepted
  end

  test_each_client(:shared_by_fibers) do |client|
    skip 'each fiber needs a session of its own (see the guide)' unless client.shared
    serving { |request| sleep 0.001; [200, {}, request.path.scan(/.{1,2}/)] }
    session(client) do |get|
      fibers = Array.new(10) { |i| spin { Array.new(3) { |j| get.call("/#{i}/#{j}") } } }
      assert_equal Array.new(10) { |i| Array.new(3) { |j| "/#{i}/#{j}" } }, Fiber.await(*fibers)
    end
  end

  test_each_client(:with_https, both: true) do |client|
    server = serving(tls: TLS.server) { |request| [200, {}, "secret #{request.path}"] }
    assert_equal 'secret /a', client.secret.call(server.url('/a'))
    fibers = Array.new(10) { spin { client.secret.call(server.url('/b')) } }
    assert_equal ['secret /b'], Fiber.await(*fibers).uniq
    spin { assert_raises(StandardError) { client.get.call(server.url('/')) }; nil }.await # whose stack is not looked at by the GC
  end

  # --- limits and stops -------------------------------------------------------------------------------------------------

  test_each_client(:with_limits_of_its_own, both: true) do |client|
    release = Polyphony::WaitList.new
    server = serving { release.park; [200, {}, 'late'] }
    slow = spin { client.get.call(server.url('/')) }
    assert_raises(client.limit.call) { client.within.call(server.url('/'), 0.05) }
    sleep 0.001 until server.requests.size >= 2
    release.wake_all
    assert_equal 'late', slow.await
  end

  # Before the answer begins, and in the middle of it. The next request in that session gets its own answer, and what was
  # given up is not sent again.
  CANCELS.each do |how, cancel|
    test_each_client(:"is_ended_by_#{how}", both: true) do |client|
      release = Polyphony::WaitList.new
      server = serving do |request|
        case request.path
        when %r{/slow} then release.park; [200, {}, 'old']
        when %r{/half} then [200, {}, Enumerator.new { |chunks| chunks << 'old'; release.park; chunks << 'older' }]
        else [200, {}, request.path]
        end
      end
      %w[/slow /half].each do |path|
        session(client) do |get|
          assert_equal '/1', get.call('/1')
          path = give_up(get, path, cancel)
          release.wake_all
          assert_equal ['/2', '/3'], [get.call('/2'), get.call('/3')], path
          assert_equal 1, server.requests.count { |request| request.path == path }, 'sent again'
        end
      end
      server.connections.each_key(&:close)
    end
  end

  # Its connections are closed, not left to the garbage collector.
  test_each_client(:that_is_stopped_closes) do |client|
    server = serving { |request| sleep if request.path == '/wait'; [200, {}, request.path] }
    fibers = Array.new(5) { spin { client.get.call(server.url('/wait')) } }
    sleep 0.001 until server.requests.size == 5
    connections = server.connections.keys
    fibers.each(&:stop).each(&:await)
    connections.each { |connection| assert_nil connection.read(1) }
    assert_equal '/next', client.get.call(server.url('/next'))
    server.connections.each_key(&:close)
  end

  # Some take their connections out of the pool in the child: that must not be felt in the parent.
  test_each_client(:with_a_fork_between) do |client|
    serving { |request| [200, {}, request.path] }
    session(client) do |get|
      assert_equal '/1', get.call('/1')
      assert_equal 0, Process.wait2(Process.fork { exit!(0) }).last.exitstatus
      assert_equal '/2', get.call('/2')
    end
  end

  # --- servers that go away -----------------------------------------------------------------------------------------------

  test_each_client(:that_is_cut_off_in_mid_answer, both: true) do |client, name|
    serving do |request|
      next [200, {}, request.path] unless request.path == '/cut'

      [200, {}, Enumerator.new { |chunks| chunks << 'half'; request.connection.close; chunks << 'of it' }]
    end
    session(client) do |get|
      assert_equal '/1', get.call('/1')
      if name == :http # its way, with Polyphony and without: half an answer, and a connection that is found closed
        assert_equal 'half', get.call('/cut')
        assert_raises(HTTP::ConnectionError) { get.call('/1') }
      else
        assert_raises(StandardError) { get.call('/cut') }
      end
      assert_equal '/2', get.call('/2')
    end
  end

  def test_httpx_with_several_at_once_in_one_fiber
    with_client(:httpx)
    skip 'IO.select stops the thread on this Ruby' if IO.method(:select).owner == IO.singleton_class && RUBY_VERSION < '3.2'
    server = serving { |request| sleep 0.001; [200, {}, request.path] }
    2.times do |i|
      work = -> { HTTPX.get(*Array.new(5) { |j| server.url("/#{j}") }).map(&:to_s) }
      assert_equal Array.new(5) { |j| "/#{j}" }, i.zero? ? work.call : spin(&work).await
    end
  end

  # Sockets of fibers that have ended are closed when another fiber comes.
  def test_excon_does_not_keep_what_ended_fibers_have_left
    with_client(:excon)
    server = serving { |request| [200, {}, request.path] }
    session(CLIENTS[:excon]) do |get|
      5.times { |i| assert_equal "/#{i}", spin { get.call("/#{i}") }.await }
      sleep 0.001 until server.connections.size <= 1
      assert_equal '/a', get.call('/a')
      assert_equal '/b', get.call('/b')
      assert_equal 6, server.accepted
    end
  end

  # Whoever shares the connection of a request that is given up hears of it, and the session can be used on.
  def test_httpx_shared_session_with_a_request_that_is_stopped
    with_client(:httpx)
    release = Polyphony::WaitList.new
    serving { |request| release.park(5) if request.path == '/slow'; [200, {}, request.path] }
    session(CLIENTS[:httpx]) do |get|
      stopped = spin { get.call('/slow') }
      sleep 0.001 until @server.requests.size == 1
      others = Array.new(5) { |i| spin { get.call("/#{i}") rescue $!.message } } # rubocop:disable Style/RescueModifier
      snooze
      stopped.stop
      stopped.await
      others.each_with_index { |other, i| assert_match(%r{\A/#{i}\z|something went wrong|given up}, other.await) }
      assert_equal '/next', get.call('/next')
      assert_equal 1, @server.requests.count { |request| request.path == '/slow' }
    end
  end
end
