# frozen_string_literal: true

require 'etc'
require 'openssl'
require 'socket'
require 'tmpdir'
require 'fileutils'

module Bench
  module HTTP
    # A server while it is measured: a process on the first core with a folder for itself, started before
    # the load and ended after it.
    class ServerProcess
      PATIENCE = 30
      TICKS = Etc.sysconf(Etc::SC_CLK_TCK)

      attr_reader :port, :pid

      # @yield [ServerProcess] when it answers
      def self.run(side, way)
        server = new(side, way)
        server.await
        yield server
      ensure
        server&.stop
      end

      # A thousand things, of which the application shows twenty.
      # @return [String] a path in that folder
      def self.database(folder)
        path = "#{folder}/things.db"
        rows = (1..1000).map { |id| "(#{id}, 'thing #{id}', #{(id * 7919) % 1000})" }.join(',')
        sql = "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, price INTEGER); INSERT INTO things VALUES #{rows};"
        system('sqlite3', path, sql, exception: true)
        path
      end

      def initialize(side, way)
        @folder = Dir.mktmpdir('bench-http')
        @port = free_port
        certificate
        environment, command = side.start(way, @port, @folder)
        environment = environment.merge('BENCH_DATABASE' => self.class.database(@folder))
        command = ['taskset', '-c', '0', *command] if Etc.nprocessors > 1
        @pid = ::Process.spawn(environment, *command, out: log, err: log, pgroup: true, chdir: @folder)
      end

      # Until it accepts connections.
      def await
        give_up = clock + PATIENCE
        begin
          TCPSocket.new('127.0.0.1', @port).close
        rescue SystemCallError
          raise "it ended: #{complaint}" if ::Process.wait(@pid, ::Process::WNOHANG)
          raise "no answer within #{PATIENCE} s: #{complaint}" if clock > give_up

          sleep 0.05
          retry
        end
      end

      # @return [Float] seconds of CPU of its processes so far
      def cpu
        processes.sum { |pid| stat(pid)[11, 2].sum(&:to_i) / TICKS.to_f }
      end

      # What a busy machine takes from a server with one thread: it is one of many who want that core, a server with many threads is many of them.
      # @return [Float] seconds so far for which one of its threads, the one that had to wait most, was ready to run and another process had the core
      def waited
        Dir["/proc/#{@pid}/task/*/schedstat"].map { |path| File.read(path).split[1].to_i }.max.to_i / 1e9
      rescue SystemCallError
        retry # a thread ended while we looked
      end

      # @return [Float] MiB of its processes
      def memory
        processes.sum { |pid| File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i / 1024.0 }
      end

      def stop
        signal(:TERM)
        give_up = clock + 5
        sleep 0.02 until (gone = ::Process.wait(@pid, ::Process::WNOHANG)) || clock > give_up
        signal(:KILL)
        ::Process.wait(@pid) unless gone
      rescue Errno::ECHILD
        signal(:KILL)
      ensure
        FileUtils.rm_rf(@folder)
      end

      private

      def log
        "#{@folder}/log"
      end

      def complaint
        File.readlines(log).last(3).join.strip
      end

      def processes
        Dir['/proc/[0-9]*'].map { |path| Integer(File.basename(path)) }.select { |pid| stat(pid)[2].to_i == @pid }
      rescue SystemCallError
        retry # one ended while we looked
      end

      # From the third field on: state, parent, group …
      def stat(pid)
        File.read("/proc/#{pid}/stat").rpartition(')').last.split
      end

      def signal(name)
        ::Process.kill(name, -@pid)
      rescue Errno::ESRCH
        nil
      end

      def free_port
        server = TCPServer.new('127.0.0.1', 0)
        server.local_address.ip_port
      ensure
        server&.close
      end

      def certificate
        key = OpenSSL::PKey::EC.generate('prime256v1')
        name = OpenSSL::X509::Name.parse('/CN=localhost')
        cert = OpenSSL::X509::Certificate.new
        cert.version = 2
        cert.serial = 1
        cert.subject = cert.issuer = name
        cert.public_key = key
        cert.not_before = Time.now - 60
        cert.not_after = Time.now + 86_400
        cert.sign(key, 'SHA256')
        File.write("#{@folder}/key.pem", key.to_pem)
        File.write("#{@folder}/cert.pem", cert.to_pem)
      end

      def clock
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end
    end
  end
end
