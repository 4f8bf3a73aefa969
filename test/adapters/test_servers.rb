# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/mariadb_server'
require_relative '../support/postgres_cluster'
require_relative '../support/redis_server'

# The servers that the other tests stand on: they start, can be killed, start again, and leave nothing.
class TestServers < Polyphony::AdapterCase
  [Polyphony::PostgresCluster, Polyphony::MariadbServer, Polyphony::RedisServer].each do |kind|
    define_method("test_#{kind.name[/\w+\z/]}_survives_a_crash") do
      server = kind.start
      first = server.pid
      server.kill
      server.start
      refute_equal first, server.pid
      server.frozen { assert_match(/T \(stopped\)/, File.read("/proc/#{server.pid}/status")) }
      server.remove
      refute_path_exists server.folder
    ensure
      server&.remove
    end
  end
end
