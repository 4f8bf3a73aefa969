# frozen_string_literal: true

module Polyphony
  module OpenTelemetry
    # OpenTelemetry keeps its current context for each fiber by itself: what is captured is that, and to carry it is to make it the
    # current one for a block. Names of attributes are those of its semantic conventions for HTTP.
    # @api private
    class Hooks < Telemetry::Hooks
      # How many bytes of what comes from outside go into an attribute.
      FIELD = 1000
      # Others are written as _OTHER: anybody can make up names, and tables of names grow.
      VERBS = %w[GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY].freeze
      ROOT = ::OpenTelemetry::Context::ROOT
      private_constant :FIELD, :VERBS, :ROOT

      # @return [String] valid UTF-8, as exporters want it
      def self.text(value)
        text = value.to_s
        text = text.byteslice(0, FIELD) if text.bytesize > FIELD
        text.encoding == Encoding::UTF_8 && text.valid_encoding? ? text : text.dup.force_encoding(Encoding::UTF_8).scrub('?')
      end

      def initialize(server:, client:, fibers:)
        super()
        @server = server
        @client = client
        @fibers = fibers
      end

      def capture
        context = ::OpenTelemetry::Context.current
        context unless context.equal?(ROOT)
      end

      def carry(context, &block)
        ::OpenTelemetry::Context.with_current(context) { |*| block.call }
      end

      def apart(&block)
        carry(ROOT, &block)
      end

      def fiber(fiber, context, &block)
        return carry(context, &block) unless @fibers && fiber.tag

        carry(context) { OpenTelemetry.in_span("fiber #{text(fiber.tag)}", attributes: { 'code.line' => text(fiber.location) }) { |_span| block.call } }
      end

      def inject(headers)
        ::OpenTelemetry.propagation.inject(headers)
        headers
      end

      def extract(headers)
        context = ::OpenTelemetry.propagation.extract(headers, context: ROOT)
        context unless context.equal?(ROOT)
      end

      def ids
        context = ::OpenTelemetry::Trace.current_span.context
        context.valid? ? { trace_id: context.hex_trace_id, span_id: context.hex_span_id } : {}
      end

      # Nothing of where the server was started: the context is that of the client, or none.
      def request(request, &block)
        context = ::OpenTelemetry.propagation.extract(request.headers, context: ROOT)
        return carry(context, &block) unless @server

        carry(context) { OpenTelemetry.in_span(verb(request.verb), kind: :server, attributes: of_request(request)) { |span| serve(span, request, &block) } }
      end

      def call(call)
        return yield unless @client

        OpenTelemetry.in_span(verb(call.verb), kind: :client, attributes: of_call(call)) do |span|
          inject(call.headers)
          yield.tap { note_status(span, call.status, bad: 400) }
        end
      end

      private

      def text(value)
        self.class.text(value)
      end

      def verb(name)
        VERBS.include?(name) ? name : 'HTTP'
      end

      def serve(span, request)
        error = yield
        # A client that hangs up is no error of ours, nor is one that breaks the rules.
        failed = error && !request_error?(error)
        OpenTelemetry.__failed(span, error) if failed
        error
      ensure
        note_status(span, request.status, bad: failed ? nil : 500)
      end

      def request_error?(error)
        error.is_a?(HTTP::ClientGone) || error.is_a?(HTTP::BadRequest)
      end

      # @param bad [Integer, nil] from which on it is an error; nil: it is known what went wrong
      def note_status(span, status, bad:)
        return unless status

        span.set_attribute('http.response.status_code', status)
        return if bad.nil? || status < bad

        span.set_attribute('error.type', status.to_s)
        span.status = ::OpenTelemetry::Trace::Status.error
      end

      # Without the query, in which there may be secrets.
      def of_request(request)
        { 'http.request.method' => known(request.verb), 'url.path' => text(request.path), 'url.scheme' => request.scheme,
          'network.protocol.version' => request.version }.tap do |found|
          found['http.request.method_original'] = text(request.verb) unless VERBS.include?(request.verb)
          found['client.address'] = request.peer if request.peer
          found['user_agent.original'] = text(request['user-agent']) if request['user-agent']
          add_authority(found, request.authority)
        end
      end

      def add_authority(found, authority)
        host, port = authority&.match(/\A(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?\z/)&.captures
        found['server.address'] = text(host) if host && !host.empty?
        found['server.port'] = port.to_i if port
      end

      def of_call(call)
        { 'http.request.method' => known(call.verb), 'server.address' => text(call.host), 'server.port' => call.port,
          'url.full' => text("#{call.scheme}://#{call.host}:#{call.port}#{call.path}") }
      end

      def known(verb)
        VERBS.include?(verb) ? verb : '_OTHER'
      end
    end
  end
end
