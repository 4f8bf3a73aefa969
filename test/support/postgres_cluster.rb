# frozen_string_literal: true

require_relative 'private_server'

module Polyphony
  # A PostgreSQL of our own. Reached by a socket in its folder, and by a port of 127.0.0.1, there also with TLS.
  class PostgresCluster < PrivateServer
    PROGRAMS = Dir['/usr/lib/postgresql/*/bin', '/usr/pgsql-*/bin', '/opt/homebrew/opt/postgresql*/bin'].max

    def self.absent
      require 'pg'
      'PostgreSQL with initdb is not installed' unless PROGRAMS
    rescue LoadError
      'the gem pg is not installed'
    end

    # @return [Integer]
    attr_reader :port

    # @return [String] by the socket
    def url
      "postgresql:///postgres?host=#{folder}&port=#{port}&user=postgres"
    end

    # @return [Hash] for PG.connect
    def settings
      { host: folder, port: port, user: 'postgres', dbname: 'postgres' }
    end

    # @return [Hash] the same, by TCP
    def tcp_settings
      { **settings, host: '127.0.0.1' }
    end

    private

    # PostgreSQL does not run as root.
    def account
      'postgres' if ::Process.uid.zero?
    end

    def prepare
      @port = free_port
      run(File.join(PROGRAMS, 'initdb'), '-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '--encoding=UTF8')
      make_certificate
    end

    def command
      options = { listen_addresses: '127.0.0.1', unix_socket_directories: folder, port: port, fsync: 'off', ssl: 'on',
                  max_connections: 600, shared_buffers: '16MB' }
      [File.join(PROGRAMS, 'postgres'), '-D', data, *options.flat_map { |name, value| ['-c', "#{name}=#{value}"] }]
    end

    def ready?
      system(File.join(PROGRAMS, 'pg_isready'), '-q', '-h', folder, '-p', port.to_s, out: File::NULL, err: File::NULL)
    end

    def data
      File.join(folder, 'data')
    end

    def make_certificate
      run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost',
          '-keyout', File.join(data, 'server.key'), '-out', File.join(data, 'server.crt'))
      File.chmod(0o600, File.join(data, 'server.key'))
    end
  end
end
