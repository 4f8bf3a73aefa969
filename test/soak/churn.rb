# frozen_string_literal: true

# A mixture, round after round, for as long as one likes: fibers that end, are cancelled or time out; connections that
# are made, used, given up and closed; pipes, processes, forks, threads with a loop of their own. What comes when is drawn
# by lot, from a seed.
#
# After each round no fiber, operation, timer, thread, child process or descriptor may be more than before. Memory is looked at
# now and then, unless it is a matter of seconds: from the first quarter on, when all that is kept for later is there, it may
# grow by five per cent.
#
#   ruby -Ilib test/soak/churn.rb [seconds, 3600 without it] [seed]

require 'polyphony'
require 'polyphony/testing'
require 'socket'
require 'timeout'
require_relative '../support/malloc'

module Polyphony
  class ChurnSoak
    MOST = 1.05
    SAMPLES = 40
    # Of either that a round begins with: the first ones make what is then kept.
    WARM_UP = 3
    PATIENCE = 180
    # Less tells nothing about memory.
    SHORT = 120

    Gone = Class.new(StandardError)

    def initialize(seconds, seed)
      @seconds = seconds
      @seed = seed
      @random = Random.new(seed)
      @sizes = []
      @rounds = 0
    end

    # @return [Boolean]
    def call
      puts "#{Thread.current.backend.kind}, Ruby #{RUBY_VERSION}, #{@seconds} seconds, seed #{@seed}"
      WARM_UP.times { round }
      @began = now
      round until now - @began > @seconds
      judge
    end

    private

    KINDS = %i[spins timeouts messages pipes connections given_up processes forks threads generators failures].freeze

    # Each kind in a fiber of its own, so that they meet.
    def round
      leaks = Testing::Leaks.new
      threads = ::Thread.list.size
      cancel_after(PATIENCE) { KINDS.shuffle(random: @random).map { |kind| spin(kind) { send(kind, seed) } }.each(&:await) }
      @rounds += 1
      left = leaks.found
      left << 'threads' if more_threads?(threads)
      left << 'child processes' if children?
      raise "round #{@rounds} of seed #{@seed} left: #{left.join(', ')}" if left.any?

      sample if @began && now - @began > @sizes.size * @seconds / SAMPLES.to_f
    end

    def seed
      Random.new(@random.rand(1 << 30))
    end

    # Those of pools stay for a while; they are not ours.
    def more_threads?(before)
      100.times { ::Thread.list.size > before + Polyphony.blocking_pool.stats[:threads] ? sleep(0.01) : (return false) }
      true
    end

    def children?
      ::Process.wait(-1, ::Process::WNOHANG)
      true
    rescue Errno::ECHILD
      false
    end

    # --- what is done ----------------------------------------------------------------------------

    def spins(random)
      fibers = Array.new(200) { |i| spin { random.rand < 0.5 ? snooze : sleep(random.rand / 500); i } }
      fibers.each { |fiber| random.rand < 0.3 ? fiber.stop : fiber.await }
      deep(random.rand(1..40))
    end

    # Children of children, ended from above.
    def deep(depth)
      spin { deep(depth - 1) if depth.positive?; sleep }.tap { snooze }.stop
    end

    def timeouts(random)
      50.times do
        limit = random.rand / 1000
        case random.rand(4)
        when 0 then move_on_after(limit) { sleep }
        when 1 then in_vain(Polyphony::Cancel) { cancel_after(limit) { sleep } }
        when 2 then in_vain(::Timeout::Error) { ::Timeout.timeout(limit) { sleep } }
        else move_on_after(PATIENCE) { cancel_after(PATIENCE) { sleep(limit) } }
        end
      end
    end

    def messages(random)
      queue = Queue.new
      lock = Mutex.new
      got = 0
      takers = Array.new(4) { spin { 25.times { queue.shift; lock.synchronize { snooze; got += 1 } } } }
      100.times { |i| queue << i; snooze if random.rand < 0.2 }
      takers.each(&:await)
      raise Gone, "#{got} of 100 messages" unless got == 100
    end

    def pipes(random)
      10.times do
        reader, writer = IO.pipe
        size = random.rand(1..200_000)
        from = spin { in_vain(IOError) { writer << ('x' * size); writer.close } }
        read = random.rand < 0.2 ? nil : reader.read.size
        raise Gone, "#{read} of #{size} bytes" if read && read != size
      ensure
        from.stop
        [from, reader, writer].each { |one| one.is_a?(Fiber) ? one.await : one.close }
      end
    end

    def connections(random)
      server = TCPServer.new('127.0.0.1', 0)
      echo = spin { server.accept_loop { |socket| spin { answer(socket) } } }
      clients = Array.new(10) do
        spin do
          client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
          random.rand(1..5).times { |i| client.puts(i); raise Gone, 'an answer' unless client.gets == "#{i}\n" }
        ensure
          client&.close
        end
      end
      clients.each(&:await)
    ensure
      echo&.stop
      echo&.await
      server&.close
    end

    def answer(socket)
      while (line = socket.gets) do socket.write(line) end
    rescue SystemCallError, IOError
      nil
    ensure
      socket.close
    end

    # Reads, writes, accepts and connects that are broken off, by a stop, a limit or a close.
    def given_up(random)
      server = TCPServer.new('127.0.0.1', 0)
      20.times do
        one, other = UNIXSocket.pair
        fiber = spin { in_vain(IOError, SystemCallError) { give_up_in(random.rand(4), one, server) } }
        snooze
        case random.rand(3)
        when 0 then fiber.stop
        when 1 then other.close
        else one.close
        end
        fiber.stop
      ensure
        [one, other].each { |socket| socket&.close }
      end
    ensure
      server&.close
    end

    def give_up_in(way, socket, server)
      case way
      when 0 then socket.read(10)
      when 1 then socket.write('x' * 1_000_000)
      when 2 then move_on_after(0.001) { server.accept.close }
      else move_on_after(0.001) { IO.select([socket], nil, nil, 1) }
      end
    end

    def processes(random)
      raise Gone, 'an output' unless `echo #{@rounds}` == "#{@rounds}\n"

      pid = ::Process.spawn('sleep', '60')
      waiter = spin { ::Process.wait(pid) }
      snooze if random.rand < 0.5
      ::Process.kill(:TERM, pid)
      waiter.await
    end

    def forks(random)
      reader, writer = IO.pipe
      pid = Polyphony.fork { reader.close; writer << spin { sleep(0.001); random.rand(10) }.await; writer.close }
      writer.close
      raise Gone, 'what a child wrote' unless reader.read.match?(/\A\d\z/)

      ::Process.wait(pid)
      raise Gone, "a child: #{$?.inspect}" unless $?.success?
    ensure
      [reader, writer].each(&:close)
    end

    def threads(random)
      kept = Array.new(3) { |i| ::Thread.new { Array.new(10) { spin { sleep(0.001); i } }.sum(&:await) } }
      killed = ::Thread.new { spin { sleep }; sleep }
      sleep(random.rand / 500)
      killed.kill.join
      raise Gone, 'what threads gave' unless kept.sum(&:value) == 30
    end

    def generators(random)
      numbers = Enumerator.new { |to| 20.times { |i| snooze; to << i } }
      random.rand(1..20).times { |i| raise Gone, 'a number' unless numbers.next == i }
    end

    def failures(random)
      20.times do
        fiber = spin { snooze if random.rand < 0.5; raise Gone, 'as it should' }
        in_vain(Gone) { fiber.await }
      end
      failing = spin(:failing) { sleep(0.0005); raise Gone }
      count = 0
      spin { supervise(failing, restart: :always) { break if (count += 1) == 3 } }.await
    end

    def in_vain(*errors)
      yield
    rescue *errors
      nil
    end

    # --- what is looked at -----------------------------------------------------------------------

    def sample
      GC.start
      Malloc.trim
      @sizes << File.read('/proc/self/status')[/^VmRSS:\s+(\d+)/, 1].to_i
      puts format('%6d s %7d rounds %8d KB', now - @began, @rounds, @sizes.last)
    end

    # @return [Boolean]
    def judge
      puts "#{@rounds} rounds, nothing left"
      @seconds < SHORT || judge_memory
    end

    # Means of ten samples each, as single ones go up and down.
    def judge_memory
      later = @sizes.drop(@sizes.size / 4)
      first, last = later.first(10), later.last(10)
      ratio = last.sum.fdiv(last.size) / (first.sum.fdiv(first.size))
      ok = ratio <= MOST
      puts format('memory %s: %.1f %%', ok ? 'steady' : 'GROWS', ratio * 100)
      ok
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end

$stdout.sync = true
exit Polyphony::ChurnSoak.new(Float(ARGV.fetch(0, '3600')), Integer(ARGV.fetch(1, Random.rand(1 << 30).to_s), 10)).call
