# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/tls'
require_relative '../support/http_server'

# HTTP clients of others, as they are. They come with the group :test of the Gemfile.
class TestHTTPClients < Polyphony::TestCase
  on_every_driver

  TLS = Polyphony::TLS
  # Their own warnings are not ours to show. English: httpx reads $ERROR_INFO and does not ask for it.
  MISSING = %w[set English http httpx faraday].to_h do |name|
    verbose, $VERBOSE = $VERBOSE, nil
    require name
    [name, nil]
  rescue LoadError => e
    [name, e.message]
  ensure
    $VERBOSE = verbose
  end.freeze

  # Each: a GET; several through one connection; one with a limit in seconds; one with an authority.
  module Clients
    # http.rb
    module HTTP
      LIMIT = -> { ::HTTP::TimeoutError }

      class << self
        def get(url)
          ::HTTP.get(url).to_s
        end

        def get_all(base, paths)
          ::HTTP.persistent(base) { |http| paths.map { |path| http.get(path).to_s } }
        end

        def get_within(url, seconds)
          ::HTTP.timeout(connect: 5, write: 5, read: seconds).get(url).to_s
        end

        def get_secret(url)
          ::HTTP.get(url, ssl_context: TLS.client { |context| context.verify_hostname = true }).to_s
        end
      end
    end

    # httpx, which returns errors
    module HTTPX
      LIMIT = -> { ::HTTPX::TimeoutError }

      class << self
        def get(url)
          ::HTTPX.get(url).tap(&:raise_for_status).to_s
        end

        def get_all(base, paths)
          http = ::HTTPX.plugin(:persistent).with(origin: base)
          paths.map { |path| http.get(path).to_s }
        ensure
          http.close
        end

        def get_within(url, seconds)
          ::HTTPX.with(timeout: { request_timeout: seconds }).get(url).tap(&:raise_for_status).to_s
        end

        def get_secret(url)
          ::HTTPX.with(ssl: { cert_store: TLS.store, alpn_protocols: %w[http/1.1] }).get(url).tap(&:raise_for_status).to_s
        end
      end
    end

    # with its adapter for Net::HTTP, which does not keep connections
    module Faraday
      LIMIT = -> { ::Faraday::TimeoutError }

      class << self
        def get(url)
          ::Faraday.get(url).body
        end

        def get_all(base, paths)
          http = ::Faraday.new(base)
          paths.map { |path| http.get(path).body }
        end

        def get_within(url, seconds)
          ::Faraday.new(request: { read_timeout: seconds }).get(url).body
        end

        def get_secret(url)
          ::Faraday.new(ssl: { cert_store: TLS.store }).get(url).body
        end
      end
    end
  end

  def serving(tls: nil, &answer)
    @server = Polyphony::HTTPServer.new(tls: tls, &answer)
    @server.start
    @server
  end

  def teardown
    @server&.stop
  end

  def everywhere
    yield
    spin { yield }.await
  end

  { 'http' => :HTTP, 'httpx' => :HTTPX, 'faraday' => :Faraday }.each do |gem, name|
    client = Clients.const_get(name)
    check = define_method("need_#{gem}") do
      heavy
      skip "the gem #{gem} is not installed: #{MISSING[gem]}" if MISSING[gem]
    end

    define_method("test_#{gem}_in_many_fibers") do
      send(check)
      arrived = 0
      everyone = Polyphony::WaitList.new
      server = serving do |request|
        if request.path == '/together'
          arrived += 1
          arrived == 50 ? everyone.wake_all : everyone.park
        end
        [200, {}, request.path]
      end
      everywhere { assert_equal '/alone', client.get(server.url('/alone')) }
      fibers = Array.new(50) { spin { client.get(server.url('/together')) } }
      assert_equal({ '/together' => 50 }, Fiber.await(*fibers).tally)
    end

    define_method("test_#{gem}_with_a_connection_in_each_fiber") do
      send(check)
      server = serving { |request| sleep 0.001; [200, {}, request.path.scan(/.{1,2}/)] }
      paths = Array.new(10) { |i| Array.new(3) { |j| "/#{i}/#{j}" } }
      assert_equal paths, Fiber.await(*paths.map { |list| spin { client.get_all(server.url(''), list) } })
      assert_equal gem == 'faraday' ? 30 : 10, server.accepted
    end

    define_method("test_#{gem}_with_time_limits") do
      send(check)
      release = Polyphony::WaitList.new
      server = serving { release.park; [200, {}, 'late'] }
      slow = spin { client.get(server.url('/')) }
      everywhere { assert_raises(client::LIMIT.call) { client.get_within(server.url('/'), 0.05) } }
      snooze until server.requests.size >= 3
      release.wake_all
      assert_equal 'late', slow.await
    end

    define_method("test_#{gem}_with_https") do
      send(check)
      server = serving(tls: TLS.server) { |request| [200, {}, "secret #{request.path}"] }
      everywhere { assert_equal 'secret /a', client.get_secret(server.url('/a')) }
      fibers = Array.new(10) { spin { client.get_secret(server.url('/b')) } }
      assert_equal ['secret /b'], Fiber.await(*fibers).uniq
      spin { assert_raises(StandardError) { client.get(server.url('/')) }; nil }.await # whose stack is not looked at by the GC
    end

    # http.rb leaves its socket to the garbage collector: a stop is no StandardError.
    define_method("test_#{gem}_that_is_stopped") do
      send(check)
      server = serving { |request| sleep if request.path == '/wait'; [200, {}, request.path] }
      fibers = Array.new(5) { spin { client.get(server.url('/wait')) } }
      sleep 0.001 until server.requests.size == 5
      connections = server.connections.keys
      fibers.each(&:stop).each(&:await)
      fibers.clear
      GC.start
      connections.each { |connection| assert_nil connection.read(1) } unless gem == 'http'
      assert_equal '/next', client.get(server.url('/next'))
      server.connections.each_key(&:close)
    end
  end

  def test_httpx_with_several_at_once_in_one_fiber
    need_httpx
    skip 'IO.select stops the thread on this Ruby' if IO.method(:select).owner == IO.singleton_class && RUBY_VERSION < '3.2'
    server = serving { |request| sleep 0.001; [200, {}, request.path] }
    everywhere do
      responses = HTTPX.get(*Array.new(5) { |i| server.url("/#{i}") })
      assert_equal Array.new(5) { |i| "/#{i}" }, responses.map(&:to_s)
    end
  end
end
