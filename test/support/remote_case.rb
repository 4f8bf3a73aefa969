# frozen_string_literal: true

require_relative 'redis_case'

module Polyphony
  # Tests of Polyphony::Remote. Two of them in one process are two processes to Redis.
  class RemoteCase < RedisCase
    NAMESPACE = 'test'

    def setup
      super
      [Fiber.current.mailbox, Fiber.current.monitor_mailbox].each(&:clear) # they are the same in all tests
      @remotes = []
      @started = []
    end

    def teardown
      @remotes&.each(&:close)
      @started&.each { |program| program.finish(self, 0.1) if alive?(program.pid) && ::Process.kill(:KILL, program.pid) }
      super
    end

    def remote(**options)
      Remote.new(path: @server.socket, namespace: NAMESPACE, **options).tap { |one| @remotes << one }
    end

    def key(rest)
      "polyphony:{#{NAMESPACE}}:#{rest}"
    end

    # @return [Array<String>] what is in Redis
    def keys
      @admin.call('KEYS', '*').map { |name| name.delete_prefix(key('')) }.sort
    end

    # A fiber that receives under the name. What it gets goes to the block, and into the array.
    # @return [Array(Fiber, Array)]
    def receiver(remote, name, **options, &block)
      got = []
      ready = Polyphony::Event.new
      fiber = spin do
        remote.register(name, **options)
        ready.signal
        receive_loop { |message| got << message; block&.call(message, remote.delivery) }
      end
      ready.await
      [fiber, got]
    end

    def eventually_length(name, length)
      eventually("for #{length} messages in #{name}") { @admin.call('XLEN', key("mailbox:#{name}")) == length }
    end

    CHILD = <<~RUBY
      require 'polyphony/remote'
      redis = RedisClient.new(path: ENV['SOCKET'], timeout: 20)
      remote = Polyphony::Remote.new(path: ENV['SOCKET'], namespace: '#{NAMESPACE}', lost_after: Float(ENV['LOST_AFTER']))
    RUBY

    # Another process. It has +redis+ and +remote+.
    # @return [Started]
    def process(code, lost_after: 1)
      env = { 'SOCKET' => @server.socket, 'LOST_AFTER' => lost_after.to_s, 'RUBYOPT' => '-rbundler/setup' }
      start_command(env, RbConfig.ruby, '-W1', "-I#{POLYPHONY_LIB}", '-e', "#{CHILD}\n#{code}").tap { |program| @started << program }
    end

    # Waits until a process has pushed something to that list.
    def await_word(list, limit = 30)
      found = @admin.blocking_call(limit + 5, 'BLPOP', list, limit) or flunk "nobody said anything to #{list}:\n#{complaints}"
      found.last
    end

    def complaints
      @started.map { |program| File.read(program.err.path) }.join("\n")
    end

    def kill(program)
      ::Process.kill(:KILL, program.pid)
      program.finish(self, patient(10))
      @started.delete(program)
    end

    # It comes to its end by itself.
    def finish(program)
      out, err, status = program.finish(self, patient(20))
      @started.delete(program)
      assert_predicate status, :success?, err
      out
    end

    def alive?(pid)
      ::Process.kill(0, pid)
    rescue Errno::ESRCH
      false
    end
  end
end
