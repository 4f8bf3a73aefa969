# frozen_string_literal: true

require 'polyphony'

module Polyphony
  module Adapters
    # Gems that have an adapter. A constant which is there when the gem is loaded, and what loads it. Beside this file,
    # in when_required, there is a folder for each (see extensions/when_required.rb).
    # @api private
    LIBRARIES = {
      'active_record' => ['ActiveRecord', 'active_record'],
      'connection_pool' => %w[ConnectionPool connection_pool],
      'excon' => ['Excon::Connection', 'excon'],
      'extralite' => %w[Extralite::Database extralite],
      'http' => ['HTTP::Connection', 'http'],
      'httpx' => ['HTTPX::Session', 'httpx'],
      'mysql2' => ['Mysql2::Client', 'mysql2'],
      'pg' => ['PG::Connection', 'pg'],
      'redis' => %w[Redis redis],
      'redis_client' => %w[RedisClient redis-client],
      'sequel' => ['Sequel::Database', 'sequel'],
      'sqlite3' => %w[SQLite3::Database sqlite3],
      'trilogy' => ['Trilogy', 'trilogy']
    }.freeze
    private_constant :LIBRARIES

    # Each gets its adapter now if the gem is loaded, else when the program requires it.
    # @api private
    def self.__prepare(names = LIBRARIES.keys)
      LIBRARIES.slice(*names).each do |name, (constant, feature)|
        Polyphony.__prepare_library(name, constant: constant, feature: feature, extension: "polyphony/adapters/#{name}",
                                          folders: File.join(__dir__, 'when_required'))
      end
    end
  end
end
