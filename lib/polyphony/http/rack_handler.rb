# frozen_string_literal: true

require 'polyphony/http/rack_handler/input'
require 'polyphony/http/rack_handler/dechunker'
require 'polyphony/http/rack_handler/body_source'
require 'polyphony/http/rack_handler/pump'
require 'polyphony/http/rack_handler/hooks'
require 'polyphony/http/rack_handler/environment'
require 'polyphony/http/rack_handler/response'

module Polyphony
  module HTTP
    # Answers requests with a Rack application, of Rack 3 or of Rack 2.2.
    #
    # @example
    #   app = Polyphony::HTTP::RackHandler.load('config.ru')
    #   Polyphony::HTTP::Server.new('http://127.0.0.1:9292', app: app).run
    #
    # @example Without rack
    #   app = ->(env) { [200, { 'content-type' => 'text/plain' }, ["Hello from #{env['PATH_INFO']}\n"]] }
    #   Polyphony::HTTP::Server.new('http://127.0.0.1:9292', app: Polyphony::HTTP::RackHandler.new(app)).run
    class RackHandler
      NO_CALLBACKS = [].freeze
      private_constant :NO_CALLBACKS

      class << self
        # Loads a file of rackup's kind.
        # @param path [String]
        # @param options [Hash] see #initialize
        # @return [RackHandler]
        # @raise [ArgumentError] if there is no such file
        # @raise [LoadError] without the gem rack
        def load(path = 'config.ru', **options)
          raise ArgumentError, "there is no file #{path.inspect} with a Rack application" unless ::File.file?(path)

          require 'rack'
          app = ::Rack::Builder.parse_file(path)
          new(app.is_a?(Array) ? app.first : app, **options) # Rack 2 brings options of the first line along
        end

        # @return [Integer] of the rack that is loaded; 3 if there is none
        # @!visibility private
        def __rack_version
          defined?(::Rack) && ::Rack.respond_to?(:release) ? Integer(::Rack.release[/\A\d+/], 10) : 3
        end
      end

      # @return [#call] the application
      attr_reader :app

      # @param app [#call] a Rack application
      # @param rewindable [Boolean, nil] whether +rack.input+ can be read again, which means to keep what was read;
      #   nil: if the application is one for Rack 2
      # @param errors [IO] is +rack.errors+
      # @param multiprocess [Boolean] whether other processes serve the same application
      # @param early_hints [:http2, Boolean] who is sent 103 if the application says +rack.early_hints+. With HTTP/1.1
      #   there are clients, and proxies, that take it for the answer; so it has to be asked for
      # @param env [Hash{String => Object}] goes into the environment of each request
      # @raise [ArgumentError] for what is no application
      def initialize(app, rewindable: nil, errors: $stderr, multiprocess: false, early_hints: :http2, env: {})
        check(app, early_hints)
        @app = app
        isolate_by_fiber(errors)
        @rack2 = self.class.__rack_version < 3
        @environment = Environment.new(rack2: @rack2, rewindable: rewindable.nil? ? @rack2 : rewindable,
                                       errors: errors, multiprocess: multiprocess, early_hints: early_hints, extra: env)
      end

      # @param request [Request]
      # @return [void]
      def call(request)
        env = HTTP.__env(request, @environment) || @environment.for(request)
        input = env['rack.input'] if request.__body # middleware may put its own in its place
        status, headers, body = @app.call(env)
        blame_client(input, body) if input&.__error && status.to_i > 499
        if request.__state != :idle then taken_over(request, body)
        elsif !request.__plain(status, headers, body, @rack2) then Response.new(request, @rack2).deliver(status, headers, body)
        end
      rescue StandardError => e
        wait_for_hijacker(request) # somebody may have it all the same
        raise input&.__error || e
      ensure
        input&.__release
        finish_with(request, env, status, headers) if env && !(env['rack.response_finished'] || NO_CALLBACKS).empty?
      end

      private

      def check(app, early_hints)
        raise ArgumentError, "a Rack application responds to call, got #{app.inspect[0, 200]}" unless app.respond_to?(:call)
        return if [:http2, true, false].include?(early_hints)

        raise ArgumentError, "early_hints must be :http2, true or false, got #{early_hints.inspect}"
      end

      # What Rails keeps for "the current request" belongs to a thread unless it is told otherwise, and requests that
      # run in fibers of one thread would see each other's.
      def isolate_by_fiber(errors)
        state = defined?(::ActiveSupport::IsolatedExecutionState) && ::ActiveSupport::IsolatedExecutionState
        return if !state || state.isolation_level == :fiber

        state.isolation_level = :fiber
        errors.puts 'polyphony: requests run in fibers, so the isolation level of Active Support is :fiber now; ' \
                    'say so yourself: config.active_support.isolation_level = :fiber'
      end

      # An application that meets bad input takes it for an error of its own. It is the client's: 413, 408 or 400.
      def blame_client(input, body)
        body.close if body.respond_to?(:close)
        raise input.__error
      end

      # The application took the connection, or answered by itself: what it returned is nothing to us.
      def taken_over(request, body)
        body.close if body.respond_to?(:close)
        wait_for_hijacker(request)
      end

      def wait_for_hijacker(request)
        base = request.connection.app_data
        base.hijack&.__wait if base.is_a?(Environment::Base)
      end

      def finish_with(request, env, status, headers)
        callbacks = env['rack.response_finished']
        log = request.connection.server.log
        request.on_finish { |error| tell(callbacks, log, env, status, headers, error) }
      end

      # They should not raise; one that does is not to keep the others from being told.
      def tell(callbacks, log, env, status, headers, error)
        callbacks.reverse_each do |callback|
          callback.call(env, status, headers, error)
        rescue StandardError => e
          log.error(e, 'rack.response_finished')
        end
      end
    end
  end
end
