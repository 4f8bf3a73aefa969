# frozen_string_literal: true

require 'stringio'

module Polyphony
  module HTTP
    class RackHandler
      # Makes the +env+ of each request. What is the same for all requests of a connection is made once; the
      # names and values of a request are filled in by its protocol (Request#__fill_env).
      class Environment
        EMPTY_INPUT = EmptyInput.new.freeze
        DEFAULT_PORTS = { 'http' => '80', 'https' => '443' }.freeze
        # Places for what every request has: a Hash that has to grow while it is filled costs more. What most requests of
        # HTTP/1 say is said already.
        PLACES = {
          'REQUEST_METHOD' => 'GET', 'PATH_INFO' => nil, 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_URI' => nil,
          'rack.input' => nil, 'rack.response_finished' => nil, 'rack.hijack' => nil, 'polyphony.request' => nil
        }.freeze
        UPGRADE_LIST = /\s*,\s*/.freeze
        private_constant :EMPTY_INPUT, :DEFAULT_PORTS, :PLACES, :UPGRADE_LIST

        # What is the same for all requests of a connection. Read by Head#env, too.
        # @!attribute owner
        #   @return [Environment] a connection can be served by several applications
        # @!attribute env
        #   @return [Hash] the template
        # @!attribute http2
        #   @return [Boolean]
        # @!attribute port
        #   @return [String] where the scheme is spoken by default
        # @!attribute host
        #   @return [String, nil] the one that SERVER_NAME and SERVER_PORT of the template are for
        # @!attribute hijack
        #   @return [Hijack, nil] gives the connection away
        # @!attribute now
        #   @return [Hash, nil] the env of the request in progress
        Base = Struct.new(:owner, :env, :http2, :port, :host, :hijack, :now)

        # @param rack2 [Boolean]
        # @param rewindable [Boolean]
        # @param errors [IO]
        # @param multiprocess [Boolean]
        # @param early_hints [:http2, Boolean]
        # @param extra [Hash]
        def initialize(rack2:, rewindable:, errors:, multiprocess:, early_hints:, extra:)
          @rack2 = rack2
          @early_hints = early_hints
          @input_class = rewindable ? RewindableInput : Input
          @common = {
            'SCRIPT_NAME' => '', 'QUERY_STRING' => '', 'GATEWAY_INTERFACE' => 'CGI/1.2',
            'SERVER_SOFTWARE' => "polyphony #{VERSION}", 'rack.errors' => errors, 'rack.hijack?' => true
          }
          @common.merge!(rack2_env(multiprocess)) if rack2
          @common.merge!(extra)
        end

        # @param connection [Connection]
        # @param http2 [Boolean]
        # @return [Base]
        def base(connection, http2)
          scheme = connection.transport.scheme
          base = Base.new(self, template(connection, scheme), http2, DEFAULT_PORTS[scheme])
          if http2 then base.env.delete('rack.hijack')
          else base.env['rack.hijack'] = base.hijack = Hijack.new(connection, base)
          end
          base
        end

        # The env of a request that HTTP/1 has not made already.
        # @param request [Request]
        # @param base [Base]
        # @return [Hash]
        def for(request, base)
          env = request.__fill_env(base.env.dup)
          env.delete('HTTP_PROXY') # a header of the client's; programs take it for a setting (CVE-2016-5385)
          env['rack.response_finished'] = []
          env['polyphony.request'] = request
          env
        end

        # What most requests do not need.
        # @param env [Hash]
        # @param request [Request]
        # @param base [Base]
        # @return [void]
        def complete(env, request, base)
          without_host(env, request.connection) unless env.key?('HTTP_HOST')
          env['rack.input'] = @input_class.new(request) if request.__body
          base.http2 ? http2_hooks(env, request) : http1_hooks(env, request)
        end

        # @return [Boolean] whether each env has to be completed
        def hints?
          @early_hints == true
        end

        private

        def rack2_env(multiprocess)
          { 'rack.version' => ::Rack::VERSION, 'rack.multithread' => true, 'rack.multiprocess' => multiprocess,
            'rack.run_once' => false }
        end

        # The scheme is that of the connection: in HTTP/2 a client can name any.
        def template(connection, scheme)
          env = PLACES.merge(@common).merge!('rack.url_scheme' => scheme, 'REMOTE_ADDR' => connection.peer || '127.0.0.1')
          env['REMOTE_PORT'] = connection.peer_port.to_s if connection.peer_port
          env['HTTPS'] = 'on' if scheme == 'https'
          env['SERVER_NAME'] = 'localhost'
          env['SERVER_PORT'] = DEFAULT_PORTS[scheme]
          env['rack.input'] = EMPTY_INPUT
          env
        end

        # A client of HTTP/1.0 need not say whom it wants to speak to: then it is our own address.
        def without_host(env, connection)
          match = connection.listener.address.match(%r{\Ahttps?://(\[[^\]]+\]|[^:]+):(\d+)\z}) or return
          env['SERVER_NAME'] = match[1]
          env['SERVER_PORT'] = match[2]
        end

        def http1_hooks(env, request)
          env['rack.early_hints'] = EarlyHints.new(request) if @early_hints == true
          upgrade = env['HTTP_UPGRADE'] or return
          env['rack.protocol'] = upgrade.split(UPGRADE_LIST) if request.version == '1.1'
        end

        # Nobody can have a connection for himself; Rack 2 knows no half of a hijack.
        def http2_hooks(env, request)
          env['rack.hijack?'] = false if @rack2
          env['rack.early_hints'] = EarlyHints.new(request) if @early_hints
          protocol = request.protocol
          env['rack.protocol'] = [protocol] if protocol
        end
      end
    end
  end
end
