# frozen_string_literal: true

require_relative 'adapter_case'
require_relative 'postgres_cluster'

module Polyphony
  # For tests of what stands on the gem pg. Queries wait for a lock that another connection, the +control+, holds.
  class PGCase < AdapterCase
    KEY = 7
    # Answers 'mine' when the lock is free. For at most LIMIT milliseconds, so that a test fails if it stops the thread.
    WAIT = "select 'mine' as word from (select pg_advisory_xact_lock_shared(#{KEY})) as waited"
    LIMIT = 4000
    LONG = 'select pg_sleep(30)'

    def self.gems(*names)
      super
      require 'polyphony/adapters/pg' if defined?(::PG)
    end

    def setup
      super
      @connections = []
      @drain_time = Adapters::PG.drain_time
    end

    def teardown
      Adapters::PG.drain_time = @drain_time if @drain_time
      @connections&.each { |connection| connection.finish unless connection.finished? }
      super
    end

    def server
      PostgresCluster.shared
    end

    # @return [PG::Connection] closed after the test
    def connect(settings = server.settings, **more)
      keep ::PG.connect(options: "-c lock_timeout=#{LIMIT} -c client_min_messages=error", **settings, **more)
    end

    def connect_over_tls
      connect(server.tcp_settings, sslmode: 'require').tap { |connection| assert_predicate connection, :ssl_in_use? }
    end

    def keep(connection)
      @connections << connection
      connection
    end

    def control
      @control ||= connect
    end

    def lock
      control.exec("select pg_advisory_lock(#{KEY})")
    end

    def unlock
      control.exec("select pg_advisory_unlock(#{KEY})")
    end

    # That a call which waits for the lock lets other fibers run.
    def assert_waits(&call)
      lock
      assert_yields(method(:unlock), &call)
    end

    # Calls the block until what the server says of the connection is so.
    def wait_until_held(connection, condition)
      pid = connection.backend_pid
      sql = "select 1 from pg_stat_activity where pid = #{pid} and #{condition}"
      sleep BEAT until control.exec(sql).ntuples == 1
    end

    def with_link
      link = Link.new(server.port)
      yield link
    ensure
      @connections.each { |connection| connection.finish unless connection.finished? }
      link&.close
    end

    # @return [Hash] for PG.connect
    def via(link)
      { **server.tcp_settings, port: link.port }
    end

    # That nothing is left of what was before.
    def assert_at_rest(connection)
      refute_predicate connection, :finished?
      assert_equal ::PG::PQTRANS_IDLE, connection.transaction_status
      assert_equal [['next']], connection.exec("select 'next'").values
      assert_equal [['param']], connection.exec_params('select $1::text', ['param']).values
    end
  end

  # Passes everything on between a client and the server, from a port of 127.0.0.1; or nothing, while it is held.
  class Link
    # @return [Integer]
    attr_reader :port

    # @param port [Integer] the server's
    def initialize(port)
      @server_port = port
      @server = TCPServer.new('127.0.0.1', 0)
      @server.setsockopt(:SOCKET, :RCVBUF, 1 << 16) # for those it accepts: what is sent is to be stuck soon
      @port = @server.local_address.ip_port
      @open = true
      @sockets = []
      @fiber = Fiber.current.spin { loop { serve(@server.accept) } }
    end

    # Nothing gets through from now on.
    def hold
      @open = false
    end

    def release
      @open = true
    end

    # As a network that is cut.
    def cut
      @sockets.each { |socket| socket.shutdown rescue nil } # rubocop:disable Style/RescueModifier -- it may be over
    end

    def close
      @fiber.stop
      @fiber.await
      [@server, *@sockets].each(&:close)
    end

    private

    def serve(client)
      server = TCPSocket.new('127.0.0.1', @server_port)
      @sockets.push(client, server)
      @fiber.spin { pass(client, server) }
      @fiber.spin { pass(server, client) }
    end

    def pass(from, to)
      loop do
        wait_until_open
        data = from.readpartial(65_536)
        wait_until_open
        to.write(data)
      end
    rescue EOFError, SystemCallError, IOError
      [from, to].each { |socket| socket.shutdown rescue nil } # rubocop:disable Style/RescueModifier -- it may be over
    end

    def wait_until_open
      sleep AdapterCase::BEAT until @open
    end
  end
end
