# frozen_string_literal: true

module Polyphony
  module HTTP
    # Paths that the server answers itself, in front of an application: is it alive, is it ready, what has it counted.
    # @!visibility private
    class Endpoints
      TEXT = { 'content-type' => 'text/plain; charset=utf-8', 'cache-control' => 'no-store' }.freeze

      # @param app [#call, nil] gets all other requests; nil: they are answered with 404
      # @param process [ServerProcess]
      # @param paths [Hash{String => Symbol}] path => :health, :ready or :metrics
      def initialize(app, process, paths)
        @app = app
        @process = process
        @paths = paths
      end

      # @param request [Request]
      def call(request)
        what = @paths[request.path]
        return answer(request, what) if what
        return @app.call(request) if @app

        request.respond("Not Found\n", TEXT, status: 404)
      end

      private

      def answer(request, what)
        return request.respond("Method Not Allowed\n", { **TEXT, 'allow' => 'GET, HEAD' }, status: 405) unless allowed?(request)

        case what
        when :health then request.respond("ok\n", TEXT)
        when :ready then ready(request)
        else request.respond(@process.metrics, { **TEXT, 'content-type' => Metrics::CONTENT_TYPE })
        end
      end

      def allowed?(request)
        %w[GET HEAD].include?(request.verb)
      end

      def ready(request)
        return request.respond("ready\n", TEXT) if @process.ready?

        request.respond("stopping\n", { **TEXT, 'retry-after' => '5' }, status: 503)
      end
    end
    private_constant :Endpoints
  end
end
