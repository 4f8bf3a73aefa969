# frozen_string_literal: true

require_relative 'private_server'

module Polyphony
  # A Redis of our own, reached by a socket in its folder and by a port of 127.0.0.1.
  class RedisServer < PrivateServer
    def self.absent
      found = ENV['PATH'].split(File::PATH_SEPARATOR).any? { |folder| File.executable?(File.join(folder, 'redis-server')) }
      'redis-server is not installed' unless found
    end

    # @return [Integer]
    attr_reader :port

    # @return [String] the path of its socket
    def socket
      File.join(folder, 'socket')
    end

    private

    def prepare
      @port = free_port
    end

    def command
      ['redis-server', '--port', port.to_s, '--bind', '127.0.0.1', '--unixsocket', socket, '--dir', folder, '--save', '',
       '--appendonly', 'no', '--maxclients', '2000', '--daemonize', 'no']
    end

    def ready?
      answers?(socket)
    end
  end
end
