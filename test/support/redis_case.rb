# frozen_string_literal: true

require_relative 'adapter_case'
require 'polyphony/testing'
require_relative 'redis_server'

module Polyphony
  # Tests against a Redis of our own. Limits are there so that a call which stops the thread fails instead of standing still.
  class RedisCase < AdapterCase
    include Testing::CancelEverywhere

    # Seconds after which the server, or the client, gives up by itself.
    LIMIT = 4

    def setup
      super
      @clients = []
      @server = RedisServer.shared
      @admin = client
      @admin.call('FLUSHALL')
    end

    def teardown
      @clients&.each(&:close)
      super
    end

    def config(**options)
      RedisClient.config(path: @server.socket, timeout: LIMIT, **options)
    end

    def client(**options)
      keep config(**options).new_client
    end

    def keep(client)
      @clients << client
      client
    end

    # That a command which writes lets others run while the server holds writes back.
    def assert_writing_yields(&block)
      @admin.call('CLIENT', 'PAUSE', LIMIT * 500, 'WRITE')
      assert_yields(-> { @admin.call('CLIENT', 'UNPAUSE') }, &block)
    ensure
      @admin.call('CLIENT', 'UNPAUSE')
    end

    # That a call lets others run while the server stands still. (@see PrivateServer#frozen)
    def while_server_stands(&block)
      @server.frozen { assert_yields(-> { ::Process.kill(:CONT, @server.pid) }, &block) }
    end

    # Waits until something is so. What is asked is mostly the server, which the fiber waits for.
    def eventually(message = 'in vain')
      limit = clock + patient(LIMIT)
      until yield
        flunk "waited #{patient(LIMIT)} s #{message}" if clock > limit
        sleep 0.001
      end
    end

    # Waits until as many clients wait for an element.
    def eventually_blocked(count)
      eventually("for #{count} blocked clients") { @admin.call('INFO', 'clients')[/blocked_clients:(\d+)/, 1].to_i == count }
    end

    # A server whose answers the test writes. Calls the block with each connection, in a fiber.
    # @return [Integer] its port
    def scripted_server(&script)
      listener = keep(TCPServer.new('127.0.0.1', 0))
      @scripts = spin do
        loop do
          socket = listener.accept
          spin do
            script.call(socket)
          rescue IOError, SystemCallError
            nil # the client has gone
          ensure
            socket.close
          end
        end
      end
      listener.local_address.ip_port
    end

    # @return [Array<String>] the next command of a client
    def read_command(socket)
      count = Integer(socket.readline[1..])
      Array.new(count) { socket.readline && socket.readline.chomp }
    end

    def stop_scripts
      @scripts&.stop
      @scripts&.await
    end
  end
end
