# frozen_string_literal: true

require_relative 'certificates'
require_relative 'private_server'

module Polyphony
  # A MariaDB of our own. Reached by a socket in its folder and by a port of 127.0.0.1; the user is +tester+. It speaks TLS with who
  # wants to.
  class MariadbServer < PrivateServer
    PROGRAM = %w[/usr/sbin/mariadbd /usr/libexec/mariadbd /usr/local/bin/mariadbd /opt/homebrew/bin/mariadbd].find { |path| File.executable?(path) }

    def self.absent
      'MariaDB (mariadbd) is not installed' unless PROGRAM
    end

    # @return [Integer]
    attr_reader :port

    # @return [String] the path of its socket
    def socket
      File.join(folder, 'socket')
    end

    # @return [Hash] for Mysql2::Client.new and Trilogy.new
    def settings
      { socket: socket, username: 'tester', password: 'secret', database: 'test' }
    end

    # @return [Hash] the same, by TCP
    def tcp_settings
      { host: '127.0.0.1', port: port, username: 'tester', password: 'secret', database: 'test' }
    end

    private

    def account
      'mysql' if ::Process.uid.zero?
    end

    def prepare
      @port = free_port
      certificate, key = Certificates.certificate('127.0.0.1')
      File.write(File.join(folder, 'certificate'), certificate.to_pem)
      File.write(File.join(folder, 'key'), key.to_pem)
      run('mariadb-install-db', '--no-defaults', "--datadir=#{data}", "--tmpdir=#{folder}", '--auth-root-authentication-method=normal', '--skip-test-db')
      File.write(first_words, <<~SQL)
        CREATE DATABASE IF NOT EXISTS test;
        CREATE USER IF NOT EXISTS 'tester'@'localhost' IDENTIFIED BY 'secret';
        CREATE USER IF NOT EXISTS 'tester'@'127.0.0.1' IDENTIFIED BY 'secret';
        GRANT ALL ON *.* TO 'tester'@'localhost';
        GRANT ALL ON *.* TO 'tester'@'127.0.0.1';
      SQL
    end

    def command
      [PROGRAM, '--no-defaults', "--datadir=#{data}", "--tmpdir=#{folder}", "--socket=#{socket}", "--port=#{port}", '--bind-address=127.0.0.1',
       "--pid-file=#{File.join(folder, 'pid')}", "--init-file=#{first_words}",
       "--ssl-cert=#{File.join(folder, 'certificate')}", "--ssl-key=#{File.join(folder, 'key')}", '--skip-name-resolve', '--max-connections=600',
       '--innodb-flush-log-at-trx-commit=0', '--innodb-buffer-pool-size=16M', '--performance-schema=OFF']
    end

    def ready?
      answers?(socket)
    end

    def data
      File.join(folder, 'data')
    end

    def first_words
      File.join(folder, 'first.sql')
    end
  end
end
