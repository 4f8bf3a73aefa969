# frozen_string_literal: true

require 'polyphony'
require 'opentelemetry'
require 'polyphony/adapters/opentelemetry/hooks'

module Polyphony
  # Traces of OpenTelemetry across fibers: spans made in a fiber are children of the span that was current where it was spun, and
  # likewise across threads, pools, messages and HTTP. Needs the gem opentelemetry-api (1.0 or later), and opentelemetry-sdk to
  # send the spans anywhere. Call {start} when the SDK is configured.
  #
  # @example
  #   require 'opentelemetry/sdk'
  #   require 'polyphony/adapters/opentelemetry'
  #
  #   ::OpenTelemetry::SDK.configure { |config| config.service_name = 'shop' }
  #   Polyphony::OpenTelemetry.start
  module OpenTelemetry
    # What ends a fiber as somebody wished: no error.
    STOPS = [MoveOn, Terminate, Restart].freeze
    private_constant :STOPS

    class << self
      # From now on contexts go along with fibers, threads, jobs and messages, each request to the web server has a span, and each
      # one of Net::HTTP.
      # @param server [Boolean] whether requests to Polyphony::HTTP::Server have spans: not if a middleware makes them
      # @param client [Boolean] whether requests of Net::HTTP have; by default unless the instrumentation gem for it is there
      # @param fibers [Boolean] whether each fiber with a tag that is spun within a span has one: to see what ran at the same time
      # @param tracer_provider [OpenTelemetry::Trace::TracerProvider, nil] nil: the one of OpenTelemetry
      # @return [self]
      def start(server: true, client: !instrumented?, fibers: false, tracer_provider: nil)
        provider = tracer_provider || ::OpenTelemetry.tracer_provider
        @tracer = provider.tracer('polyphony', Polyphony::VERSION)
        Telemetry.hooks = Hooks.new(server: server, client: client, fibers: fibers)
        self
      end

      # @return [self]
      def stop
        Telemetry.hooks = nil if Telemetry.hooks.is_a?(Hooks)
        self
      end

      # @return [OpenTelemetry::Trace::Tracer]
      def tracer
        @tracer ||= ::OpenTelemetry.tracer_provider.tracer('polyphony', Polyphony::VERSION)
      end

      # Runs the block in a span, which ends with it: also when the fiber is stopped or cancelled, or a time limit is over. What comes
      # out of the block is recorded as an error, but for a stop (by Fiber#stop, by a scope that is over, by the end of the parent),
      # which is an attribute, +polyphony.stopped+. (The in_span of a tracer takes that for an error.)
      # @param name [String]
      # @param attributes [Hash{String => Object}, nil]
      # @param kind [Symbol, nil] +:internal+, +:server+, +:client+, +:producer+ or +:consumer+
      # @param links [Array<OpenTelemetry::Trace::Link>, nil]
      # @yield [OpenTelemetry::Trace::Span]
      # @return [Object] what the block returns
      def in_span(name, attributes: nil, kind: nil, links: nil)
        span = tracer.start_span(name, attributes: attributes, kind: kind, links: links)
        ::OpenTelemetry::Trace.with_span(span) { yield span }
      rescue *STOPS => e
        span.set_attribute('polyphony.stopped', e.class.name) if span
        raise
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- raised again
        __failed(span, e) if span
        raise
      ensure
        span&.finish
      end

      # @!visibility private
      def __failed(span, error)
        span.record_exception(error)
        span.set_attribute('error.type', error.class.name.to_s)
        span.status = ::OpenTelemetry::Trace::Status.error("#{error.class}: #{Hooks.text(error.message)}")
      end

      private

      # The gem opentelemetry-instrumentation-net_http.
      def instrumented?
        defined?(::OpenTelemetry::Instrumentation::Net::HTTP::Instrumentation) ? true : false
      end
    end
  end
end
