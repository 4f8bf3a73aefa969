# frozen_string_literal: true

# The attacks of `polyphony check`, each so many times and several at once, on a server that answers other clients meanwhile: what
# the suite tries once, on a server with nothing else to do, holds here under load and in volume.
#
# Of each attack the answer has to be the right one. The other clients get nothing but right answers; of attacks nothing may be left
# at the end, neither fibers, connections, descriptors nor operations, and memory is bounded.
#
#   ruby -Ilib test/soak/hostile.rb [times, 10 without it] [lines or ids of the list ...]

require 'polyphony'
POLYPHONY_LIB = File.expand_path('../../lib', __dir__) unless defined?(POLYPHONY_LIB)
require_relative '../support/hostile_target'
require_relative '../support/tls'

module Polyphony
  class HostileSoak
    SHORT = { header_time: 0.5, body_grace: 0.5, write_stall: 0.5, keep_alive: 0.5, handshake_time: 0.5,
              h2_settings_time: 0.5, h2_stall: 0.5, ws_ping: 0.5, ws_pong: 0.5, ws_close: 0.5 }.freeze
    CLIENTS = 16
    AT_ONCE = 5
    # Garbage that Ruby lets gather, and what malloc keeps; what is lost each time is more after hundreds of times.
    GROWTH = 64 << 20
    # How fast the others are answered is the machine's matter here.
    OPTIONS = { insecure: true, wait: 15, drip: 0.1, quiet: 0.3, prompt: 60, sink: '/sink', large: '/large', websocket: '/websocket',
                files: '/files/a.txt' }.freeze

    def initialize(times, only)
      @times = times
      @only = only unless only.empty?
    end

    # @return [Boolean]
    def call
      puts "#{Thread.current.backend.kind}, Ruby #{RUBY_VERSION}, each attack #{@times} times beside #{CLIENTS} clients"
      slow, quick = Check::CASES.select { |one| chosen?(one) }.partition(&:slow)
      [against(quick, {}), against(slow, SHORT)].all?
    end

    private

    Check = HTTP::Check

    def chosen?(one)
      @only.nil? || @only.any? { |word| [one.id, one.line.to_s].include?(word) }
    end

    def against(cases, limits)
      return true if cases.empty?

      target = HostileTarget.new(limits: limits, tls: identity, crowd: 60)
      File.write("#{target.root}/a.txt", 'a')
      before = settled(target)
      memory = target.memory
      failed = under_load(target) { attacks(target, cases) }
      failed += left_behind(target, before, memory)
      puts failed.first(40), "#{cases.size} attacks#{' with short limits' unless limits.empty?}: #{failed.empty? ? 'all defended' : "#{failed.size} FAILED"}"
      failed.empty?
    ensure
      target&.stop
    end

    def identity
      TLS.identity('localhost', '127.0.0.1').then { |one| { cert: one.cert.to_pem, key: one.key.to_pem } }
    end

    # Those that need TLS over TLS, all others bare.
    # @return [Array<String>] what went wrong
    def attacks(target, cases)
      checks = target.urls.map { |url| Check.new(url, **OPTIONS).explore }
      cases.flat_map do |one|
        check = one.needs == :tls ? checks.last : checks.first
        results = Fiber.map(Array.new(@times), limit: AT_ONCE) { check.attempt(one) }
        results.reject { |result| result.verdict == :pass }.map { |result| "#{one.id} #{one.title}: expected #{result.expected}, got #{result.got}" }.uniq
      end
    end

    # --- the others --------------------------------------------------------------------------------

    # Clients in a process of their own, so that they wait for nobody here.
    def under_load(target)
      reader, writer = IO.pipe
      pid = Polyphony.fork { reader.close; exit!(load(target.url, writer)) }
      writer.close
      began = Clock.now
      failed = yield
      ::Process.kill(:TERM, pid)
      said = reader.read
      ::Process.wait(pid)
      puts format('%<said>s in %<time>d s', said: said.lines.last.to_s.chomp, time: Clock.now - began)
      failed << "the other clients: #{said}" unless $?.success?
      failed
    ensure
      reader&.close
    end

    # @return [Boolean] whether all answers were right
    def load(url, writer)
      done = 0
      over = false
      trap(:TERM) { over = true }
      target = Check::Target.new(url)
      CLIENTS.times.map { spin { ask(target) { done += 1 } until over } }.each(&:await)
      writer.puts "#{done} good answers"
      writer.close
      done.positive?
    rescue StandardError => e
      writer.puts "#{done} good answers, then #{e.message} (#{e.class})"
      false
    end

    # A hundred requests on a connection, less than the server allows.
    def ask(target)
      socket = TCPSocket.new('127.0.0.1', Integer(target.authority[/\d+\z/], 10))
      100.times do
        socket << "GET / HTTP/1.1\r\nHost: #{target.authority}\r\n\r\n"
        head = socket.gets("\r\n\r\n") or raise IOError, 'no answer'
        body = socket.read(Integer(head[/^content-length: (\d+)/i, 1], 10))
        raise IOError, head + body.to_s unless head.start_with?('HTTP/1.1 200') && body == "ok \n"

        yield
        sleep 0.002 # there is room for those who attack
      end
    ensure
      socket&.close
    end

    # --- what is left --------------------------------------------------------------------------------

    WATCHED = %i[fibers open descriptors operations running].freeze

    def settled(target)
      sleep 0.2
      target.control.slice(*WATCHED)
    end

    def left_behind(target, before, memory)
      finish = Clock.now + 20
      after = settled(target)
      after = settled(target) until after.all? { |name, count| count <= before[name] } || Clock.now > finish
      target.ask('/tidy')
      growth = target.memory - memory
      left = WATCHED.reject { |name| after[name] <= before[name] }.map { |name| "left: #{after[name]} #{name}, before there were #{before[name]}" }
      left << "memory grew by #{growth >> 20} MB" if growth > GROWTH
      left << "on standard error: #{target.complaints[0, 500]}" unless target.complaints.empty?
      left
    end
  end
end

$stdout.sync = true
times = Integer(ARGV.shift || '10', 10)
exit Polyphony::HostileSoak.new(times, ARGV).call
