# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'
require_relative '../../support/peers'

module Bench
  module HTTP
    # The servers: how each is started as one process that runs app.ru on a port. What a server cannot
    # do is missing from its +ways+: :http, :https, :h2c, :h2, :websocket.
    class Side
      attr_reader :name, :kind, :ways

      # @param kind [Symbol] :limit, :peer or :ours
      def initialize(name, kind, ways, &command)
        @name = name
        @kind = kind
        @ways = ways
        @command = command
      end

      # @return [Array(Hash, Array<String>)] environment and command
      def start(way, port, folder)
        secure = %i[https h2].include?(way)
        environment, *command = @command.call(secure ? 'https' : 'http', port, folder, secure, way)
        [CLEAN.merge(environment), command]
      end

      def websocket?
        @ways.include?(:websocket)
      end

      # @return [String, nil] why it cannot be measured here
      def missing
        case @kind
        when :peer then Peers.missing(@name)
        when :limit then 'nginx is not installed' unless Side.nginx
        end
      end

      CLEAN = { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'BUNDLE_GEMFILE' => nil, 'RACK_ENV' => 'production' }.freeze
      APP = File.expand_path('app.ru', __dir__)
      ROOT = File.expand_path('../../..', __dir__)

      class << self
        def nginx
          %w[/usr/sbin/nginx /usr/local/sbin/nginx /usr/bin/nginx].find { |path| File.executable?(path) }
        end

        # @return [Array<Side>] all of them, the limit first
        def all(drivers)
          [nginx_side, *drivers.map { |driver| ours(driver) }, *PEERS.map { |name, (ways, words)| peer(name, ways, words) }]
        end

        private

        def ours(driver)
          new(driver, :ours, %i[http https h2c h2 websocket]) do |scheme, port, folder, secure|
            tls = secure ? ['--tls', "#{folder}/cert.pem,#{folder}/key.pem"] : []
            # h2load does not come back when it was asked to go after 1,000 requests; nginx is told the same below
            [{ 'POLYPHONY_BACKEND' => driver, 'RUBYLIB' => "#{ROOT}/lib", **Peers.environment('rack') },
             RbConfig.ruby, "#{ROOT}/exe/polyphony", 'serve', APP, '--bind', "#{scheme}://127.0.0.1:#{port}", '--limit', 'requests=none', *tls]
          end
        end

        def peer(name, ways, words)
          new(name, :peer, ways) do |scheme, port, folder, secure|
            program = File.join(Peers.environment(name)['GEM_HOME'], 'bin', name)
            [Peers.environment(name), RbConfig.ruby, program, *words.call(scheme, port, folder, secure)]
          end
        end

        def nginx_side
          new('nginx', :limit, %i[http https h2c h2]) do |_scheme, port, folder, secure, way|
            File.write("#{folder}/nginx.conf", nginx_configuration(port, folder, secure, %i[h2c h2].include?(way)))
            [{}, nginx, '-p', folder, '-c', "#{folder}/nginx.conf", '-e', "#{folder}/nginx.log"]
          end
        end

        # Answers are static: what a server could do if the application cost nothing.
        def nginx_configuration(port, folder, secure, http2)
          File.write("#{folder}/big", '0123456789abcdef' * 65_536)
          tls = secure ? " ssl; ssl_certificate #{folder}/cert.pem; ssl_certificate_key #{folder}/key.pem" : ''
          <<~CONF
            daemon off; worker_processes 1; pid #{folder}/nginx.pid;
            events { worker_connections 4096; }
            http {
              access_log off; keepalive_requests 100000000; client_max_body_size 64m; client_body_buffer_size 4m;
              client_body_temp_path #{folder}; proxy_temp_path #{folder}; fastcgi_temp_path #{folder}; uwsgi_temp_path #{folder}; scgi_temp_path #{folder};
              server {
                listen 127.0.0.1:#{port}#{' http2' if http2}#{tls};
                location = / { default_type text/plain; return 200 'Hello, world!'; }
                location = /upload { default_type text/plain; return 200 'ok'; }
                location = /big { root #{folder}; }
              }
            }
          CONF
        end
      end

      # Name => what it can do, and its words.
      PEERS = {
        'puma' => [%i[http https], lambda { |_scheme, port, folder, secure|
          bind = secure ? "ssl://127.0.0.1:#{port}?key=#{folder}/key.pem&cert=#{folder}/cert.pem" : "tcp://127.0.0.1:#{port}"
          ['--log-requests', '-w', '0', '-t', '5:5', '-b', bind, '-e', 'production', APP].drop(1)
        }],
        'falcon' => [%i[http h2c https h2], lambda { |scheme, port, _folder, _secure|
          ['serve', '--count', '1', '--bind', "#{scheme}://localhost:#{port}", '--config', APP]
        }],
        'iodine' => [%i[http https websocket], lambda { |_scheme, port, folder, secure|
          tls = secure ? ['-tls-cert', "#{folder}/cert.pem", '-tls-key', "#{folder}/key.pem"] : []
          ['-w', '1', '-t', '1', '-b', '127.0.0.1', '-p', port.to_s, *tls, APP]
        }],
        'itsi' => [%i[http h2c https h2], lambda { |scheme, port, folder, secure|
          tls = secure ? "?cert=#{folder}/cert.pem&key=#{folder}/key.pem" : ''
          ['-w', '1', '-t', '1', '-b', "#{scheme}://127.0.0.1:#{port}#{tls}", '-r', APP]
        }],
        'agoo' => [%i[http], ->(_scheme, port, _folder, _secure) { ['-p', port.to_s, APP] }]
      }.freeze
    end
  end
end
