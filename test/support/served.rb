# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'
require 'socket'
require 'tmpdir'

module Polyphony
  # `polyphony serve` in a process of its own, with a folder for its files. What it logs is read line by line, which is
  # how tests learn that something has happened.
  class Served
    EXE = File.expand_path('../../exe/polyphony', __dir__)
    # Answers with the number of its process; knows some paths on which things take their time or go wrong.
    APP = <<~'RUBY'
      run do |request|
        case request.path
        when '/slow'    then File.write("slow.#{::Process.pid}", '') && sleep(0.5) && request.respond("slow #{::Process.pid}")
        when '/hang'    then File.write("hang.#{::Process.pid}", '') && sleep
        when '/compute' then loop {}
        when '/env'     then request.respond("#{ENV['RACK_ENV']} #{::Process.uid} #{Dir.pwd}")
        when '/fail'    then raise 'on purpose'
        else request.respond("#{defined?(RELEASE) ? RELEASE : 1} #{::Process.pid}")
        end
      end
    RUBY

    # @return [Integer] of the process that was started
    attr_reader :pid
    # @return [String] its folder
    attr_reader :folder
    # @return [Array<String>] what it has logged so far, as far as it was asked for
    attr_reader :lines

    # @param options [Array<String>] of the command
    # @param app [String, nil] content of app.rb; nil: there is none
    # @param env [Hash]
    # @param ready [Boolean] whether to wait until it listens
    # @param wrapper [Array<String>, nil] arguments of a Ruby that becomes it
    # @param gems [Array<String>] that it may use
    # @param spawn [Hash] for ::Process.spawn
    def initialize(*options, folder: Dir.mktmpdir, app: APP, env: {}, ready: true, wrapper: nil, gems: [], **spawn)
      @folder = File.realpath(folder)
      @lines = []
      File.write("#{@folder}/app.rb", app) if app
      options.unshift("#{@folder}/app.rb") if app
      options.push('--bind', 'http://127.0.0.1:0') unless options.include?('--bind') || wrapper
      @folders = [POLYPHONY_LIB, *gems.flat_map { |name| Gem::Specification.find_by_name(name).full_require_paths }]
      start(options, env, wrapper, spawn)
      await(/^  listening/) if ready
    rescue StandardError
      close
      raise
    end

    # @return [Integer] the first port
    def port
      Integer(addresses.first[/:(\d+)\z/, 1])
    end

    # @return [Array<String>]
    def addresses
      @lines.filter_map { |line| line[/^  listening +(\S+)/, 1] }
    end

    # Reads its log until a line matches.
    # @return [String] the line
    def await(pattern, within: 20 * TestCase::PATIENCE)
      found = @lines[@seen.to_i..].index { |line| line.match?(pattern) }
      return @lines[(@seen = @seen.to_i + found + 1) - 1] if found

      line = Polyphony.backend_timeout(within, nil, nil) { read_until(pattern) }
      line or raise "no line of the log matches #{pattern.inspect}:\n#{@lines.join}"
    end

    # @return [Boolean] whether a line that has been read matches, in whatever order they came
    def said?(pattern)
      @lines.any? { |line| line.match?(pattern) }
    end

    # @return [Array(Integer, String)] status and body
    def get(path = '/', port: self.port, headers: {}, host: '127.0.0.1')
      socket = path.start_with?('unix:') ? nil : TCPSocket.new(host, port)
      ask(socket, path, headers)
    ensure
      socket&.close
    end

    # @return [Array(Integer, String)] over a connection of yours
    def ask(socket, path = '/', headers = { 'connection' => 'close' })
      head = { 'host' => 'localhost', 'connection' => 'close' }.merge(headers).map { |name, value| "#{name}: #{value}\r\n" }
      socket.write("GET #{path} HTTP/1.1\r\n#{head.join}\r\n")
      answer(socket)
    end

    # @return [Array(Integer, String)]
    def answer(socket)
      status = socket.gets("\r\n").to_s[/\AHTTP\/1\.1 (\d+)/, 1] or raise EOFError, 'no answer'
      length = nil
      while (line = socket.gets("\r\n")) && line != "\r\n"
        length = Integer(line[/\d+/]) if line.match?(/\Acontent-length:/i)
      end
      [Integer(status), length ? socket.read(length).to_s : socket.read]
    end

    # @return [Integer] the process that answers
    def who(path = '/')
      Integer(get(path).last[/\d+\z/])
    end

    # @return [Hash{Integer => String}] its workers: pid => title
    def workers
      children.to_h { |pid| [pid, title(pid)] }.select { |_, title| title.include?('worker') }
    end

    def children
      File.read("/proc/#{@pid}/task/#{@pid}/children").split.map { |pid| Integer(pid) }
    end

    def title(pid = @pid)
      File.read("/proc/#{pid}/cmdline").tr("\0", ' ').strip
    rescue SystemCallError
      ''
    end

    def signal(name, pid = @pid)
      ::Process.kill(name, pid)
    end

    # @return [::Process::Status]
    def wait(within = 20 * TestCase::PATIENCE)
      @status ||= Polyphony.backend_timeout(within, nil, nil) { ::Process.wait2(@pid).last }
      @status or raise "it has not ended:\n#{@lines.join}#{rest}"
    end

    # Asks it to stop.
    # @return [Integer, nil] exit status
    def stop(name = :TERM)
      signal(name)
      wait.exitstatus
    end

    # @return [String] everything it logged, after its end
    def log
      @lines.join << rest
    end

    # From now on nobody reads what it writes.
    def deafen
      [@log, @out].each(&:close)
    end

    # Whatever happened.
    def close
      if @pid && !@status
        ::Process.kill(:KILL, *children, @pid)
        ::Process.wait(@pid)
      end
    rescue SystemCallError
      nil
    ensure
      [@log, @out].compact.each { |io| io.close unless io.closed? }
      FileUtils.rm_rf(@folder)
    end

    # @return [IO] its standard output
    attr_reader :out

    # Until the block is true. For what nobody tells: files, titles, tables of the kernel.
    def eventually(what = 'it', within: 15 * TestCase::PATIENCE)
      deadline = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) + within
      until (result = yield)
        raise "#{what} did not come about:\n#{@lines.join}" if ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) > deadline

        sleep 0.02
      end
      result
    end

    private

    def start(options, env, wrapper, spawn)
      @log, writer = IO.pipe
      @out, stdout = IO.pipe
      clean = { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'BUNDLER_SETUP' => nil, 'PORT' => nil, 'RACK_ENV' => nil,
                'WEB_CONCURRENCY' => nil, 'PWD' => @folder }
      command = [RbConfig.ruby, '-W', *@folders.map { |folder| "-I#{folder}" }, EXE, 'serve', *options]
      command = [RbConfig.ruby, *wrapper, '--', *command] if wrapper
      @pid = ::Process.spawn(clean.merge(env), *command,
                             in: File::NULL, out: stdout, err: writer, chdir: @folder, pgroup: true, **spawn)
    ensure
      writer&.close
      stdout&.close
    end

    def read_until(pattern)
      while (line = @log.gets)
        @lines << line
        @seen = @lines.size
        return line if line.match?(pattern)
      end
      nil
    end

    def rest
      @log.closed? ? +'' : @log.read.to_s
    end
  end

  # For tests of a master with two workers, who are there when #serve returns.
  module TwoWorkers
    def teardown
      @served&.close
      super
    end

    def serve(*options, **rest)
      @served = Served.new('--workers', '2', *options, **rest)
      @served.eventually('two workers') { @served.workers.values.grep(/worker \d \[\d+ conn/).size == 2 }
      @served
    end
  end
end
