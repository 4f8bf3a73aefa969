# frozen_string_literal: true

require 'etc'
require 'fileutils'
require 'socket'
require 'tmpdir'

module Polyphony
  # A database server of our own, in a folder that is thrown away. One for each class, started when it is first asked for
  # and shared by all tests of the process; it ends with the process. Nothing here may depend on what is being tested, so
  # all waiting is stock Ruby's, in the process that starts, before a test begins.
  #
  # A subclass has +account+ (the user it refuses to be root for), +prepare+ (fills the folder), +command+ (what to run)
  # and +ready?+.
  class PrivateServer
    PATIENCE = 60
    LOOK = 0.02

    class << self
      # @return [PrivateServer] the one that all tests share
      # @raise [Minitest::Skip] where the programs are not installed, with what is missing
      def shared
        @shared ||= begin_at_exit_of_process
      end

      # @return [PrivateServer] another, which the caller removes
      def start
        missing = absent
        raise Minitest::Skip, missing if missing

        new.tap(&:start)
      end

      private

      def begin_at_exit_of_process
        owner = ::Process.pid
        start.tap { |server| Minitest.after_run { server.remove if ::Process.pid == owner } }
      end
    end

    # @return [String] its folder: sockets and log are there
    attr_reader :folder

    # @return [Integer, nil] the process
    attr_reader :pid

    def initialize
      @folder = Dir.mktmpdir('polyphony-db')
      FileUtils.chown(account, nil, @folder) if account
    end

    def start
      prepare unless @prepared
      @prepared = true
      @pid = spawn_logged(*command)
      wait_until_ready
      self
    end

    # As a crash would: nothing is said to the clients, nothing is written. All of it is gone on return: PostgreSQL does not start while
    # one of its processes has the memory they share.
    def kill
      ::Process.kill(:STOP, @pid) # it begins no other
      others = descendants(@pid)
      signal(:KILL)
      ::Process.wait(@pid)
      @pid = nil
      sleep LOOK while others.any? { |pid| running?(pid) }
    end

    # Lets it stand still, with its connections open: a network that swallows everything.
    # @yield while it stands
    def frozen
      signal(:STOP)
      sleep LOOK until state(@pid) == 'T' # all of its threads
      yield
    ensure
      signal(:CONT)
    end

    def remove
      kill if @pid
    ensure
      FileUtils.rm_rf(@folder)
    end

    def log
      File.read(File.join(@folder, 'log'))
    end

    private

    def account; end

    # Its children get it too; they may be in groups of their own.
    def signal(name)
      [@pid, *descendants(@pid)].each do |pid|
        ::Process.kill(name, pid)
      rescue Errno::ESRCH
        nil
      end
    end

    def state(pid)
      File.read("/proc/#{pid}/stat").rpartition(')').last.split.first
    end

    def running?(pid)
      !%w[Z X].include?(state(pid))
    rescue SystemCallError
      false
    end

    def descendants(pid)
      parents = Dir['/proc/[0-9]*/stat'].filter_map do |path|
        # The name, in brackets, may contain anything.
        [Integer(path[/\d+/]), Integer(File.read(path).rpartition(')').last.split[1])]
      rescue SystemCallError
        nil # it has just ended
      end
      children_of(pid, parents.group_by(&:last))
    end

    def children_of(pid, by_parent)
      by_parent.fetch(pid, []).flat_map { |child, _| [child, *children_of(child, by_parent)] }
    end

    # @return [Array<String>] the command as the account that the server wants
    def as_account(command)
      account ? ['setpriv', "--reuid=#{account}", '--clear-groups', '--', *command] : command
    end

    # Not with AddressSanitizer, where the tests run with it: it is not theirs to carry.
    def spawn_logged(*command)
      ::Process.spawn({ 'TMPDIR' => @folder, 'LD_PRELOAD' => nil }, *as_account(command), in: File::NULL, out: [File.join(@folder, 'log'), 'a'], err: %i[child out],
                                                                  chdir: @folder, pgroup: true, umask: 0o022)
    end

    def run(*command)
      pid = spawn_logged(*command)
      _, status = ::Process.wait2(pid)
      raise "#{command.first} failed:\n#{log}" unless status.success?
    end

    def wait_until_ready
      deadline = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) + PATIENCE
      until ready?
        raise "#{command.first} has ended:\n#{log}" if ::Process.wait(@pid, ::Process::WNOHANG)
        raise "#{command.first} is not ready after #{PATIENCE} s:\n#{log}" if ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) > deadline

        sleep LOOK
      end
    end

    # @return [Integer] a port that nobody has, nor gets from the kernel for a connection before the server has it, or while that is restarted
    def free_port
      port = rand(10_000...32_768)
      TCPServer.new('127.0.0.1', port).close
      port
    rescue Errno::EADDRINUSE
      retry
    end

    # @return [Boolean] whether somebody answers there
    def answers?(path)
      UNIXSocket.new(path).close
      true
    rescue SystemCallError
      false
    end
  end
end
