# frozen_string_literal: true

require 'open3'
require 'etc'
require 'json'
require_relative '../../support/native'

module Bench
  module HTTP
    # What asks the servers: wrk for HTTP/1, h2load for HTTP/2, small C programs for WebSocket and for a connection for each
    # request; on the second core.
    module Load
      UPLOAD = File.expand_path('upload.lua', __dir__)

      class << self
        # @return [Hash] rate (a second), p50 and p99 (ms), failed
        def wrk(server, path, connections:, seconds:, script: nil, secure: false)
          url = "#{secure ? 'https' : 'http'}://127.0.0.1:#{server.port}#{path}"
          words = ['-t1', "-c#{connections}", "-d#{seconds}s", '--latency', *(script ? ['-s', script] : []), url]
          output = run('wrk', *words)
          all = output[/(\d+) requests in/, 1].to_i
          failed = wrk_failures(output)
          { rate: good(output[/Requests\/sec:\s+([\d.]+)/, 1].to_f, all, failed),
            p50: milliseconds(output[/50%\s+([\d.]+\w+)/, 1]), p99: milliseconds(output[/99%\s+([\d.]+\w+)/, 1]), failed: failed }
        end

        def h2load(server, path, clients:, streams:, seconds:, secure: false)
          url = "#{secure ? 'https' : 'http'}://127.0.0.1:#{server.port}#{path}"
          output = run('h2load', '-t1', "-c#{clients}", "-m#{streams}", '-D', seconds.to_s, url)
          counts = output[/^requests: .*/].to_s.scan(/(\d+) (\w+)/).to_h { |n, what| [what, n.to_i] }
          failed = counts['done'].to_i - output[/status codes: (\d+) 2xx/, 1].to_i
          { rate: good(output[/finished in .*?([\d.]+) req\/s/, 1].to_f, counts['done'].to_i, failed),
            p99: milliseconds(output[/time for request:\s+\S+\s+(\S+)/, 1]), failed: failed }
        end

        # Messages of 64 bytes, one under way on each connection.
        def websocket(server, path, connections:, seconds:)
          output = run(Native.program('echo_load'), server.port.to_s, connections.to_s, seconds.to_s, server.pid.to_s, path)
          figures = JSON.parse(output, symbolize_names: true)
          { rate: figures[:rate].to_f, p99: figures[:p999] / 1000.0, failed: figures[:starved], seconds: 1.25 * seconds } # a quarter is not counted
        end

        # A connection for each request, of which wrk's part costs more than a server's.
        def closing(server, path, connections:, seconds:)
          output = run(Native.program('close_load'), server.port.to_s, connections.to_s, seconds.to_s, server.pid.to_s, path)
          figures = JSON.parse(output, symbolize_names: true)
          { rate: figures[:rate].to_f, p50: figures[:p50] / 1000.0, p99: figures[:p99] / 1000.0, failed: figures[:failed], own: figures[:own] }
        end

        private

        # An error is quickly said: only good answers count.
        def good(rate, all, failed)
          all.positive? ? rate * [all - failed, 0].max / all : 0.0
        end

        def run(*command)
          command = ['taskset', '-c', '1', *command] if Etc.nprocessors > 1
          output, status = Open3.capture2e(*command)
          raise "#{command.join(' ')}: #{output.lines.last(3).join}" unless status.success?

          output
        end

        def wrk_failures(output)
          sockets = output[/Socket errors: (.*)/, 1].to_s.scan(/(?:connect|read|write|timeout) (\d+)/).flatten.sum(&:to_i)
          sockets + output[/Non-2xx or 3xx responses: (\d+)/, 1].to_i
        end

        def milliseconds(text)
          return unless text && (match = text.match(/([\d.]+)(us|ms|s|m)/))

          match[1].to_f * { 'us' => 0.001, 'ms' => 1, 's' => 1000, 'm' => 60_000 }.fetch(match[2])
        end
      end
    end
  end
end
