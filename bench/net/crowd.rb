# frozen_string_literal: true

require 'json'
require 'rbconfig'
require 'socket'

module Bench
  # A server in a process of its own, and many connections to it.
  class Crowd
    LIB = File.expand_path('../../lib', __dir__)
    SERVER = <<~'RUBY'
      require 'json'
      require 'polyphony/http'
      server = Polyphony::HTTP::Server.new('http://0.0.0.0:0', limits: JSON.parse(ARGV[0], symbolize_names: true), log: nil) do |request|
        request.respond("Hello, world!\n", 'content-type' => 'text/plain')
      end
      server.start
      puts server.port
      $stdout.flush
      $stdin.read
      server.stop(within: 0)
    RUBY
    FIBERS = <<~'RUBY'
      require 'polyphony'
      Thread.current.backend
      GC.start
      rss = -> { File.read('/proc/self/status')[/^VmRSS:\s+(\d+)/, 1].to_i }
      before = rss.call
      count = Integer(ARGV[0])
      fibers = Array.new(count) { spin { suspend } }
      snooze
      puts (rss.call - before) / count.to_f
      fibers.each(&:stop)
    RUBY
    # One address has some 28,000 ports to connect from.
    PORTS = 20_000

    attr_reader :pid, :port

    # @return [Float] KB of memory a fiber that waits, and does nothing else
    def self.fiber(count)
      IO.popen([RbConfig.ruby, "-I#{LIB}", '-e', FIBERS, count.to_s], &:read).to_f
    end

    # As many descriptors as we may have.
    def self.raise_limit
      hard = ::Process.getrlimit(:NOFILE).last
      ::Process.setrlimit(:NOFILE, hard, hard)
      hard
    end

    # @param limits [Hash] of the server
    def initialize(limits = {})
      reader, writer = IO.pipe
      input, @gate = IO.pipe
      @pid = ::Process.spawn(RbConfig.ruby, "-I#{LIB}", '-e', SERVER, JSON.generate(limits), in: input, out: writer)
      [input, writer].each(&:close)
      @port = Integer(reader.gets)
      reader.close
      @connections = []
    end

    # @return [Integer] how many are open by now
    def connect(count)
      count.times do |i|
        source = "127.0.0.#{2 + (@connections.size / PORTS)}"
        @connections << ::Socket.tcp('127.0.0.1', @port, source, 0)
        yield @connections.last, i if block_given?
      end
      @connections.size
    end

    def each(&block)
      @connections.each(&block)
    end

    # @return [Integer] how many the server has not closed
    def alive
      @connections.count { |socket| socket.recv_nonblock(1, ::Socket::MSG_PEEK, exception: false) == :wait_readable }
    rescue ::SystemCallError
      0
    end

    def leave
      @connections.each(&:close)
      @connections.clear
    end

    # @return [Float] seconds that a good request on a fresh connection takes
    def ask
      began = now
      socket = TCPSocket.new('127.0.0.1', @port)
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
      raise 'no answer' unless socket.read.start_with?('HTTP/1.1 200')

      now - began
    ensure
      socket&.close
    end

    # @return [Integer] KB
    def memory
      File.read("/proc/#{@pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i
    end

    # @return [Float] seconds of CPU time
    def cpu
      File.read("/proc/#{@pid}/stat")[/\) (.*)/, 1].split.values_at(11, 12).sum(&:to_i) / 100.0
    end

    def stop
      leave
      @gate.close
      ::Process.wait(@pid)
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
