# frozen_string_literal: true

require 'etc'
require 'fileutils'
require 'open3'
require 'tmpdir'

module Polyphony
  # A PostgreSQL of our own for the length of a test: in a folder that is thrown away, reached by a socket in it.
  class PostgresCluster
    PROGRAMS = Dir['/usr/lib/postgresql/*/bin', '/usr/pgsql-*/bin', '/opt/homebrew/opt/postgresql*/bin'].max

    # @return [PostgresCluster, nil] nil where it cannot be had
    def self.start
      require 'pg'
      PROGRAMS && new.tap(&:start)
    rescue LoadError
      nil
    end

    def initialize
      @folder = Dir.mktmpdir('polyphony-pg')
      @data = File.join(@folder, 'data')
    end

    def url
      "postgresql:///postgres?host=#{@folder}&user=postgres"
    end

    def start
      FileUtils.chown(owner, nil, @folder)
      run('initdb', '-D', @data, '-U', 'postgres', '-A', 'trust', '--no-sync', '--encoding=UTF8')
      run('pg_ctl', '-D', @data, '-w', '-l', File.join(@folder, 'log'), '-o', "-k #{@folder} -c listen_addresses='' -F", 'start')
    end

    def remove
      run('pg_ctl', '-D', @data, '-m', 'immediate', '-w', 'stop') if File.exist?(File.join(@data, 'postmaster.pid'))
    ensure
      FileUtils.rm_rf(@folder)
    end

    private

    # PostgreSQL does not run as root.
    def owner
      ::Process.uid.zero? ? 'postgres' : Etc.getlogin
    end

    def run(program, *arguments)
      command = [File.join(PROGRAMS, program), *arguments]
      command = ['setpriv', "--reuid=#{owner}", '--clear-groups', '--', *command] if ::Process.uid.zero?
      # Into a file: the server keeps what it inherits, and a pipe would not end.
      output = File.join(@folder, 'output')
      pid = ::Process.spawn(*command, in: File::NULL, out: output, err: %i[child out], chdir: @folder)
      _, status = ::Process.wait2(pid)
      raise "#{program} failed: #{File.read(output)}" unless status.success?
    end
  end
end
