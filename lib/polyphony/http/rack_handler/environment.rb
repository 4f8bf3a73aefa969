# frozen_string_literal: true

require 'stringio'

module Polyphony
  module HTTP
    class RackHandler
      # Makes the +env+ of each request. What is the same for all requests of a connection is made once; the
      # names and values of a request are filled in in C (Head#make_env, HTTP.__http2_env).
      class Environment
        EMPTY_INPUT = EmptyInput.new.freeze
        DEFAULT_PORTS = { 'http' => '80', 'https' => '443' }.freeze
        # Places for what every request has: a Hash that has to grow while it is filled costs more. What most requests
        # say is said already.
        PLACES = {
          'REQUEST_METHOD' => 'GET', 'PATH_INFO' => nil, 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_URI' => nil,
          'REMOTE_ADDR' => nil, 'rack.input' => nil, 'rack.response_finished' => nil, 'polyphony.request' => nil
        }.freeze
        private_constant :EMPTY_INPUT, :DEFAULT_PORTS, :PLACES

        # What the env of every request begins with, for the host and the address that were last seen. Read by
        # Head#make_env and HTTP.__http2_env, and changed by them.
        Template = Struct.new(:env, :default_port, :host, :address)
        # What is the same for all requests of a connection, which can be served by several applications. The first four are
        # read by Head#make_env, HTTP.__env and HTTP.__http2_env; +owner+ is the Environment, or nil if HTTP.__env is not to
        # make what it takes for all.
        Base = Struct.new(:template, :address, :port, :owner, :maker, :http2, :hijack)

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
          @templates = templates('HTTP/1.1')
          @http2_templates = templates('HTTP/2')
        end

        # @param request [Request]
        # @return [Hash]
        def for(request)
          connection = request.connection
          base = connection.app_data
          head = request.__head
          http2 = head.nil?
          # A connection may begin with HTTP/1 and go on with HTTP/2.
          fits = base.is_a?(Base) && base.maker.equal?(self) && base.http2 == http2
          base = connection.app_data = base_for(connection, http2) unless fits
          env = head ? head.make_env(base, request) : request.__make_env(base)
          without_host(env, connection) unless env.key?('HTTP_HOST')
          env['rack.input'] = @input_class.new(request) if request.__body
          base.http2 ? http2_hooks(env, request) : http1_hooks(env, request)
          env
        end

        private

        def rack2_env(multiprocess)
          { 'rack.version' => ::Rack::VERSION, 'rack.multithread' => true, 'rack.multiprocess' => multiprocess,
            'rack.run_once' => false }
        end

        # The scheme is that of the connection: in HTTP/2 a client can name any.
        def base_for(connection, http2)
          templates = http2 ? @http2_templates : @templates
          base = Base.new(templates.fetch(connection.transport.scheme), connection.peer || '127.0.0.1',
                          connection.peer_port&.to_s.freeze, @early_hints == true ? nil : self, self, http2)
          base.hijack = Hijack.new unless http2
          base
        end

        def templates(protocol)
          DEFAULT_PORTS.to_h { |scheme, port| [scheme, template(scheme, port, protocol)] }
        end

        def template(scheme, default_port, protocol)
          env = PLACES.merge(@common).merge!('rack.url_scheme' => scheme, 'SERVER_NAME' => 'localhost', 'SERVER_PORT' => default_port,
                                             'SERVER_PROTOCOL' => protocol, 'rack.input' => EMPTY_INPUT)
          env['HTTPS'] = 'on' if scheme == 'https'
          Template.new(env, default_port)
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
          env['rack.protocol'] = HTTP.__list(upgrade) if request.version == '1.1'
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
