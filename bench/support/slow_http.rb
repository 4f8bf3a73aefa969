# frozen_string_literal: true

require 'net/http'

module Bench
  # Many clients of a server that takes its time. How they are made to wait at once is what differs.
  class SlowHTTP
    CLIENTS = 200
    DELAY = 50 # ms

    # @param requests [Integer] of each client, through one connection
    # @yield [clients] runs the procs of that array at once, and returns when all are through
    # @return [Hash] figures
    def self.measure(requests, &all_at_once)
      new(requests).measure(&all_at_once)
    end

    def initialize(requests)
      @requests = requests
      @answers = 0
    end

    def measure
      server = IO.popen([Native.program('slow_http'), DELAY.to_s])
      port = Integer(server.gets)
      clients = Array.new(CLIENTS) { -> { ask(port) } }
      wall, cpu = time { yield clients }
      raise "#{@answers} answers" unless @answers == CLIENTS * @requests

      { rate: @answers / wall, cpu: cpu * 1e6 / @answers }
    ensure
      Process.kill(:KILL, server.pid)
      server.close
    end

    private

    def ask(port)
      Net::HTTP.start('127.0.0.1', port, read_timeout: 30) do |http|
        @requests.times { @answers += 1 if http.get('/').body.size == 1000 }
      end
    end

    # @return [Array(Float, Float)] seconds by the wall, and of CPU
    def time
      GC.start
      clocks = [Process::CLOCK_MONOTONIC, Process::CLOCK_PROCESS_CPUTIME_ID]
      before = clocks.map { |clock| Process.clock_gettime(clock) }
      yield
      clocks.zip(before).map { |clock, start| Process.clock_gettime(clock) - start }
    end
  end
end
