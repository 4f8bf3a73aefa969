# frozen_string_literal: true

require 'rbconfig'
require_relative 'sides'
require_relative 'server_process'

module Bench
  module HTTP
    # The application called in a loop by a bare Ruby, without a server: what a server could do if it cost nothing.
    module Alone
      PROGRAM = <<~'RUBY'
        require 'rack'
        path, seconds = ARGV
        app = Rack::Builder.parse_file(path.split('?').first)
        app = app.first if app.is_a?(Array)
        env = { 'PATH_INFO' => path.split('?').last }
        clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
        100.times { app.call(env) }
        began = clock.call
        calls = 0
        while (took = clock.call - began) < Float(seconds)
          50.times { app.call(env) }
          calls += 50
        end
        puts calls / took
      RUBY

      class << self
        # @return [Hash, String] the rate; why there is none
        def measure(path, seconds)
          database = ServerProcess.database(folder = Dir.mktmpdir('bench-http'))
          environment = Side::CLEAN.merge(Peers.environment('rack'), 'BENCH_DATABASE' => database)
          command = [RbConfig.ruby, '-e', PROGRAM, "#{Side::APP}?#{path}", seconds.to_s]
          command = ['taskset', '-c', '0', *command] if Etc.nprocessors > 1
          output = IO.popen(environment, command, err: %i[child out], &:read)
          $?.success? ? { rate: Float(output), failed: 0 } : output.lines.first.to_s.strip
        ensure
          FileUtils.rm_rf(folder) if folder
        end
      end
    end
  end
end
