# frozen_string_literal: true

# As much as one process takes, with how long it took: ruby test/random/load.rb [NAME], without a name each in a process of its own, for fibers
# and threads take most of the mappings there are. Raises its limits as far as it may.
require 'socket'
require 'polyphony'

module Load
  STEPS = {
    timers: -> { timers(1_000_000) },
    threads: -> { threads(1000) },
    connections: -> { connections(20_000) },
    fibers: -> { fibers(31_000) }
  }.freeze

  class << self
    def fibers(count)
      all = Array.new(count) { spin { suspend; 1 } }
      snooze
      all.each(&:schedule)
      Fiber.await(*all).sum == count
    end

    # Limits within each other, which are timers without fibers.
    def timers(count)
      depth = 100 # as deep as the stack of a fiber takes easily
      @most = 0
      all = Array.new(count / depth) { spin { suspend_within(depth) } }
      snooze
      all.each(&:stop)
      Fiber.await(*all)
      puts "  #{@most} timers at once"
      @most >= count
    end

    def suspend_within(depth)
      return (@most = [@most || 0, Thread.current.backend.stats[:pending_timers]].max; suspend) if depth.zero?

      Polyphony::CancelScope.move_on_after(1000, nil) { suspend_within(depth - 1) }
    end

    def threads(count)
      go = Thread::Queue.new
      all = Array.new(count) { Thread.new { spin { sleep 0.001; go.pop }.await } }
      count.times { go << 1 }
      all.sum(&:value) == count
    end

    # The clients are in another process: each end of a connection costs a descriptor.
    def connections(count)
      count = [count, Process.getrlimit(Process::RLIMIT_NOFILE).first - 200].min # where not even root may raise it
      server = TCPServer.new('127.0.0.1', 0)
      server.listen(4096)
      port = server.local_address.ip_port
      client = fork { clients(port, count); exit!(0) }
      echoed = 0
      served = spin { server.accept_loop { |socket| spin { while (line = socket.gets); socket << line; echoed += 1; end; socket.close } } }
      Process.wait(client)
      served.stop
      served.await
      puts "  #{echoed} lines on #{count} connections"
      $?.success? && echoed == count
    end

    def clients(port, count)
      sockets = []
      count.times { sockets << TCPSocket.new('127.0.0.1', port) }
      sockets.each_slice(500) { |some| some.each { |socket| socket << "hello\n" }; some.each { |socket| exit!(1) unless socket.gets == "hello\n" } }
    end
  end

  begin
    Process.setrlimit(Process::RLIMIT_NOFILE, 65_536)
  rescue Errno::EPERM # who is not root has what there is
    Process.setrlimit(Process::RLIMIT_NOFILE, Process.getrlimit(Process::RLIMIT_NOFILE).last)
  end
  if ARGV.empty?
    STEPS.each_key { |name| system(RbConfig.ruby, '-Ilib', __FILE__, name.to_s) || abort }
    exit
  end
  ARGV.map(&:to_sym).each do |name|
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    ok = Load.instance_exec(&STEPS.fetch(name))
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    memory = File.read('/proc/self/status')[/VmHWM:\s+(\d+)/, 1].to_i / 1024
    puts format('%<name>s, %<kind>s: %<ok>s, %<took>.1f s, %<memory>d MB at most', name: name, kind: Thread.current.backend.kind, ok: ok ? 'ok' : 'FAILED', took: took, memory: memory)
    abort unless ok
  end
end
