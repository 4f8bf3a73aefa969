# frozen_string_literal: true

require_relative 'load'

module Bench
  module HTTP
    # One kind of traffic. +targets+: side, :best (the fastest of the Ruby
    # servers) or 'alone', the application called in a loop => at least so many times its rate.
    # +limit+ is false where nginx, without the application, has nothing to answer; +alone+ is the path at which the application is
    # called without a server there.
    Row = Struct.new(:name, :title, :way, :targets, :load, :limit, :alone, keyword_init: true) do
      def for?(side)
        side.ways.include?(way) && (limit != false || side.kind != :limit)
      end
    end

    # What is measured.
    ROWS = [
      Row.new(name: 'hello', title: 'hello world, 64 connections kept alive', way: :http,
              targets: { 'puma' => 4, 'iodine' => 1.1 },
              load: ->(server, seconds) { Load.wrk(server, '/', connections: 64, seconds: seconds) }),
      Row.new(name: 'hello_512', title: 'hello world, 512 connections kept alive', way: :http,
              targets: { 'puma' => 4, 'iodine' => 1 },
              load: ->(server, seconds) { Load.wrk(server, '/', connections: 512, seconds: seconds) }),
      Row.new(name: 'close', title: 'hello world, a connection for each request', way: :http, targets: { 'puma' => 1.5 },
              load: ->(server, seconds) { Load.closing(server, '/', connections: 64, seconds: seconds) }),
      Row.new(name: 'big', title: '1 MiB answer', way: :http, targets: { best: 1.2 },
              load: ->(server, seconds) { Load.wrk(server, '/big', connections: 16, seconds: seconds) }),
      Row.new(name: 'upload', title: '1 MiB upload', way: :http, targets: { best: 1.2 },
              load: ->(server, seconds) { Load.wrk(server, '/upload', connections: 16, seconds: seconds, script: Load::UPLOAD) }),
      Row.new(name: 'json', title: 'JSON with a query of SQLite', way: :http, targets: { 'puma' => 1.2, 'alone' => 0.75 },
              limit: false, alone: '/json',
              load: ->(server, seconds) { Load.wrk(server, '/json', connections: 64, seconds: seconds) }),
      Row.new(name: 'tls', title: 'hello world over TLS, 64 connections kept alive', way: :https,
              targets: { 'puma' => 4, 'iodine' => 0.95 },
              load: ->(server, seconds) { Load.wrk(server, '/', connections: 64, seconds: seconds, secure: true) }),
      Row.new(name: 'h2c', title: 'HTTP/2, 32 connections with 10 streams', way: :h2c, targets: { 'itsi' => 1.2, 'falcon' => 10 },
              load: ->(server, seconds) { Load.h2load(server, '/', clients: 32, streams: 10, seconds: seconds) }),
      Row.new(name: 'h2', title: 'HTTP/2 over TLS, 32 connections with 10 streams', way: :h2, targets: { 'itsi' => 1.2, 'falcon' => 10 },
              load: ->(server, seconds) { Load.h2load(server, '/', clients: 32, streams: 10, seconds: seconds, secure: true) }),
      Row.new(name: 'websocket', title: 'WebSocket echo, 64 connections', way: :websocket, targets: {},
              load: ->(server, seconds) { Load.websocket(server, '/echo', connections: 64, seconds: seconds) })
    ].freeze
  end
end
